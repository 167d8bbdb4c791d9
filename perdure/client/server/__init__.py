"""The Temporal server as one sees it without a worker: descriptions and lists; and calls that outlive a bad moment."""
