"""The judgement of a change: test commands, their runners and reports, experiments, findings of the engine."""
