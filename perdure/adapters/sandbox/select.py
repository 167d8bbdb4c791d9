"""The grade that was asked for, or an error: never a weaker one in silence."""

from __future__ import annotations

from perdure.adapters.sandbox.base import Sandbox
from perdure.adapters.sandbox.bubblewrap import Bubblewrap
from perdure.adapters.sandbox.landlock import Landlock
from perdure.adapters.sandbox.off import Off
from perdure.adapters.sandbox.probe import probe, probe_landlock
from perdure.adapters.sandbox.toolchain import Binds
from perdure.adapters.sandbox.usage import Caps
from perdure.adapters.system.home import Home
from perdure.models.config import SandboxGrade

_proved: set[SandboxGrade] = set()


def sandbox_for(grade: SandboxGrade, home: Home, binds: Binds, caps: Caps | None = None) -> Sandbox:
    """A sandbox of exactly this grade. SandboxUnavailable: it cannot be had on this host.

    The first call of a process runs the real check (about 10 ms); a success is remembered, a failure is not, so
    that the fix takes effect without a restart. Blocks: call it in a thread.
    """
    if grade is SandboxGrade.OFF:
        return Off(home, binds, caps=caps)
    if grade not in _proved:
        error = probe().error if grade is SandboxGrade.FULL else probe_landlock()
        if error is not None:
            raise error
        _proved.add(grade)
    return (Bubblewrap if grade is SandboxGrade.FULL else Landlock)(home, binds, caps=caps)
