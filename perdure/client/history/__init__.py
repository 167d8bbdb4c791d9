"""Temporal histories of deliveries and backlogs, read without a worker: decoded, folded to a picture, and told as
events.
"""
