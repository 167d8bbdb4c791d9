"""The first steps of programs that load many modules: the worker, and the command line.

Standard library and `secrets` only: `begin` comes before every other import.
"""

from __future__ import annotations

import gc
import os

from perdure import secrets


def begin() -> None:
    """Move the secrets out of the environment into memory, and turn garbage collection off until
    `resume_garbage_collection`: loading makes no garbage, and a seventh of its time went into looking for some."""
    gc.disable()
    secrets.take()
    _name_home_directory()


def _name_home_directory() -> None:
    """Set HOME where nothing says which directory that is: for a user without a name, as in `docker run -u 12345`.

    It is PERDURE_HOME then, else the root directory, as containers have it.
    """
    if not os.environ.get("HOME"):
        import pwd  # Windows has none

        try:
            pwd.getpwuid(os.getuid())
        except KeyError:
            own = os.environ.get("PERDURE_HOME", "")
            os.environ["HOME"] = own if os.path.isabs(own) else "/"


def resume_garbage_collection() -> None:
    """Turn garbage collection on again, and exempt from it for good all objects that exist now."""
    gc.freeze()
    gc.enable()
