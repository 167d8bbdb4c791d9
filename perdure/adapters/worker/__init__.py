"""A worker process on a host: attempts, leases, what was paid, who died, and the turn. No other adapter imports it."""
