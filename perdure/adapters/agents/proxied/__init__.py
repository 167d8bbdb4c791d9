"""Agents with a command line of their own: their requests to a model pass through a proxy here, which adds the key."""
