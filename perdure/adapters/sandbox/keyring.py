"""A session keyring of its own for each sandbox, so that none inherits the keys of whoever started the worker."""

from __future__ import annotations

import ctypes
import platform
import sys

KEYCTL = {"x86_64": 250, "aarch64": 219}
JOIN_SESSION_KEYRING = 1


def leave_ours() -> None:
    """Give the calling thread, and what it starts from now on, a new and empty session keyring.

    The main thread starts every sandbox and keeps the newest of these keyrings itself, for an older one cannot be
    taken back: what it holds is nothing. A kernel without keys, or a container that forbids them, has none to pass on;
    where the owner's quota of keys is used up (200 at once), sandboxes share the last empty one until some are gone.
    """
    number = KEYCTL.get(platform.machine())
    if sys.platform == "linux" and number is not None:
        ctypes.CDLL(None).syscall(number, JOIN_SESSION_KEYRING, None)
