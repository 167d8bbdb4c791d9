"""Grade `reduced`: Landlock, seccomp and no capabilities, for hosts where bubblewrap cannot start.

Weaker than `full`, each point measured: pathname Unix sockets of the host can be reached; metadata (chmod, utime,
stat) outside of the rules can be changed and read; the host's process list can be read; .git, .venv and node_modules
in the worktree can be overwritten; tests cannot listen on TCP ports; nothing is mounted, so a clean checkout runs at
a path of its own and git leads into the whole vault. Survivors are ended by the launcher, which a SIGKILL of its own
would prevent.
"""

from __future__ import annotations

from perdure.adapters.sandbox.base import Command, Finished
from perdure.adapters.sandbox.etc import ALLOWED
from perdure.adapters.sandbox.launched import run_launched
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


class Landlock:
    """Runs commands under Landlock. `binds` is what of the host they may read, computed once after setup."""

    grade = SandboxGrade.REDUCED

    def __init__(
        self, home: Home, binds: Binds, *, output_limit: int = OUTPUT_FILE_BYTES, caps: Caps | None = None
    ) -> None:
        self._home = home
        self._binds = binds
        self._limit, self._caps = output_limit, caps

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
