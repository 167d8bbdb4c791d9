"""Calls to the Temporal server: descriptions and lists that need no worker; queries, updates and activities tried
again.
"""
