"""The name of this start of the machine: what was not synced before it may be damaged after it."""

from __future__ import annotations

import uuid
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OURS = uuid.uuid4().hex


def boot() -> str:
    """Return the boot's name, or this process's where there is none: what depends on it is made anew too often then."""
    try:
        return _BOOT_ID.read_text().strip() or _OURS
    except OSError:
        return _OURS
