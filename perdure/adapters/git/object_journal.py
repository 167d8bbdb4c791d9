"""The journal of a vault's objects, by which those that belong together survive a power cut with one sync: they are
appended to it first, and their own files are written unsynced. Used by `git.objects` and `git.vault` alone.

After a power cut, whoever opens the vault first writes the files again. When a delivery ends and the journal is large,
all files are synced and it is removed.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import tempfile
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from perdure.adapters.system.files import (
    append_json_line,
    boot_id,
    hold_timed_lock,
    parse_json_lines,
    sync_all,
    sync_directory,
    write_whole,
)

_JOURNAL = "perdure-objects.jsonl"

JOURNAL_BYTES = 1024**2
"""The most that a journal may have at the end of a delivery, some ten deliveries: syncing all of a disk that others
write to takes seconds."""


@contextmanager
def journal_objects(repository: Path, objects: Mapping[str, bytes]) -> Iterator[None]:
    """Append objects (compressed, by hash) to the journal, synced, and run the block, which writes their files; the
    journal is not removed meanwhile. Raises OSError where they do not fit on the disk."""
    path = repository / _JOURNAL
    encoded = {sha: base64.b64encode(data).decode() for sha, data in objects.items()}
    with _hold_journal(path) as held:
        if not os.fstat(held).st_size:  # a new one, whose name has to last, too
            sync_directory(repository)
        append_json_line(path, {"objects": encoded}, sync=True)
        yield


@contextmanager
def _hold_journal(path: Path) -> Iterator[int]:
    """Hold the journal, which is made where it is missing, so that nobody removes it; yield its descriptor."""
    while True:
        with open(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if _is_same_file(path, file.fileno()):  # not one that was removed meanwhile
                yield file.fileno()
                return


def _is_same_file(path: Path, descriptor: int) -> bool:
    """Return True where the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def write_object_file(objects: Path, sha: str, data: bytes, *, sync: bool) -> None:
    """Write a loose object's file, whole or not at all, and make its directory. `sync`: its content is synced, not its
    name."""
    directory = objects / sha[:2]
    while True:
        directory.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # whoever packs removes empty directories
            handle, temporary = tempfile.mkstemp(prefix="tmp_obj_", dir=directory)  # git's own name for unfinished ones
            break
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o444)
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, directory / sha[2:])
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@lru_cache(1024)
def restore_objects(repository: Path) -> None:
    """Write the files of journaled objects that a power cut has damaged or taken, where nobody has since this machine
    started. Once a process is enough. Waits for others who do it."""
    mark = repository / "perdure-boot"
    with hold_timed_lock(repository / "perdure-objects.lock"):
        if mark.exists() and mark.read_text() == boot_id():
            return
        for journal in repository.glob(f"{_JOURNAL}*"):
            for sha, data in _read_objects(journal.read_bytes()):
                path = repository / "objects" / sha[:2] / sha[2:]
                if not path.is_file() or not _is_object(path.read_bytes(), sha):
                    write_object_file(repository / "objects", sha, data, sync=False)
        write_whole(mark, boot_id().encode(), sync=False)


def _read_objects(journal: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (hash, compressed content) of each object that is whole in a journal; what is torn or damaged is left
    out."""
    for line in parse_json_lines(journal):
        objects = line.get("objects")
        for sha, encoded in objects.items() if isinstance(objects, dict) else ():
            with suppress(TypeError, ValueError):  # it is no base64
                if _is_object(data := base64.b64decode(encoded), sha):
                    yield sha, data


def _is_object(compressed: bytes, sha: str) -> bool:
    """Return True where this is the content of the loose object of that hash."""
    try:
        return hashlib.sha1(zlib.decompress(compressed), usedforsecurity=False).hexdigest() == sha
    except zlib.error:
        return False


def settle_objects(repository: Path, most_bytes: int = JOURNAL_BYTES) -> None:
    """Sync the files of all journaled objects, with the file system that they are on, and remove a journal of more than
    `most_bytes`; does nothing where it is smaller, or somebody writes to it. Raises OSError when the system cannot
    sync."""
    path = repository / _JOURNAL
    with suppress(FileNotFoundError, BlockingIOError), open(path, "rb") as held:
        if os.fstat(held.fileno()).st_size <= most_bytes:
            return
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_same_file(path, held.fileno()):  # not one that somebody has begun meanwhile
            os.replace(path, f"{path}.{uuid.uuid4().hex[:8]}")
    for journal in repository.glob(f"{_JOURNAL}.*"):
        sync_all(repository)
        journal.unlink(missing_ok=True)
