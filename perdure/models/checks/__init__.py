"""Reports of test commands, experiments and reviewers, and their facts as text."""
