"""The sandbox of the grade that was asked for, or an error: never a weaker one in silence."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from perdure.adapters.sandbox import environment, packages, setup
from perdure.adapters.sandbox.base import Command, Finished, GitView, Sandbox
from perdure.adapters.sandbox.bubblewrap import Bubblewrap
from perdure.adapters.sandbox.etc import ALLOWED, sweep
from perdure.adapters.sandbox.probe import probe, probe_landlock, probe_layers
from perdure.adapters.sandbox.process import Launch, supervise
from perdure.adapters.sandbox.rules import SYSTEM
from perdure.adapters.sandbox.shared import linked
from perdure.adapters.sandbox.status import StatusFile
from perdure.adapters.sandbox.toolchain import Binds
from perdure.adapters.sandbox.usage import Caps
from perdure.adapters.system.home import Home
from perdure.adapters.system.removal import discard
from perdure.models.config import SandboxGrade
from perdure.models.limits import OUTPUT_FILE_BYTES, SANDBOX_FILE_BYTES, SANDBOX_NICE, SANDBOX_OOM_SCORE

DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "tty", "ptmx", "pts", "shm"))
READABLE = (
    *SYSTEM,
    *(f"/etc/{name}" for name in (*ALLOWED, "passwd", "group", "hosts", "java-17-openjdk")),
    *("/proc", "/dev/random", "/dev/urandom"),
)
FOR_SETUP = ("/etc/resolv.conf", "/run/systemd/resolve", "/etc/pip.conf", "/etc/ssl")

LAUNCHER = str(Path(__file__).with_name("launcher.py"))

WARNING = (
    "NO SANDBOX: commands of the agent and of the repository run with your rights, your files and your network "
    "(PERDURE_SANDBOX=off)"
)

log = logging.getLogger(__name__)


class _Launched:
    grade: SandboxGrade

    def __init__(
        self, home: Home, binds: Binds, *, output_limit: int = OUTPUT_FILE_BYTES, caps: Caps | None = None
    ) -> None:
        """`binds`: what of the host commands may read, computed once after setup."""
        self._home = home
        self._binds = binds
        self._limit, self._caps = output_limit, caps

    async def run(self, command: Command) -> Finished:
        """See Sandbox.run. Superseded: someone else owns the workspace, or `command.fence` said so.

        With a private home and temporary directory. A `source` is run where it is: nothing is mounted here, what setup
        made is linked.
        """
        base = self._home.root / "sandbox" / "tmp"
        base.mkdir(parents=True, exist_ok=True)
        private = Path(tempfile.mkdtemp(dir=base))
        sweep(base, private)
        try:
            with await StatusFile.open(command.lock) as status:
                if command.fence is not None:
                    command.fence()
                spec = json.dumps(self._spec(command, private)).encode() + b"\n"
                launch = Launch([sys.executable, "-I", "-S", LAUNCHER, "{status}"], {}, lifeline=spec)
                return await supervise(launch, command, status, self._limit, self._caps)
        finally:
            discard(private)

    def _spec(self, command: Command, private: Path) -> dict[str, Any]:
        binds, directory = self._binds, str(command.source or command.worktree)
        # An agent's link in a name's place would open to the command what it leads to: see confine.
        tree = os.path.realpath(command.worktree)
        shared = [os.path.join(tree, name) for name in command.shared]
        kept = [os.path.join(tree, cache.relative_to(command.worktree)) for cache in linked(command)]
        variables = environment.inside(command, binds, home=str(private), tmp=str(private), run=str(private))
        readable = (*binds.prefixes, directory, *shared)
        # Nothing can be mounted here: `.git` leads into the vault itself, with what other deliveries keep there.
        git_dir = command.git_dir.at if isinstance(command.git_dir, GitView) else command.git_dir
        readable = (*readable, *([str(git_dir)] if git_dir else []), *map(str, command.shown))
        writable = (str(private), *([directory] if command.writable else []))
        writable = (*writable, *([str(command.results)] if command.results else []), *kept)
        if command.network:
            variables |= setup.variables(os.environ, Path.home())
            setup.copy_owner_files(Path.home(), private)
        if (cache := packages.cache(self._home, binds.cache)) is not None:
            variables |= {"CARGO_HOME": str(cache / ".cargo"), "GOMODCACHE": str(cache / "go/pkg/mod")}
            readable = (*readable, str(cache))
            if command.network:
                variables |= {"XDG_CACHE_HOME": str(cache / ".cache"), "npm_config_cache": str(cache / ".npm")}
                writable = (*writable, str(cache))
        variables |= command.env
        return {
            "script": command.script,
            "cwd": os.path.join(directory, command.directory),
            "env": variables,
            "nice": SANDBOX_NICE,
            "oom_score": SANDBOX_OOM_SCORE,
            "file_bytes": SANDBOX_FILE_BYTES,
            "confined": self.grade is not SandboxGrade.OFF,
            "network": command.network,
            "tree": tree,
            "readable": readable,
            "writable": writable,
        }


class Off(_Launched):
    """Runs commands in a process group of their own with a scrubbed environment; keeps no promise about files."""

    grade = SandboxGrade.OFF


class Landlock(_Launched):
    """Runs commands under Landlock: of the host they may read `binds` and what is named here."""

    grade = SandboxGrade.REDUCED

    def _spec(self, command: Command, private: Path) -> dict[str, Any]:
        spec = super()._spec(command, private)
        spec["writable"] = (*DEVICES, *spec["writable"])
        return spec | {"readable": (*READABLE, *(FOR_SETUP if command.network else ()), *spec["readable"])}


_proved: set[SandboxGrade] = set()


def sandbox_for(grade: SandboxGrade, home: Home, binds: Binds, caps: Caps | None = None) -> Sandbox:
    """A sandbox of exactly this grade. SandboxUnavailable: it cannot be had on this host.

    The first call of a process runs the real check (about 10 ms); a success is remembered, a failure is not, so
    that the fix takes effect without a restart. Blocks: call it in a thread.
    """
    if grade is SandboxGrade.OFF:
        log.warning(WARNING)
        return Off(home, binds, caps=caps)
    if grade not in _proved:
        error = probe().error if grade is SandboxGrade.FULL else probe_landlock()
        if error is not None:
            raise error
        _proved.add(grade)
    if grade is SandboxGrade.FULL:
        return Bubblewrap(home, binds, layering=probe_layers(home.root)[0].path, caps=caps)
    return Landlock(home, binds, caps=caps)
