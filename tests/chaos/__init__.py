"""Random faults over whole deliveries, and one oracle at the end that knows nothing of the engine's own bookkeeping."""
