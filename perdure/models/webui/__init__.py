"""Markdown and short texts that people read in the Temporal Web UI."""
