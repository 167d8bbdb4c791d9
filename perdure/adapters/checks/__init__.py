"""Judging a change: test commands, their runners and reports, experiments, and the engine's own findings."""
