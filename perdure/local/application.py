"""The place of the application: the worker.py that this installation runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import perdure
from perdure.adapters.system.home import Home
from perdure.models.errors import PerdureError


def worker_script() -> Path:
    """worker.py of the wheel, else of the clone. The wheel first: beside an installed package lie other people's."""
    package = Path(perdure.__file__).parent
    for script in (package / "_app" / "worker.py", package.parent / "worker.py"):
        if script.is_file():
            return script
    raise PerdureError("worker.py is missing from this installation", where=str(package), fix="install Perdure again")


def examples() -> Path:
    """Return the demo's material: a package, its request and a screenplay."""
    return worker_script().parent / "examples"


def worker_command() -> list[str]:
    return [sys.executable, str(worker_script())]


def worker_environment(home: Home, env: Mapping[str, str]) -> dict[str, str]:
    """`env` for a worker of `home`: PYTHONSAFEPATH would hide the packages that lie beside worker.py."""
    return {name: value for name, value in env.items() if name != "PYTHONSAFEPATH"} | {"PERDURE_HOME": str(home.root)}
