"""Pictures of the pages of the repository's application, which is started in the sandbox: for people and the
reviewer."""
