"""Temporal histories of deliveries and backlogs, read without a worker: decoded once, folded once, told as events."""
