"""The shapes of settings: of a repository, of a host, and of a CLI agent."""
