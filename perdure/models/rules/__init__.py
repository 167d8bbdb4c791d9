"""Pure decisions over a delivery's state: who may what, what counts, what comes of it."""
