"""A backlog: as people send it, what it knows while it runs, and its messages with its deliveries."""
