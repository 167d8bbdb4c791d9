"""A turn is a transaction: a checkpoint exists and the ref points at it, or it never happened."""
