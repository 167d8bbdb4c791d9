"""The files of a checkout that were opened while something ran, as the kernel reports them (inotify). Used for the
commands of setup.

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
    """The files that were opened or moved away, and the directories that were listed, by relative path.

    all_seen  False when the kernel could not watch everything or lost events: then anything may have been opened
    """

    files: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)
    all_seen: bool = True


@asynccontextmanager
async def watch_opened_files(tree: Path, directories: Iterable[str]) -> AsyncIterator[OpenedFiles]:
    """Watch these directories of a tree while the block runs, and yield what is opened in them, added as it is seen.

    directories  relative paths, `""` for the top; what is below them is not watched

    Events are read on the running event loop; those from before the end of the block are complete once it has ended.
    Where the kernel cannot watch as much, `all_seen` is False.
    """
    opened, loop = OpenedFiles(), asyncio.get_running_loop()
    descriptor = _open_inotify()  # Not in a thread: if it were cancelled there, nobody would know the descriptor.
    if descriptor < 0:
        opened.all_seen = False
        yield opened
        return
    try:
        names = await in_thread(_add_watches, descriptor, tree, directories)
        opened.all_seen = names is not None
        if names is None:
            yield opened
            return
        loop.add_reader(descriptor, _read_events, descriptor, names, opened)
        try:
            yield opened
        finally:
            loop.remove_reader(descriptor)
            while _read_events(descriptor, names, opened):
                pass
    finally:
        await in_thread(os.close, descriptor)  # the kernel takes some microseconds for each watch


def _open_inotify() -> int:
    """Open a descriptor for file events; return -1 where the kernel has none to give."""
    if sys.platform != "linux":
        return -1
    return int(ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def _add_watches(descriptor: int, tree: Path, directories: Iterable[str]) -> dict[int, str] | None:
    """Add a watch for each directory to the descriptor; return the directory by watch, or None where the kernel refuses
    one."""
    libc = ctypes.CDLL(None)
    directory_by_watch: dict[int, str] = {}
    for name in directories:
        mask = _OPEN | _MOVED_FROM | _ONLY_DIRECTORY | _NO_FOLLOW
        watch = libc.inotify_add_watch(descriptor, os.fsencode(tree / name), mask)
        if watch < 0:
            return None
        directory_by_watch[watch] = name
    return directory_by_watch


def _read_events(descriptor: int, directory_by_watch: dict[int, str], opened: OpenedFiles) -> bool:
    """Read the events that have come and add them to `opened`; return False where there are no more."""
    try:
        data = os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return False
    _record_events(data, directory_by_watch, opened)
    return bool(data)


def _record_events(data: bytes, directory_by_watch: dict[int, str], opened: OpenedFiles) -> None:
    """Record events, as the kernel writes them, in `opened`: files and directories, or that events were lost."""
    offset = 0
    while offset < len(data):
        watch, mask, _, length = _EVENT.unpack_from(data, offset)
        name = os.fsdecode(data[offset + _EVENT.size : offset + _EVENT.size + length].rstrip(b"\0"))
        offset += _EVENT.size + length
        if mask & _OVERFLOW:
            opened.all_seen = False
        elif watch in directory_by_watch and not name:
            opened.directories.add(directory_by_watch[watch])
        elif watch in directory_by_watch and not mask & _IS_DIRECTORY:
            opened.files.add(f"{directory_by_watch[watch]}/{name}".lstrip("/"))
