"""A worker: its host's disk, attempts and leases, what was paid, who died, and the turn. Nothing imports it."""
