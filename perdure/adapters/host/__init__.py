"""This host's disk: where things are, who holds what, what was paid, who died."""
