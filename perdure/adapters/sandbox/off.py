"""Grade `off`: no sandbox at all, only when asked for. Commands have the worker's rights and its network."""

from __future__ import annotations

import logging

from perdure.adapters.sandbox.base import Command, Finished
from perdure.adapters.sandbox.launched import run_launched
from perdure.adapters.sandbox.toolchain import Binds
from perdure.adapters.sandbox.usage import Caps
from perdure.adapters.system.home import Home
from perdure.models.config import SandboxGrade
from perdure.models.limits import OUTPUT_FILE_BYTES

WARNING = (
    "NO SANDBOX: commands of the agent and of the repository run with your rights, your files and your network "
    "(PERDURE_SANDBOX=off)"
)

log = logging.getLogger(__name__)


class Off:
    """Runs commands in a process group of their own with a scrubbed environment; keeps no promise about files."""

    grade = SandboxGrade.OFF

    def __init__(
        self, home: Home, binds: Binds, *, output_limit: int = OUTPUT_FILE_BYTES, caps: Caps | None = None
    ) -> None:
        self._home = home
        self._binds = binds
        self._limit, self._caps = output_limit, caps
        log.warning(WARNING)

    async def run(self, command: Command) -> Finished:
        """See Sandbox.run. Superseded: someone else owns the workspace, or `command.fence` said so."""
        return await run_launched(command, self._home, self._binds, self._limit, self._caps, confined=False)
