"""Things that may not be left behind when a delivery has ended and everything was told to stop."""

from __future__ import annotations

import fcntl
import os
from datetime import timedelta
from pathlib import Path

from perdure.adapters.worker.inflight import REPORTING
from perdure.local.retention import collect_garbage
from tests.chaos.world import WEB_UI_PROXY, World, answered, mentions
from tests.engine import git


def left_behind(world: World) -> list[str]:
    """Processes, held locks, git's lock files, leased ports, worktrees and what git notes of them, checkouts of tests,
    notes of what is in flight; in words."""
    home = world.engine.home.root
    others = {os.getpid(), world.server()}
    processes = [one for one in mentions(str(home), besides={WEB_UI_PROXY}) if one.pid not in others]
    found = [f"process {one.pid}: {' '.join(one.cmdline())[:200]}" for one in processes]
    found += [f"lock held: {path.relative_to(home)}" for path in _held(home)]
    # Locks of ours are files that stay, and are held or free: nobody may hold them, as above.
    for repository in (world.origin, *world.engine.home.vaults.glob("*.git")):
        found += [f"git's lock: {path}" for path in repository.rglob("*.lock") if not path.name.startswith("perdure")]
        listed = git(repository, "worktree", "list", "--porcelain").count("worktree ")
        found += [f"{listed - 1} worktrees of {repository.name}"] if listed > 1 else []
    found += [f"worktree: {path.name}" for path in world.worktrees()]
    found += [f"git's notes of a worktree: {path.name}" for path in home.glob("vaults/*.git/worktrees/*")]
    found += [
        f"checkout: {path.relative_to(home)}"
        for name in ("trials", "clean", ".clean.kept")
        for path in home.glob(f"workspaces/*/{name}")
    ]
    found += [f"port leased: {path.name}" for path in home.glob("ports/[0-9]*-[0-9]*")]
    # A worker that was killed before it could show its lock leaves a hidden one, which a later worker removes after a
    # minute; one that somebody holds is named above.
    found += [f"in flight: {path.name}" for path in home.glob("inflight/[!.]*") if path.stem != REPORTING]
    return found


async def left_by_gc(world: World) -> list[str]:
    """What `perdure gc` leaves of deliveries that have all ended, when it takes the youngest, too; in words."""
    home = world.engine.home
    _, found, _ = await answered(lambda: collect_garbage(world.engine.client, home, timedelta(0), also_unmerged=True))
    found += [f"after gc: {path.relative_to(home.root)}" for path in home.root.glob("workspaces/*/")]
    found += [f"after gc: {path.relative_to(home.root)}" for path in world.worktrees()]
    for vault in home.vaults.glob("*.git"):
        names = git(vault, "for-each-ref", "--format=%(refname)").split()
        found += [f"after gc: {name}" for name in names if name.split("/")[1] in ("perdure", "artifacts", "heads")]
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
