"""Git objects read and written without a git process for each: loose ones and refs directly from and to the disk,
synced, all others through one process, however many are read. Used by other adapters, most of it through
`git.repository` and `git.vault`.

Nearly all that is read from a vault was written into it as loose objects. What LooseObjects answers about those is what
git would answer. Its None says only that git has to be asked: the object is packed, missing, damaged or large, or the
ref is packed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import select
import subprocess
import time
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from perdure.adapters.git.command import IDENTITY, Git, GitError
from perdure.adapters.git.object_journal import journal_objects, write_object_file
from perdure.adapters.system.files import sync_directory
from perdure.models.limits import GIT_TIMEOUT_S

FILE, TREE = "100644", "40000"


@dataclass(frozen=True)
class TreeEntry:
    """An entry of a tree object."""

    name: str
    sha: str
    mode: str = FILE


_MOST_DURABLE = 10_000
_durable = set[Path]()
"""Objects that this process has made durable, at most about _MOST_DURABLE. Whether one is there is always asked
of the disk."""


JOURNALED_BYTES = 1024**2
"""The most bytes of objects, compressed, that are written twice, into a journal and their files, to be synced once."""


@dataclass(frozen=True)
class ObjectStore:
    """A writer of loose objects into an `objects` directory. Each object is durable when the method returns, or when
    the block of `write_together` ends.

    journaled  the repository has a journal, which is restored after a power cut (see git.object_journal)
    together   compressed objects by hash, written at the end of such a block
    """

    path: Path
    journaled: bool = False
    together: dict[str, bytes] | None = None

    @contextlib.contextmanager
    def write_together(self) -> Iterator[ObjectStore]:
        """Yield a store for objects that belong together: they are written and made durable at the end of the block.
        Nothing may read or refer to them before; where the block raises, none is written."""
        store = replace(self, together={})
        yield store
        self._write_files(store.together or {})

    def write_blob(self, data: bytes, existing: Container[str] = ()) -> str:
        """Write a blob and return its hash. Blobs among `existing` are in the repository for certain, packed ones too,
        and are not written."""
        return self._write_object("blob", data, existing)

    def write_tree(self, entries: Iterable[TreeEntry]) -> str:
        """Write a tree and return its hash. The entries need no order: git's own (a directory sorts as if it ended in
        `/`) is applied."""
        ordered = sorted(entries, key=lambda e: os.fsencode(e.name + ("/" if e.mode == TREE else "")))
        lines = (f"{e.mode} ".encode() + os.fsencode(e.name) + b"\0" + bytes.fromhex(e.sha) for e in ordered)
        return self._write_object("tree", b"".join(lines))

    def write_commit(self, tree: str, parents: Iterable[str], message: str, *, timestamp: int | None = None) -> str:
        """Write a commit by the engine's identity and return its hash. `timestamp`, in seconds since 1970, is for a
        commit that must not depend on when it is made; None: now."""
        seconds = int(time.time()) if timestamp is None else timestamp
        who = f"{IDENTITY['GIT_AUTHOR_NAME']} <{IDENTITY['GIT_AUTHOR_EMAIL']}> {seconds} +0000"
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}"]
        return self._write_object("commit", ("\n".join(lines) + f"\n\n{message.strip()}\n").encode(errors="replace"))

    def write_raw_commit(self, data: bytes) -> str:
        """Write a commit given as the text of its object, headers and all, and return its hash."""
        return self._write_object("commit", data)

    def _write_object(self, kind: str, data: bytes, existing: Container[str] = ()) -> str:
        """Write an object as a file under its hash, or keep it for the end of the block, and return the hash. Nothing
        is written when it is among `existing`, or its file is there and durable; that file gets a new time, so that
        pruning does not take it for old."""
        stored = f"{kind} {len(data)}".encode() + b"\0" + data
        sha = hashlib.sha1(stored, usedforsecurity=False).hexdigest()
        target = self.path / sha[:2] / sha[2:]
        if sha in existing:
            return sha
        is_there = _has_content(target)
        if is_there:
            os.utime(target)  # somebody is about to refer to it: not to be dropped for being old
        if not is_there or target not in _durable:  # whoever wrote it may have died before it was durable
            compressed = zlib.compress(stored, 1)
            if self.together is None:
                self._write_files({sha: compressed})
            else:
                self.together[sha] = compressed
        return sha

    def _write_files(self, objects: Mapping[str, bytes]) -> None:
        """Write these compressed objects, those whose files are there without their files, and make all of them
        durable: by the journal where there is one, large ones and others by their own files and directories."""
        if not objects:
            return
        is_journaled = self.journaled and sum(map(len, objects.values())) <= JOURNALED_BYTES
        with journal_objects(self.path.parent, objects) if is_journaled else contextlib.nullcontext():
            for sha, compressed in objects.items():
                if not _has_content(self.path / sha[:2] / sha[2:]):
                    write_object_file(self.path, sha, compressed, sync=not is_journaled)
        files = {self.path / sha[:2] / sha[2:] for sha in objects}
        if not is_journaled:
            for directory in (*{file.parent for file in files}, self.path):
                sync_directory(directory)
        if len(_durable) > _MOST_DURABLE:
            _durable.clear()
        _durable.update(files)


def _has_content(path: Path) -> bool:
    """Return True where a file is there and not empty: a power cut can leave an empty one under a good name."""
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


_COMMAND = ("cat-file", "--batch")
_NAMES_AT_ONCE = (
    60  # names, 65 bytes each at most: what the smallest pipe takes, so that asking never waits for an answer
)
_CHUNK = 1 << 20


class ObjectReader:
    """A reader of objects by their full names, until it is closed or garbage-collected. Not for several threads.

    The first reading starts the process; each one after that costs only what it reads. After `close` the next one
    starts it anew.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._wrapper: Any = None
        self._buffer = bytearray()

    def read_objects(
        self, names: Sequence[str], max_bytes: int, remaining_bytes: int
    ) -> Iterator[tuple[str, bytes | None]]:
        """Yield each name with the content of its object; None for one that is missing, larger than `max_bytes`, or
        larger than what is left of `remaining_bytes` for all of them. What is too large is not held in memory.

        Raises GitError when git ends, or sends nothing for GIT_TIMEOUT_S. An error, or a caller that stops half-way,
        ends the process.
        """
        try:
            for start in range(0, len(names), _NAMES_AT_ONCE):
                batch = names[start : start + _NAMES_AT_ONCE]
                self._send_names(batch)
                for name in batch:
                    data = self._receive_object(min(max_bytes, remaining_bytes))
                    remaining_bytes -= len(data or b"")
                    yield name, data
        except BaseException:  # half an answer in the pipe: nobody may take it for the next one
            self.close()
            raise

    def close(self) -> None:
        """Kill the git process, if there is one, and forget what it has sent."""
        wrapper, self._wrapper = self._wrapper, None
        self._buffer.clear()
        if wrapper is not None:
            process = cast("subprocess.Popen[bytes]", wrapper.proc)
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.communicate()

    def _send_names(self, names: Sequence[str]) -> None:
        """Send object names to git, which is started if it is not running. Raises GitError when it has ended."""
        if self._wrapper is None:
            self._wrapper = self._git.start_process(*_COMMAND, settings=("core.bigFileThreshold=1m",))
        try:
            os.write(self._wrapper.proc.stdin.fileno(), "".join(f"{name}\n" for name in names).encode())
        except BrokenPipeError:
            raise self._kill_for_error() from None

    def _receive_object(self, max_bytes: int) -> bytes | None:
        """Return the content of the next object that git sends; None when git reports it as missing, or when it is
        larger than `max_bytes` and therefore read past. Raises GitError when git ends or falls silent."""
        head = self._receive_line().split()
        if len(head) != 3 or not head[2].isdigit():  # `NAME missing`
            return None
        length = int(head[2])
        data = None
        if length <= max_bytes:
            data = self._receive_bytes(length)
        else:
            self._skip_bytes(length)
        self._skip_bytes(1)
        return data

    def _receive_line(self) -> bytes:
        """Return the next line of git's output, without its newline; waits for it. Raises GitError when git ends or
        falls silent."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._fill_buffer()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _receive_bytes(self, length: int) -> bytes:
        """Return the next `length` bytes of git's output; waits for them. Raises GitError when git ends or falls
        silent."""
        while len(self._buffer) < length:
            self._fill_buffer()
        data = bytes(self._buffer[:length])
        del self._buffer[:length]
        return data

    def _skip_bytes(self, length: int) -> None:
        """Read past the next `length` bytes of git's output without holding all of them in memory. Raises GitError when
        git ends or falls silent."""
        while length > len(self._buffer):
            length -= len(self._buffer)
            self._buffer.clear()
            self._fill_buffer()
        del self._buffer[:length]

    def _fill_buffer(self) -> None:
        """Read more of git's output into the buffer. Raises GitError when git has ended, or sends nothing for
        GIT_TIMEOUT_S."""
        output_fd = self._wrapper.proc.stdout.fileno()
        poll = select.poll()
        poll.register(output_fd, select.POLLIN)
        if not poll.poll(GIT_TIMEOUT_S * 1000):
            raise GitError(_COMMAND, None, f"nothing for {GIT_TIMEOUT_S:g} s")
        data = os.read(output_fd, _CHUNK)
        if not data:
            raise self._kill_for_error()
        self._buffer += data

    def _kill_for_error(self) -> GitError:
        """Kill git and return the GitError that tells how it ended."""
        process = cast("subprocess.Popen[bytes]", self._wrapper.proc)
        process.kill()
        _, stderr = process.communicate()
        return GitError(_COMMAND, process.returncode, stderr.decode(errors="replace"))


LOOSE_OBJECT_BYTES = 8 * 1024**2
"""The largest object outside packs that is read without git. Larger ones git checks piece by piece."""

LOOSE_WALK = 200
"""The most commits that are followed from a delivery's head to its base without git. A delivery makes one a step."""


