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
"""The architectures whose numbers are known here; on any other nothing is run."""

X32 = 0x40000000
"""Set in the numbers of x86-64's second, unused interface."""

NEWEST = 469
"""The last system call that was looked at. A younger one is "not there", so that programs do without."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, NETLINK_ROUTE = 1, 2, 10, 16, 0
NAMESPACES = 0x7E020000
"""CLONE_NEW* bits."""

TTY = (0x5412, 0x541C)
"""ioctl TIOCSTI and TIOCLINUX type into the terminal that the worker runs in."""

PERSONALITIES = (0x0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, and asking which; no READ_IMPLIES_EXEC and nothing that switches address randomisation off."""

SOCKET = {"x86_64": 41, "aarch64": 198}
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = 435
IOCTL = {"x86_64": 16, "aarch64": 29}
PERSONALITY = {"x86_64": 135, "aarch64": 92}

ALLOW, KILL = 0x7FFF0000, 0x80000000
LOAD, EQUAL, ABOVE, AT_LEAST, AND, GIVE = 0x20, 0x15, 0x25, 0x35, 0x54, 0x06
ARCHITECTURE, NUMBER, ARGUMENT = 4, 0, (16, 24, 32)
"""Offsets of what the filter looks at; of arguments the lower half, for the kernel reads no more of these."""

Line = tuple[int, int, int, int]


def supported(machine: str) -> str:
    """The reason why commands cannot be filtered on this machine; '' when they can."""
    return "" if machine in AUDIT else f"no seccomp filter is known here for {machine}"


@functools.cache
def program(machine: str, *, internet: bool = True) -> bytes:
    """The filter, in the kernel's form. `internet` False: Unix sockets alone, where there is no network namespace."""
    lines = [
        *((LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, AUDIT[machine]), (GIVE, 0, 0, KILL)),  # 32-bit programs
        (LOAD, 0, 0, NUMBER),
        *_when(ABOVE, NEWEST, [_no(errno.ENOSYS)]),  # the X32 bit as well
        *_when(EQUAL, CLONE3, [_no(errno.ENOSYS)]),  # its flags are out of a filter's sight; libraries then use clone
        *_when(EQUAL, SOCKET[machine], _sockets(internet)),
        *_when(EQUAL, CLONE[machine], _flags()),
        *_when(EQUAL, IOCTL[machine], _one_of(1, TTY, _no(errno.EPERM), (GIVE, 0, 0, ALLOW))),
        *_when(EQUAL, PERSONALITY[machine], _one_of(0, PERSONALITIES, (GIVE, 0, 0, ALLOW), _no(errno.EPERM))),
    ]
    for first, last in _ranges(sorted(allowed(machine).values())):
        lines += [(ABOVE, 3, 0, last), (AT_LEAST, 0, 1, first), (GIVE, 0, 0, ALLOW), _no(errno.EPERM)]
    lines.append(_no(errno.EPERM))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def allowed(machine: str) -> dict[str, int]:
    """The system calls that are allowed with any arguments, by name."""
    tables: dict[str, dict[str, int]] = json.loads(Path(__file__).with_name("syscalls.json").read_bytes())
    return tables[machine]


def _sockets(internet: bool) -> list[Line]:
    """No AF_ALG, AF_PACKET, AF_VSOCK, … : each is a part of the kernel that strangers need not reach."""
    families = (AF_UNIX, AF_INET, AF_INET6) if internet else (AF_UNIX,)
    route = [
        *((EQUAL, 0, 3, AF_NETLINK), (LOAD, 0, 0, ARGUMENT[2]), (EQUAL, 0, 1, NETLINK_ROUTE)),
        (GIVE, 0, 0, ALLOW),
    ]
    return [*_one_of(0, families, (GIVE, 0, 0, ALLOW), None), *(route if internet else []), _no(errno.EAFNOSUPPORT)]


def _flags() -> list[Line]:
    return [
        *((LOAD, 0, 0, ARGUMENT[0]), (AND, 0, 0, NAMESPACES), (EQUAL, 0, 1, 0)),
        *((GIVE, 0, 0, ALLOW), _no(errno.EPERM)),
    ]


def _one_of(argument: int, values: tuple[int, ...], then: Line, otherwise: Line | None) -> list[Line]:
    lines: list[Line] = [(LOAD, 0, 0, ARGUMENT[argument])]
    for value in values:
        lines += [(EQUAL, 0, 1, value), then]
    return [*lines, otherwise] if otherwise else lines


def _when(test: int, value: int, block: list[Line]) -> list[Line]:
    """The block, which must end in an answer, for numbers that pass the test."""
    return [(test, 0, len(block), value), *block]


def _no(number: int) -> Line:
    return (GIVE, 0, 0, 0x00050000 | number)


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
