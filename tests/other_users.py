"""Programs that are started as another user than root: a Python which that user may start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NOBODY = 65534


def everybodys_python(user: int = NOBODY) -> str | None:
    """This one, or one of the same version, outside of directories that only root may enter."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}", shutil.which(version)):
        if name is None or not Path(name).exists() or not _startable(name):
            continue
        tried = subprocess.run(
            [name, "-c", "import sys"], user=user, group=user, extra_groups=[], check=False,
            capture_output=True, cwd="/", env={"PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        if tried.returncode == 0:
            return name
    return None


def _startable(name: str) -> bool:
    places = Path(os.path.realpath(name)).parents
    return all(os.stat(place).st_mode & 0o001 for place in places)
