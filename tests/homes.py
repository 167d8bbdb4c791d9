"""Homes that begin with what every home of a host comes to: to make it for each test costs more than most tests do."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from activities.signal_origin import SignalOriginActivity
from activities.workflow_origin import PreviousRunActivity
from perdure.adapters.sandbox.host_files import prepare_private_etc
from perdure.adapters.system.home import Home
from perdure.adapters.worker.origin_record import AcceptedRuns


def fresh_home(root: Path) -> Home:
    """A home of its own; its copy of the host's /etc, which nothing writes to, is that of all homes of this process."""
    home = Home(root)
    if not home.root.exists():
        home.root.mkdir(mode=0o700, parents=True)
        (home.root / "sandbox").mkdir()
        (home.root / "sandbox" / "etc").symlink_to(_etc())
    return home


def origin_activities() -> list[Callable[..., Any]]:
    """The activities by which backlogs ask for origins, of workers inside the tests, which share a home for them."""
    accepted = AcceptedRuns(Home(_directory("home")))
    return [PreviousRunActivity(accepted).former_run, SignalOriginActivity(accepted).signal_origin]


@cache
def _etc() -> Path:
    root = _directory("etc")
    prepare_private_etc(root)
    return root


@cache
def _directory(name: str) -> Path:
    root = Path(tempfile.mkdtemp(prefix=f"perdure-{name}-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root
