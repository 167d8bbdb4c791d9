"""The common part of grades `reduced` and `off`: a command under our launcher instead of bubblewrap."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from perdure.adapters.sandbox import environment, setup
from perdure.adapters.sandbox.base import Command, Finished, GitView
from perdure.adapters.sandbox.etc import sweep
from perdure.adapters.sandbox.process import Launch, supervise
from perdure.adapters.sandbox.status import StatusFile
from perdure.adapters.sandbox.toolchain import Binds
from perdure.adapters.sandbox.usage import Caps
from perdure.adapters.system.home import Home
from perdure.adapters.system.removal import discard
from perdure.models.limits import SANDBOX_FILE_BYTES, SANDBOX_NICE, SANDBOX_OOM_SCORE

LAUNCHER = str(Path(__file__).with_name("launcher.py"))


async def run_launched(
    command: Command,
    home: Home,
    binds: Binds,
    limit: int,
    caps: Caps | None,
    *,
    confined: bool,
    readable: tuple[str, ...] = (),
    writable: tuple[str, ...] = (),
) -> Finished:
    """Run with a private home and temporary directory. A `source` is run where it is: nothing is mounted here."""
    base = home.root / "sandbox" / "tmp"
    base.mkdir(parents=True, exist_ok=True)
    private = Path(tempfile.mkdtemp(dir=base))
    sweep(base, private)
    try:
        with await StatusFile.open(command.lock) as status:
            if command.fence is not None:
                command.fence()
            launch = Launch(
                [sys.executable, "-I", "-S", LAUNCHER, "{status}"],
                {},
                lifeline=json.dumps(_spec(command, home, binds, private, confined, readable, writable)).encode()
                + b"\n",
            )
            return await supervise(launch, command, status, limit, caps)
    finally:
        discard(private)


def _spec(
    command: Command,
    home: Home,
    binds: Binds,
    private: Path,
    confined: bool,
    readable: tuple[str, ...],
    writable: tuple[str, ...],
) -> dict[str, object]:
    directory = str(command.source or command.worktree)
    variables = environment.inside(command, binds, home=str(private), tmp=str(private), run=str(private))
    readable = (*readable, *binds.prefixes, directory, *(str(command.worktree / name) for name in command.shared))
    # Nothing can be mounted here: `.git` leads into the vault itself, with what other deliveries keep there.
    git_dir = command.git_dir.at if isinstance(command.git_dir, GitView) else command.git_dir
    readable = (*readable, *([str(git_dir)] if git_dir else []), *map(str, command.shown))
    writable = (*writable, str(private), *([directory] if command.writable else []))
    writable = (*writable, *([str(command.results)] if command.results else []))
    if command.network:
        variables |= setup.variables(os.environ, Path.home())
        setup.copy_owner_files(Path.home(), private)
    if (cache := setup.cache(home, binds.cache)) is not None:
        variables |= {"CARGO_HOME": str(cache / "cargo"), "GOMODCACHE": str(cache / "go/mod")}
        readable = (*readable, str(cache))
        if command.network:
            variables["XDG_CACHE_HOME"] = str(cache)
            writable = (*writable, str(cache))
    variables |= command.env
    return {
        "script": command.script,
        "cwd": os.path.join(directory, command.directory),
        "env": variables,
        "nice": SANDBOX_NICE,
        "oom_score": SANDBOX_OOM_SCORE,
        "file_bytes": SANDBOX_FILE_BYTES,
        "confined": confined,
        "network": command.network,
        "readable": readable,
        "writable": writable,
    }
