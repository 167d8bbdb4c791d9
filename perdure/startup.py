"""The first steps of programs that load many modules: the worker, and the command line.

Standard library and `secrets` only: `begin` comes before every other import.
"""

from __future__ import annotations

import gc

from perdure import secrets


def begin() -> None:
    """Move the secrets out of the environment into memory, and turn garbage collection off until
    `resume_garbage_collection`: loading makes no garbage, and a seventh of its time went into looking for some."""
    gc.disable()
    secrets.take()


def resume_garbage_collection() -> None:
    """Turn garbage collection on again, and exempt from it for good all objects that exist now."""
    gc.freeze()
    gc.enable()
