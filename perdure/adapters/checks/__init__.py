"""Judging a change: test commands, their runners and reports, experiments, and the engine's own findings. Activities
ask; what a verdict leads to is decided in workflows."""
