"""Landlock, seccomp and capability drop for the calling process, through ctypes, and the filter of the system calls
that a command may make; nothing but the standard library.

Runs in the launcher's child between fork and exec; bubblewrap is given the same filter. Linux on x86-64 and arm64.

`syscalls.json` is what Docker's default profile (deploy/seccomp.json) gives a container without capabilities, less what
no build or test was seen to need, with each architecture's numbers. What depends on an argument stands here.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import json
import os
import platform
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The architectures whose numbers are known here; on any other no command is run."""

X32 = 0x40000000
"""The bit that is set in the numbers of x86-64's second, unused interface."""

NEWEST = 469
"""The last system call that was looked at. A younger one is "not there", so that programs do without."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, NETLINK_ROUTE = 1, 2, 10, 16, 0
NAMESPACES = 0x7E020000
"""The bits CLONE_NEW* of clone's flags."""

TTY = (0x5412, 0x541C)
"""The ioctl requests TIOCSTI and TIOCLINUX, which type into the terminal that the worker runs in."""

PERSONALITIES = (0x0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, and asking which; no READ_IMPLIES_EXEC and nothing that switches address randomisation off."""

SOCKET = {"x86_64": 41, "aarch64": 198}
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = 435
IOCTL = {"x86_64": 16, "aarch64": 29}
PERSONALITY = {"x86_64": 135, "aarch64": 92}

TRACING = frozenset({"ptrace", "process_vm_readv", "process_vm_writev"})
"""System calls with which a process reads and changes others, pid 1 of the sandbox among them."""

ALLOW, KILL = 0x7FFF0000, 0x80000000
LOAD, EQUAL, ABOVE, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x25, 0x35, 0x54, 0x06
ARCHITECTURE, NUMBER, ARGUMENT = 4, 0, (16, 24, 32)
"""Offsets of what the filter looks at; of arguments the lower half, because the kernel reads no more of these."""

FilterLine = tuple[int, int, int, int]


def seccomp_unsupported_reason(machine: str) -> str:
    """Return the reason why commands cannot be filtered on this machine; '' when they can."""
    return "" if machine in AUDIT else f"no seccomp filter is known here for {machine}"


@functools.cache
def filter_program(machine: str, *, internet: bool = True, trace: bool = True) -> bytes:
    """Return the filter's program, in the kernel's form. `internet` False: it allows Unix sockets alone, for where
    there is no network namespace. `trace` False: none of TRACING. Cached.

    Programs of another architecture are killed. System calls younger than NEWEST, and clone3, give ENOSYS, so that
    programs do without. Everything else that is not allowed gives EPERM, a socket family EAFNOSUPPORT. Raises KeyError
    for a machine that is not in AUDIT.
    """
    lines = [
        *((LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, AUDIT[machine]), (RETURN, 0, 0, KILL)),  # 32-bit programs
        (LOAD, 0, 0, NUMBER),
        *_block_if(ABOVE, NEWEST, [_errno_line(errno.ENOSYS)]),  # the X32 bit as well
        *_block_if(
            EQUAL, CLONE3, [_errno_line(errno.ENOSYS)]
        ),  # its flags are out of a filter's sight; libraries then use clone
        *_block_if(EQUAL, SOCKET[machine], _socket_lines(internet)),
        *_block_if(EQUAL, CLONE[machine], _clone_lines()),
        *_block_if(EQUAL, IOCTL[machine], _match_argument(1, TTY, _errno_line(errno.EPERM), (RETURN, 0, 0, ALLOW))),
        *_block_if(
            EQUAL,
            PERSONALITY[machine],
            _match_argument(0, PERSONALITIES, (RETURN, 0, 0, ALLOW), _errno_line(errno.EPERM)),
        ),
    ]
    numbers = {name: number for name, number in allowed_calls(machine).items() if trace or name not in TRACING}
    for first, last in _consecutive_ranges(sorted(numbers.values())):
        lines += [(ABOVE, 3, 0, last), (AT_LEAST, 0, 1, first), (RETURN, 0, 0, ALLOW), _errno_line(errno.EPERM)]
    lines.append(_errno_line(errno.EPERM))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def allowed_calls(machine: str) -> dict[str, int]:
    """Return the numbers of the system calls that are allowed with any arguments, by name. Reads syscalls.json."""
    tables: dict[str, dict[str, int]] = json.loads(Path(__file__).with_name("syscalls.json").read_bytes())
    return tables[machine]


def _socket_lines(internet: bool) -> list[FilterLine]:
    """Return the filter's lines for the system call `socket`: Unix sockets are allowed, with `internet` IPv4, IPv6 and
    netlink's routes too. AF_ALG, AF_PACKET, AF_VSOCK, …, give EAFNOSUPPORT: each is a part of the kernel that strangers
    need not reach."""
    families = (AF_UNIX, AF_INET, AF_INET6) if internet else (AF_UNIX,)
    route = [
        *((EQUAL, 0, 3, AF_NETLINK), (LOAD, 0, 0, ARGUMENT[2]), (EQUAL, 0, 1, NETLINK_ROUTE)),
        (RETURN, 0, 0, ALLOW),
    ]
    return [
        *_match_argument(0, families, (RETURN, 0, 0, ALLOW), None),
        *(route if internet else []),
        _errno_line(errno.EAFNOSUPPORT),
    ]


def _clone_lines() -> list[FilterLine]:
    """Return the filter's lines for the system call `clone`: EPERM when a flag asks for a new namespace, else it is
    allowed."""
    return [
        *((LOAD, 0, 0, ARGUMENT[0]), (AND, 0, 0, NAMESPACES), (EQUAL, 0, 1, 0)),
        *((RETURN, 0, 0, ALLOW), _errno_line(errno.EPERM)),
    ]


def _match_argument(
    argument: int, values: tuple[int, ...], then: FilterLine, otherwise: FilterLine | None
) -> list[FilterLine]:
    """Return filter lines that answer `then` when an argument of the call has one of the values, and `otherwise` when
    it has not; None: the lines after these decide."""
    lines: list[FilterLine] = [(LOAD, 0, 0, ARGUMENT[argument])]
    for value in values:
        lines += [(EQUAL, 0, 1, value), then]
    return [*lines, otherwise] if otherwise else lines


def _block_if(test: int, value: int, block: list[FilterLine]) -> list[FilterLine]:
    """Return filter lines that run the block for call numbers that pass the test (EQUAL to `value`, or ABOVE it), and
    skip it for others. The block must end in an answer."""
    return [(test, 0, len(block), value), *block]


def _errno_line(number: int) -> FilterLine:
    """Return the filter line that answers a system call with this errno."""
    return (RETURN, 0, 0, 0x00050000 | number)


def _consecutive_ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of consecutive numbers. `numbers` is sorted and not empty."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


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
    if cause := seccomp_unsupported_reason(platform.machine()):
        return cause
    return "" if landlock_abi() else "this kernel has no Landlock (Linux 5.13 with lsm=landlock is needed)"


def confine_process(readable: Sequence[str], writable: Sequence[str], tree: str, *, network: bool, trace: bool) -> None:
    """Confine this process and its future children for good: only these paths, no capabilities, only the filtered
    system calls, without `network` no sockets but Unix ones, and without `trace` no tracing.

    readable, writable  paths, files or directories; absent ones are left out
    tree                the worktree, without links: a path below it is left out where any part of it is a link

    Raises OSError when a step fails; what was done by then stays.
    """
    program = filter_program(platform.machine(), internet=network, trace=trace)  # read before Landlock hides it
    _raise_on_error(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _drop_capabilities()
    _restrict_paths(readable, writable, tree, network=network)
    _load_filter(program)


def become_subreaper() -> None:
    """Make the kernel give this process the orphans of its descendants as children, so that none can hide from it.
    Raises OSError when that fails."""
    _raise_on_error(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")


def _drop_capabilities() -> None:
    """Drop all capabilities of this process, also from the bounding set where it may. A root worker's commands could
    otherwise read every process's environment, keys included. Raises OSError when the process keeps its own; one that
    stays in the bounding set is ignored."""
    for capability in range(LAST_CAPABILITY + 1):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL above the kernel's last, EPERM without any
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    _raise_on_error(_libc.capset(header, bytes(24)), "capset")


def _restrict_paths(readable: Sequence[str], writable: Sequence[str], tree: str, *, network: bool) -> None:
    """Restrict this process by Landlock to these paths: `readable` ones to reading and executing, `writable` ones to
    all rights. Where the kernel can, without `network` TCP is refused too, and abstract Unix sockets and signals to
    processes outside always. Paths below `tree` that lead out of it by a link get nothing. Raises OSError."""
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
    """Load a seccomp program, as `filter_program` makes it, for this process, which cannot be undone. Raises OSError
    when that fails."""
    code = ctypes.create_string_buffer(program, len(program))
    prog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    _raise_on_error(_libc.prctl(PR_SET_SECCOMP, 2, prog, 0, 0), "seccomp")


def _raise_on_error(result: int, call_name: str) -> int:
    """Return the result of a libc call, or raise OSError with its errno and `call_name` when it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call_name}: {os.strerror(number)}")
    return result
