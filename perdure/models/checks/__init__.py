"""Findings of test commands, experiments and reviewers, and the same in words."""
