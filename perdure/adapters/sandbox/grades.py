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
from perdure.adapters.sandbox.base import GitView, Sandbox, SandboxCommand, SandboxResult
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.private_etc import ALLOWED, remove_outdated
from perdure.adapters.sandbox.probe import probe, probe_landlock, probe_layers
from perdure.adapters.sandbox.setup_directories import link_setup_directories
from perdure.adapters.sandbox.status import StatusFile
from perdure.adapters.sandbox.supervision import SupervisorLaunch, supervise_command
from perdure.adapters.sandbox.toolchain import Binds
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.adapters.sandbox.visibility import SYSTEM
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


class _LauncherSandbox:
    """A sandbox without mounts, whose commands are started by our launcher."""

    grade: SandboxGrade

    def __init__(
        self, home: Home, binds: Binds, *, output_limit: int = OUTPUT_FILE_BYTES, caps: ResourceCaps | None = None
    ) -> None:
        """Keep the arguments. `binds`: what of the host commands may read, computed once after setup."""
        self._home = home
        self._binds = binds
        self._output_limit, self._caps = output_limit, caps

    async def run_command(self, command: SandboxCommand) -> SandboxResult:
        """Run a command under the launcher and return its result, as Sandbox.run_command says. Raises Superseded when
        somebody else owns the workspace, or what `command.fence` raises.

        It gets a private home and temporary directory, removed at the end. A `source` is run where it is: nothing is
        mounted here, and what setup made is linked.
        """
        parent = self._home.root / "sandbox" / "tmp"
        parent.mkdir(parents=True, exist_ok=True)
        private_home = Path(tempfile.mkdtemp(dir=parent))
        remove_outdated(parent, private_home)
        try:
            with await StatusFile.open_locked(command.lock) as status:
                if command.fence is not None:
                    command.fence()
                spec = json.dumps(self._launcher_spec(command, private_home)).encode() + b"\n"
                launch = SupervisorLaunch([sys.executable, "-I", "-S", LAUNCHER, "{status}"], {}, lifeline=spec)
                return await supervise_command(launch, command, status, self._output_limit, self._caps)
        finally:
            discard(private_home)

    def _launcher_spec(self, command: SandboxCommand, private_home: Path) -> dict[str, Any]:
        """Return the launcher's instructions for a command as JSON values: script, directory, variables, limits, and
        the paths that may be read and written.

        Links to what setup made are put into a clean checkout. The package caches are made. For setup the owner's
        package settings are copied into the private home.
        """
        binds, directory = self._binds, str(command.source or command.worktree)
        # A link that an agent has put in a name's place would open to the command what it leads to: see confine.
        tree = os.path.realpath(command.worktree)
        shared = [os.path.join(tree, name) for name in command.shared]
        cache_paths = [
            os.path.join(tree, package_cache.relative_to(command.worktree))
            for package_cache in link_setup_directories(command)
        ]
        variables = environment.command_variables(
            command, binds, home=str(private_home), tmp=str(private_home), runtime_dir=str(private_home)
        )
        readable = (*binds.prefixes, directory, *shared)
        # Nothing can be mounted here: `.git` leads into the vault itself, with what other deliveries keep there.
        git_dir = command.git_dir.vault_path if isinstance(command.git_dir, GitView) else command.git_dir
        readable = (*readable, *([str(git_dir)] if git_dir else []), *map(str, command.visible_paths))
        writable = (str(private_home), *([directory] if command.writable else []))
        writable = (*writable, *([str(command.results)] if command.results else []), *cache_paths)
        if command.network:
            variables |= setup.package_source_variables(os.environ, Path.home())
            setup.copy_owner_files(Path.home(), private_home)
        if (package_cache := packages.ensure_package_cache(self._home, binds.cache)) is not None:
            variables |= {"CARGO_HOME": str(package_cache / ".cargo"), "GOMODCACHE": str(package_cache / "go/pkg/mod")}
            readable = (*readable, str(package_cache))
            if command.network:
                variables |= {
                    "XDG_CACHE_HOME": str(package_cache / ".cache"),
                    "npm_config_cache": str(package_cache / ".npm"),
                }
                writable = (*writable, str(package_cache))
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


class OffSandbox(_LauncherSandbox):
    """A sandbox of grade `off`: runs commands in a process group of their own with a scrubbed environment; keeps no
    promise about files."""

    grade = SandboxGrade.OFF


class LandlockSandbox(_LauncherSandbox):
    """A sandbox of grade `reduced`: runs commands under Landlock; of the host they may read `binds` and what is named
    here."""

    grade = SandboxGrade.REDUCED

    def _launcher_spec(self, command: SandboxCommand, private_home: Path) -> dict[str, Any]:
        """Return the launcher's instructions, with the system's own directories and devices added to the paths that may
        be read and written."""
        spec = super()._launcher_spec(command, private_home)
        spec["writable"] = (*DEVICES, *spec["writable"])
        return spec | {"readable": (*READABLE, *(FOR_SETUP if command.network else ()), *spec["readable"])}


_proved: set[SandboxGrade] = set()


def sandbox_for(grade: SandboxGrade, home: Home, binds: Binds, caps: ResourceCaps | None = None) -> Sandbox:
    """Return a sandbox of exactly this grade. Raises SandboxUnavailable when this host cannot give it. Logs a warning
    for grade `off`.

    The first call of a process runs the real check (about 10 ms); a success is remembered, a failure is not, so that
    the fix takes effect without a restart. Blocks: call it in a thread.
    """
    if grade is SandboxGrade.OFF:
        log.warning(WARNING)
        return OffSandbox(home, binds, caps=caps)
    if grade not in _proved:
        error = probe().error if grade is SandboxGrade.FULL else probe_landlock()
        if error is not None:
            raise error
        _proved.add(grade)
    if grade is SandboxGrade.FULL:
        return BubblewrapSandbox(home, binds, layering=probe_layers(home.root)[0].path, caps=caps)
    return LandlockSandbox(home, binds, caps=caps)
