"""Markdown and summaries that people read in the Temporal Web UI."""
