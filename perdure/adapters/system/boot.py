"""The id of this start of the machine: what was not synced before it may be damaged after it."""

from __future__ import annotations

import uuid
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OURS = uuid.uuid4().hex


def boot_id() -> str:
    """Return the kernel's id of this boot; where there is none, an id of this process.

    In the latter case what depends on it is made anew for each process: too often, but never too seldom.
    """
    try:
        return _BOOT_ID.read_text().strip() or _OURS
    except OSError:
        return _OURS
