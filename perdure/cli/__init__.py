"""The command line: what is typed in `commands/`, what it does beside it, imported when a command begins."""

from perdure.cli.app import main

__all__ = ["main"]
