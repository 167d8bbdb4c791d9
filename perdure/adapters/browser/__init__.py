"""The repository's application, started and shown: pictures of its pages for people and for the reviewer."""
