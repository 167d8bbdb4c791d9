"""The places where pull requests are opened (local repositories and GitHub), and the texts that are published there."""
