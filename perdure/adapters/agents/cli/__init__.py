"""Agents with a command line of their own: their process in the sandbox, their memory, what they print."""
