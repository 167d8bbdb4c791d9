"""Things that may not be left behind when a delivery has ended and everything was told to stop."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from perdure.adapters.worker.inflight import REPORTING
from perdure.local import web_ui_proxy
from tests.chaos.world import World, mentions
from tests.engine import git


def left_behind(world: World) -> list[str]:
    """Processes, held locks, git's lock files, leased ports, worktrees, notes of what is in flight; in words."""
    home = world.engine.home.root
    others = {os.getpid(), world.server()}
    # What stands before the Web UI lives as long as the server does.
    processes = [
        one for one in mentions(str(home)) if one.pid not in others and str(web_ui_proxy.__file__) not in one.cmdline()
    ]
    found = [f"process {one.pid}: {' '.join(one.cmdline())[:200]}" for one in processes]
    found += [f"lock held: {path.relative_to(home)}" for path in _held(home)]
    # Locks of ours are files that stay, and are held or free: nobody may hold them, as above.
    for repository in (world.origin, *world.engine.home.vaults.glob("*.git")):
        found += [f"git's lock: {path}" for path in repository.rglob("*.lock") if not path.name.startswith("perdure")]
        listed = git(repository, "worktree", "list", "--porcelain").count("worktree ")
        found += [f"{listed - 1} worktrees of {repository.name}"] if listed > 1 else []
    found += [f"worktree: {path.name}" for path in home.glob("trees/*")]
    found += [f"port leased: {path.name}" for path in home.glob("ports/[0-9]*-[0-9]*")]
    # A worker that was killed before it could show its lock leaves a hidden one, which a later worker removes after a
    # minute; one that somebody holds is named above.
    found += [f"in flight: {path.name}" for path in home.glob("inflight/[!.]*") if path.stem != REPORTING]
    return found


def _held(home: Path) -> list[Path]:
    """Files below a home that somebody holds a flock on, the server's own and its Web UI's aside."""
    held = []
    for path in sorted(home.rglob("*lock*")):
        if path.is_file() and path.name not in ("server.lock", "ui.lock"):
            fd = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(path)
            finally:
                os.close(fd)
    return held