_SHA = re.compile(r"[0-9a-f]{40}")
_REF = re.compile(r"refs(?:/[A-Za-z0-9_~=+-][A-Za-z0-9_.~=+-]*)+")
_HEAD_BYTES = 64
_MODE_MODULE = "160000"


def is_full_hash(name: str) -> bool:
    """Return True for an object's name written out in full: 40 hex digits."""
    return _SHA.fullmatch(name) is not None


@dataclass(frozen=True)
class LooseObjects:
    """A reader of a bare repository's files. It caches nothing: what is damaged or removed is noticed at the next
    reading."""

    path: Path

    def read_ref(self, name: str) -> str | None:
        """Return the object that a ref points at; None where no file of the ref holds a full hash (it is packed,
        missing or points at another ref), so that git has to be asked."""
        if not _REF.fullmatch(name) or ".." in name:
            return None
        try:
            content = (self.path / name).read_text().removesuffix("\n")
        except (OSError, UnicodeDecodeError):
            return None
        return content if is_full_hash(content) else None

    def object_size(self, sha: str) -> int | None:
        """Return the number of bytes of an object's content, from its header; None where it is no loose object that can
        be read (packed, missing, damaged), so that git has to be asked."""
        try:
            with self._open_object(sha) as file:
                head = zlib.decompressobj().decompress(file.read(_HEAD_BYTES), _HEAD_BYTES)
        except (OSError, zlib.error):
            return None
        kind, _, size = head.partition(b"\0")[0].partition(b" ")
        return int(size) if kind and size.isdigit() else None

    def read_object(self, sha: str) -> tuple[str, bytes] | None:
        """Return an object's (kind, content). None where it is no loose object of at most LOOSE_OBJECT_BYTES, or its
        content does not have its hash, so that git has to be asked."""
        try:
            with self._open_object(sha) as file:
                packed = file.read(LOOSE_OBJECT_BYTES)
            unpacking = zlib.decompressobj()
            stored = unpacking.decompress(packed, LOOSE_OBJECT_BYTES)
        except (OSError, zlib.error):
            return None
        if not unpacking.eof or hashlib.sha1(stored, usedforsecurity=False).hexdigest() != sha:
            return None
        head, _, data = stored.partition(b"\0")
        return head.partition(b" ")[0].decode(errors="replace"), data

    def content(self, kind: str, sha: str) -> bytes | None:
        """Return the content of an object of this kind; None for one of another kind, and when git has to be asked."""
        kind_and_content = self.read_object(sha)
        return kind_and_content[1] if kind_and_content is not None and kind_and_content[0] == kind else None

    def tree_of(self, name: str) -> str | None:
        """Return the tree of a commit, or the tree itself, by its full name; None where it is neither, or no loose
        object that can be read, so that git has to be asked."""
        kind_and_content = self.read_object(name)
        if kind_and_content is None:
            return None
        if kind_and_content[0] == "tree":
            return name
        tree = kind_and_content[1][5:45].decode(errors="replace") if kind_and_content[0] == "commit" else ""
        return tree if is_full_hash(tree) else None

    def parents_of(self, commit: str) -> list[str] | None:
        """Return the parents of a commit, in order, none for a first one; None where it is no commit, or no loose
        object that can be read, so that git has to be asked."""
        data = self.content("commit", commit)
        if data is None:
            return None
        head = data.partition(b"\n\n")[0].decode(errors="replace")
        return [line[7:] for line in head.splitlines() if line.startswith("parent ")]

    def is_on_first_parent_path(self, newer: str, older: str) -> bool:
        """Return True when `older` is on the first-parent path below `newer`, at most LOOSE_WALK commits away. False
        says nothing: git has to be asked."""
        for _ in range(LOOSE_WALK):
            parents = self.parents_of(newer)
            if not parents:
                return False
            newer = parents[0]
            if newer == older:
                return True
        return False

    def tree_entries(self, tree: str) -> dict[str, tuple[str, str]] | None:
        """Return name → (mode, hash) of the entries of a tree, in git's order; None where it is no tree, malformed, or
        no loose object that can be read, so that git has to be asked."""
        data, position = self.content("tree", tree), 0
        entries: dict[str, tuple[str, str]] = {}
        if data is None:
            return None
        try:
            while position < len(data):
                space, end = data.index(b" ", position), data.index(b"\0", position)
                entry = (data[position:space].decode(), data[end + 1 : end + 21].hex())
                entries.setdefault(
                    os.fsdecode(data[space + 1 : end]), entry
                )  # of two with one name git takes the first
                position = end + 21
        except ValueError:  # a stranger's, malformed: git says what is wrong with it
            return None
        return entries

    def resolve_path(self, name: str) -> str | None:
        """Return the hash of the object that `<commit or tree>:<path>` names. None for a submodule, for a path that
        does not exist, and where one of the objects on the way is no loose one that can be read, so that git has to be
        asked."""
        top, _, path = name.partition(":")
        mode, sha = "40000", self.tree_of(top)
        for part in path.split("/"):
            if sha is None or mode != "40000":
                return None
            mode, sha = (self.tree_entries(sha) or {}).get(part, ("", None))
        return None if mode == _MODE_MODULE else sha

    def _open_object(self, sha: str) -> BinaryIO:
        """Open the file of a loose object. Raises FileNotFoundError, also for a name that is not written out in
        full."""
        if not is_full_hash(sha):
            raise FileNotFoundError(sha)
        return (self.path / "objects" / sha[:2] / sha[2:]).open("rb")
