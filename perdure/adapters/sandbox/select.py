"""The sandbox of the grade that was asked for, or an error: never a weaker one in silence."""

from __future__ import annotations

import logging

from perdure.adapters.sandbox.base import Command, Finished, Sandbox
from perdure.adapters.sandbox.bubblewrap import Bubblewrap
from perdure.adapters.sandbox.etc import ALLOWED
from perdure.adapters.sandbox.launched import run_launched
from perdure.adapters.sandbox.probe import probe, probe_landlock
from perdure.adapters.sandbox.rules import SYSTEM
from perdure.adapters.sandbox.toolchain import Binds
from perdure.adapters.sandbox.usage import Caps
from perdure.adapters.system.home import Home
from perdure.models.config import SandboxGrade
from perdure.models.limits import OUTPUT_FILE_BYTES

DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "tty", "ptmx", "pts", "shm"))
READABLE = (
    *SYSTEM,
    *(f"/etc/{name}" for name in (*ALLOWED, "passwd", "group", "hosts", "java-17-openjdk")),
    *("/proc", "/dev/random", "/dev/urandom"),
)
FOR_SETUP = ("/etc/resolv.conf", "/run/systemd/resolve", "/etc/pip.conf", "/etc/ssl")


class _Launched:
    def __init__(
        self, home: Home, binds: Binds, *, output_limit: int = OUTPUT_FILE_BYTES, caps: Caps | None = None
    ) -> None:
        self._home = home
        self._binds = binds
        self._limit, self._caps = output_limit, caps


class Landlock(_Launched):
    """Runs commands under Landlock. `binds` is what of the host they may read, computed once after setup."""

    grade = SandboxGrade.REDUCED

    async def run(self, command: Command) -> Finished:
        """See Sandbox.run. Superseded: someone else owns the workspace, or `command.fence` said so."""
        readable = (*READABLE, *(FOR_SETUP if command.network else ()))
        return await run_launched(
            command,
            self._home,
            self._binds,
            self._limit,
            self._caps,
            confined=True,
            readable=readable,
            writable=DEVICES,
        )


WARNING = (
    "NO SANDBOX: commands of the agent and of the repository run with your rights, your files and your network "
    "(PERDURE_SANDBOX=off)"
)

log = logging.getLogger(__name__)


class Off(_Launched):
    """Runs commands in a process group of their own with a scrubbed environment; keeps no promise about files."""

    grade = SandboxGrade.OFF

    async def run(self, command: Command) -> Finished:
        """See Sandbox.run. Superseded: someone else owns the workspace, or `command.fence` said so."""
        return await run_launched(command, self._home, self._binds, self._limit, self._caps, confined=False)


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
    return (Bubblewrap if grade is SandboxGrade.FULL else Landlock)(home, binds, caps=caps)
