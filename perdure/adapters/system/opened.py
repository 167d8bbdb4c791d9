"""The files of a checkout that were opened while something ran, as the kernel tells (inotify).

Opening cannot be hidden by who opens: a file that changes what a command does is opened, by code that was there before,
before anything in it can run.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from perdure.adapters.system.threads import in_thread

_OPEN, _MOVED_FROM, _OVERFLOW, _IS_DIRECTORY = 0x20, 0x40, 0x4000, 0x40000000
_ONLY_DIRECTORY, _NO_FOLLOW = 0x01000000, 0x02000000
_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 18


@dataclass
class OpenedFiles:
    """Relative paths: files that were opened or moved away, directories that were listed.

    all_seen  False when the kernel could not watch everything or lost events: then anything may have been opened
    """

    files: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)
    all_seen: bool = True


@asynccontextmanager
async def watched(tree: Path, directories: Iterable[str]) -> AsyncIterator[OpenedFiles]:
    """Watch these directories of a tree (`""` is its top), not what is below them, while the block runs.

    Events are read on the running event loop; what happened before the end of the block is in the answer.
    """
    opened, loop = OpenedFiles(), asyncio.get_running_loop()
    descriptor = _inotify()  # not in a thread: cancelled then, nobody would know the descriptor
    if descriptor < 0:
        opened.all_seen = False
        yield opened
        return
    try:
        names = await in_thread(_watch, descriptor, tree, directories)
        opened.all_seen = names is not None
        if names is None:
            yield opened
            return
        loop.add_reader(descriptor, _read, descriptor, names, opened)
        try:
            yield opened
        finally:
            loop.remove_reader(descriptor)
            while _read(descriptor, names, opened):
                pass
    finally:
        await in_thread(os.close, descriptor)  # the kernel takes some microseconds for each watch


def _inotify() -> int:
    """A descriptor; -1 where the kernel does not watch, or not as much."""
    if sys.platform != "linux":
        return -1
    return int(ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def _watch(descriptor: int, tree: Path, directories: Iterable[str]) -> dict[int, str] | None:
    """By watch, its directory; None where the kernel does not watch as much."""
    libc = ctypes.CDLL(None)
    names: dict[int, str] = {}
    for name in directories:
        mask = _OPEN | _MOVED_FROM | _ONLY_DIRECTORY | _NO_FOLLOW
        watch = libc.inotify_add_watch(descriptor, os.fsencode(tree / name), mask)
        if watch < 0:
            return None
        names[watch] = name
    return names


def _read(descriptor: int, names: dict[int, str], opened: OpenedFiles) -> bool:
    """Take what is there; False when there is nothing (more)."""
    try:
        data = os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return False
    _take(data, names, opened)
    return bool(data)


def _take(data: bytes, names: dict[int, str], opened: OpenedFiles) -> None:
    at = 0
    while at < len(data):
        watch, mask, _, length = _EVENT.unpack_from(data, at)
        name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
        at += _EVENT.size + length
        if mask & _OVERFLOW:
            opened.all_seen = False
        elif watch in names and not name:
            opened.directories.add(names[watch])
        elif watch in names and not mask & _IS_DIRECTORY:
            opened.files.add(f"{names[watch]}/{name}".lstrip("/"))
