"""The name of this start of the machine: what was not synced before it may be damaged after it."""

from __future__ import annotations

import uuid
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OURS = uuid.uuid4().hex


def boot() -> str:
    """Where the machine has no such name, that of this process: then what depends on it is made anew too often."""
    try:
        return _BOOT_ID.read_text().strip() or _OURS
    except OSError:
        return _OURS
