"""Homes that begin with what every home of a host comes to: to make it for each test costs more than most tests do."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from perdure.adapters.sandbox.host_files import prepare_private_etc
from perdure.adapters.system.home import Home


def fresh_home(root: Path) -> Home:
    """A home of its own; its copy of the host's /etc, which nothing writes to, is that of all homes of this process."""
    home = Home(root)
    if not home.root.exists():
        home.root.mkdir(mode=0o700, parents=True)
        (home.root / "sandbox").mkdir()
        (home.root / "sandbox" / "etc").symlink_to(_etc())
    return home


@cache
def _etc() -> Path:
    root = Path(tempfile.mkdtemp(prefix="perdure-etc-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    prepare_private_etc(root)
    return root
