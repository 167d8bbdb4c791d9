"""Landlock, seccomp and capability drop for the calling process, through ctypes; nothing but the standard library.

Runs in the launcher's child between fork and exec. Linux on x86-64 and arm64.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Sequence

from perdure.adapters.sandbox import seccomp

_libc = ctypes.CDLL(None, use_errno=True)

PR_CAPBSET_DROP, PR_SET_SECCOMP = 24, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 63

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
READING = EXECUTE | READ_FILE | READ_DIR
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
RIGHTS_OF_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""File system rights a kernel knows; an unknown one is EINVAL."""

NET_SINCE, SCOPES_SINCE = 4, 6
NET = 0b11  # TCP bind and connect
SCOPES = 0b11  # abstract Unix sockets, signals


def landlock_abi() -> int:
    """The kernel's Landlock version; 0: none."""
    version: int = _libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)
    return max(0, version)


def supported() -> str:
    """Say why this host cannot confine commands; '' when it can."""
    if cause := seccomp.supported(platform.machine()):
        return cause
    return "" if landlock_abi() else "this kernel has no Landlock (Linux 5.13 with lsm=landlock is needed)"


def confine(readable: Sequence[str], writable: Sequence[str], tree: str, *, network: bool) -> None:
    """From here on this process and its children reach only these paths; no way back. OSError when it fails.

    tree  the worktree, without links: a path below it is left out where any part of it is one
    """
    program = seccomp.program(platform.machine(), internet=network)  # read before Landlock hides it
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _drop_capabilities()
    _landlock(readable, writable, tree, network=network)
    _seccomp(program)


def become_subreaper() -> None:
    """Orphans of our descendants become our children, so that none can hide from us."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")


def _drop_capabilities() -> None:
    """A root worker's commands could otherwise read every process's environment, keys included."""
    for capability in range(LAST_CAPABILITY + 1):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL above the kernel's last, EPERM without any
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


def _landlock(readable: Sequence[str], writable: Sequence[str], tree: str, *, network: bool) -> None:
    abi = landlock_abi()
    rights = RIGHTS_OF_ABI[min(abi, max(RIGHTS_OF_ABI))]
    attribute = struct.pack("=QQQ", rights, NET if abi >= NET_SINCE and not network else 0, SCOPES)
    size = 24 if abi >= SCOPES_SINCE else 16 if abi >= NET_SINCE else 8
    ruleset = _check(_libc.syscall(LANDLOCK_CREATE_RULESET, attribute, size, 0), "landlock ruleset")
    try:
        for path in readable:
            _allow(ruleset, path, READING & rights, tree)
        for path in writable:
            _allow(ruleset, path, rights, tree)
        _check(_libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock restrict")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, tree: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            # Of what was opened, not of the name: in this grade a process of the agent may live on and change that.
            if path.startswith(f"{tree}/") and os.readlink(f"/proc/self/fd/{fd}") != path:
                return
            rights &= rights if os.path.isdir(path) else ON_FILES  # a directory's right on a file is EINVAL
            rule = struct.pack("=Qi", rights, fd)
            _check(_libc.syscall(LANDLOCK_ADD_RULE, ruleset, 1, rule, 0), f"landlock rule for {path}")
        finally:
            os.close(fd)


def _seccomp(program: bytes) -> None:
    """Only what seccomp.py allows; no sockets but Unix ones without the network: Landlock knows no UDP."""
    code = ctypes.create_string_buffer(program, len(program))
    prog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    _check(_libc.prctl(PR_SET_SECCOMP, 2, prog, 0, 0), "seccomp")


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
