"""Perdure turns a request into a tested, reviewed pull request, and survives whatever happens in between."""

__version__ = "0.1.0"
