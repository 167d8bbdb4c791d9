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
"""File system rights that a kernel knows, by its Landlock version; an unknown one is EINVAL."""

NET_SINCE, SCOPES_SINCE = 4, 6
NET = 0b11  # TCP bind and connect
SCOPES = 0b11  # abstract Unix sockets, signals


def landlock_abi() -> int:
    """Return the kernel's Landlock version; 0 when it has none."""
    version: int = _libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)
    return max(0, version)


def confinement_unsupported_reason() -> str:
    """Return the reason why this host cannot confine commands, for want of a seccomp filter or of Landlock; '' when it
    can."""
    if cause := seccomp.seccomp_unsupported_reason(platform.machine()):
        return cause
    return "" if landlock_abi() else "this kernel has no Landlock (Linux 5.13 with lsm=landlock is needed)"


def confine_process(readable: Sequence[str], writable: Sequence[str], tree: str, *, network: bool) -> None:
    """Confine this process and its future children for good: only these paths, no capabilities, only the filtered
    system calls, and without `network` no sockets but Unix ones.

    readable, writable  paths, files or directories; absent ones are left out
    tree                the worktree, without links: a path below it is left out where any part of it is a link

    Raises OSError when a step fails; what was done by then stays.
    """
    program = seccomp.filter_program(platform.machine(), internet=network)  # read before Landlock hides it
    _raise_on_error(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _drop_capabilities()
    _restrict_paths(readable, writable, tree, network=network)
    _load_filter(program)


def become_subreaper() -> None:
    """Make the kernel give this process the orphans of its descendants as children, so that none can hide from it.
    Raises OSError when that fails."""
    _raise_on_error(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")


def _drop_capabilities() -> None:
    """Drop all capabilities of this process, from the bounding set too. A root worker's commands could otherwise read
    every process's environment, keys included. Raises OSError when that fails."""
    for capability in range(LAST_CAPABILITY + 1):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL above the kernel's last, EPERM without any
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    _raise_on_error(_libc.capset(header, bytes(24)), "capset")


def _restrict_paths(readable: Sequence[str], writable: Sequence[str], tree: str, *, network: bool) -> None:
    """Restrict this process by Landlock to these paths: `readable` ones to reading and executing, `writable` ones to
    all rights. Where the kernel can, without `network` TCP is refused too, and abstract Unix sockets and signals to
    processes outside always. Raises OSError."""
    abi = landlock_abi()
    rights = RIGHTS_OF_ABI[min(abi, max(RIGHTS_OF_ABI))]
    attribute = struct.pack("=QQQ", rights, NET if abi >= NET_SINCE and not network else 0, SCOPES)
    size = 24 if abi >= SCOPES_SINCE else 16 if abi >= NET_SINCE else 8
    ruleset = _raise_on_error(_libc.syscall(LANDLOCK_CREATE_RULESET, attribute, size, 0), "landlock ruleset")
    try:
        for path in readable:
            _add_path_rule(ruleset, path, READING & rights, tree)
        for path in writable:
            _add_path_rule(ruleset, path, rights, tree)
        _raise_on_error(_libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock restrict")
    finally:
        os.close(ruleset)


def _add_path_rule(ruleset: int, path: str, rights: int, tree: str) -> None:
    """Add a rule to a Landlock ruleset that gives `rights` on a path; only the rights that fit a file if it is one. A
    path is skipped that does not exist, or that lies below the worktree `tree` and leads elsewhere by a link. Raises
    OSError."""
    with contextlib.suppress(FileNotFoundError):
        path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            # Checked on what was opened, not on the name: in this grade a process of the agent may live on and change
            # that.
            if path.startswith(f"{tree}/") and os.readlink(f"/proc/self/fd/{path_fd}") != path:
                return
            rights &= rights if os.path.isdir(path) else ON_FILES  # a directory's right on a file is EINVAL
            rule = struct.pack("=Qi", rights, path_fd)
            _raise_on_error(_libc.syscall(LANDLOCK_ADD_RULE, ruleset, 1, rule, 0), f"landlock rule for {path}")
        finally:
            os.close(path_fd)


def _load_filter(program: bytes) -> None:
    """Load a seccomp program (seccomp.filter_program) for this process, which cannot be undone. Without network it
    allows no sockets but Unix ones: Landlock does not know UDP. Raises OSError."""
    code = ctypes.create_string_buffer(program, len(program))
    prog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    _raise_on_error(_libc.prctl(PR_SET_SECCOMP, 2, prog, 0, 0), "seccomp")


def _raise_on_error(result: int, call_name: str) -> int:
    """Return the result of a libc call, or raise OSError with its errno and `call_name` when it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call_name}: {os.strerror(number)}")
    return result
