"""Commands that show deliveries: as they run, as they ended, and what can be proved of them."""
