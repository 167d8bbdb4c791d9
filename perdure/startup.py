"""The beginning of programs that load much: the worker, and the command line.

Standard library and `secrets` only: `begin` comes before every other import.
"""

from __future__ import annotations

import gc

from perdure import secrets


def begin() -> None:
    """Take the secrets, and collect no garbage until `loaded`: loading makes none, and a seventh of it was to look."""
    gc.disable()
    secrets.take()


def loaded() -> None:
    """Collect garbage from here on, and never look at what is loaded again."""
    gc.freeze()
    gc.enable()
