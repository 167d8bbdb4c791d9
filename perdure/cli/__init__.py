"""The command line: one file for a group of commands; nothing heavy is imported before a command needs it."""

from perdure.cli.app import main

__all__ = ["main"]
