"""A target repository: its configuration, what is detected in it, its setup, the ports it is given."""
