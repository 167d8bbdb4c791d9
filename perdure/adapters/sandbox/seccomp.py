"""The system calls a command may make, as a program for the kernel's filter; nothing but the standard library.

`syscalls.json` is what Docker's default profile (deploy/seccomp.json) gives a container without capabilities, less what
no build or test was seen to need, with each architecture's numbers. What depends on an argument stands here.
"""

from __future__ import annotations

import errno
import functools
import json
import struct
from collections.abc import Iterator
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

ALLOW, KILL = 0x7FFF0000, 0x80000000
LOAD, EQUAL, ABOVE, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x25, 0x35, 0x54, 0x06
ARCHITECTURE, NUMBER, ARGUMENT = 4, 0, (16, 24, 32)
"""Offsets of what the filter looks at; of arguments the lower half, because the kernel reads no more of these."""

FilterLine = tuple[int, int, int, int]


def seccomp_unsupported_reason(machine: str) -> str:
    """Return the reason why commands cannot be filtered on this machine; '' when they can."""
    return "" if machine in AUDIT else f"no seccomp filter is known here for {machine}"


@functools.cache
def filter_program(machine: str, *, internet: bool = True) -> bytes:
    """Return the filter's program, in the kernel's form. `internet` False: it allows Unix sockets alone, for where
    there is no network namespace. Cached.

    Programs of another architecture are killed. System calls younger than NEWEST, and clone3, give ENOSYS, so that
    programs do without. Everything else that is not allowed gives EPERM, a socket family EAFNOSUPPORT.
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
    for first, last in _consecutive_ranges(sorted(allowed_calls(machine).values())):
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
