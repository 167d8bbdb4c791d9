"""The places where pull requests are opened."""
