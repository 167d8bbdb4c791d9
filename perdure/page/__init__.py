"""The web page: what runs, what waits for a person, and the decisions, in a browser; all of it from Temporal alone."""
