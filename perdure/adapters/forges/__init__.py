"""Where pull requests are opened."""
