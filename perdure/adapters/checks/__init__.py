"""How a change is judged: test commands, their runners and reports, experiments, findings of the engine."""
