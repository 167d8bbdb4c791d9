"""Looks for secrets where none may be: in processes while something runs, in files, git objects and logs afterwards."""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

USERNAMES = ("x-access-token", "perdure-bot")
"""Whom Basic authentication may name beside a token."""

_EVERY_S = 0.003
_WRITES_DOWN = """#!/bin/sh
cat /proc/$$/environ /proc/$$/cmdline >>{record}.$$
exec {real} "$@"
"""
_ALIGNMENTS = 3  # of base64 inside longer base64


@dataclass(frozen=True)
class Hit:
    """`where` names a process or file, `form` how the secret was written there. The secret itself is not told."""

    where: str
    form: str


@dataclass
class SecretWatch:
    """Watches the descendants of `roots` (this process) from `with` to its end, then `scan`s what is left behind.

    secrets    what may not be found: as it is, URL-quoted, or in base64, alone or as `name:secret`
    leave_out  pids whose own environment was given the secret: a worker. Its children are looked at
    carriers   likewise, by a word in their command line: "worker.py"
    found      hits, each once; empty is good. `seen`: names of processes that were looked at, to know that some were
    """

    secrets: Collection[str]
    roots: Collection[int] = field(default_factory=lambda: (os.getpid(),))
    leave_out: Collection[int] = ()
    carriers: tuple[str, ...] = ()
    found: list[Hit] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        assert all(len(secret) >= 8 for secret in self.secrets), "a short secret is found by chance"
        self._needles = [(form, needle) for secret in self.secrets for form, needle in _forms(secret)]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, name="secret-watch", daemon=True)
        self._known: set[tuple[int, str]] = set()
        self._sessions: set[int] = set()
        self._carriers: set[bytes] = {b""}  # and what is dying: it has no environment either

    def __enter__(self) -> SecretWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(30)

    def scan(self, *places: Path) -> list[Hit]:
        """Look through files and directories, into git objects, databases and gzip files; returns all hits so far."""
        for place in places:
            for path in [place, *place.rglob("*")] if place.is_dir() else [place]:
                if path.is_symlink():
                    self.scan_bytes(f"{path} (link)", os.fsencode(os.readlink(path)))
                self.scan_bytes(f"{path} (name)", os.fsencode(path.name))
                if path.is_file() and not path.is_symlink():
                    self._scan_file(path)
                elif path.name == "objects" and (path / "pack").is_dir():
                    for name, content in _objects(path):
                        self.scan_bytes(f"{path} {name}", content)
        return self.found

    def scan_bytes(self, where: str, content: bytes) -> None:
        """Look through something that was said or written; `where` is what a hit will be called."""
        for form, needle in self._needles:
            if needle in content and (hit := Hit(where, form)) not in self.found:
                self.found.append(hit)

    def _scan_file(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError:  # removed while we looked
            return
        self.scan_bytes(str(path), content)
        if content.startswith(b"\x1f\x8b"):
            with contextlib.suppress(OSError, EOFError, zlib.error):
                self.scan_bytes(f"{path} (unpacked)", gzip.decompress(content))
        if content.startswith(b"SQLite format 3\0"):
            for table, value in _values(path):
                self.scan_bytes(f"{path} table {table}", value)

    def _look(self) -> None:
        while not self._end.is_set():
            for pid, name in self._processes():
                with contextlib.suppress(OSError):  # it has ended, or is somebody else's
                    self._look_at(pid, name)
            time.sleep(_EVERY_S)

    def _look_at(self, pid: int, name: str) -> None:
        self.seen.add(name)
        for left_out in self.leave_out:
            with contextlib.suppress(OSError):
                self._carriers.add(_read(left_out, "cmdline"))
        # Twice: a process that has not begun its own program shows its parent's, and may begin it between two looks.
        before, environ, after = (_read(pid, what) for what in ("cmdline", "environ", "cmdline"))
        self.scan_bytes(f"command line of {name}", before + after)
        if not self._carries(before) and not self._carries(after):
            self.scan_bytes(f"environment of {name}", environ)

    def _carries(self, line: bytes) -> bool:
        return line in self._carriers or any(word.encode() in line for word in self.carriers)

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Descendants, and what descends from none any more but was known as one or shares a session with one."""
        stats = dict(_stats())
        wanted = set(self.roots)
        grew = True
        while grew:
            grew = False
            for pid, (_name, parent, session, born) in stats.items():
                ours = parent in wanted or (pid, born) in self._known or session in self._sessions
                if ours and pid not in wanted:
                    wanted.add(pid)
                    self._known.add((pid, born))
                    grew = True
                    if session == pid:  # one of its own: not the terminal's, which others share
                        self._sessions.add(session)
        for pid in wanted - set(self.roots):
            yield pid, stats[pid][0]


def recording(place: Path, programs: Iterable[str]) -> Path:
    """A directory for the front of PATH. Each program in it is the real one, which first writes down its environment
    and command line in `place`: what a look every few milliseconds may miss is there in every run."""
    shims = place / "recorded"
    shims.mkdir(parents=True)
    for program in programs:
        real = shutil.which(program)
        assert real is not None, program
        (shims / program).write_text(_WRITES_DOWN.format(record=place / program, real=real))
        (shims / program).chmod(0o755)
    return shims


def _read(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()


def _stats() -> Iterator[tuple[int, tuple[str, int, int, str]]]:
    """pid → (name, parent, session, when it was born), of every process."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                head, _, rest = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")
                fields = rest.split()
                yield int(entry), (head.partition("(")[2], int(fields[1]), int(fields[3]), fields[19])


def _forms(secret: str) -> Iterator[tuple[str, bytes]]:
    yield "as it is", secret.encode()
    if quote(secret, safe="") != secret:
        yield "URL-quoted", quote(secret, safe="").encode()
    for text in (secret, *(f"{name}:{secret}" for name in USERNAMES)):
        for shift in range(_ALIGNMENTS):
            packed = base64.b64encode(b"\0" * shift + text.encode())
            # Without the first and last characters, which also hold bits of what stands around the secret.
            yield "base64", packed[(shift * 8 + 5) // 6 : (shift + len(text.encode())) * 8 // 6]


def _objects(objects: Path) -> Iterator[tuple[str, bytes]]:
    """Every object of an object directory, loose or packed, reachable or not: (kind and hash, content)."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", "init", "-q", "--bare", scratch], env=env, check=True, timeout=60)
        env |= {"GIT_DIR": scratch, "GIT_OBJECT_DIRECTORY": str(objects)}
        command = ["git", "cat-file", "--batch-all-objects", "--batch", "--buffer", "--unordered"]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            for line in process.stdout:
                sha, kind, *size = line.split()
                if size:
                    yield f"{kind.decode()} {sha.decode()[:12]}", process.stdout.read(int(size[0]) + 1)


def _values(database: Path) -> Iterator[tuple[str, bytes]]:
    """Every value of a SQLite database: in the file a long one lies in pieces."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "copy.db")
        for end in ("", "-wal"):
            if (part := Path(f"{database}{end}")).exists():
                shutil.copy(part, f"{copy}{end}")
        with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(copy)) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                quoted = table.replace('"', '""')
                for row in connection.execute(f'SELECT * FROM "{quoted}"'):
                    yield from ((table, value) for value in map(_bytes, row) if value)


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else b""


def hits(found: Iterable[Hit]) -> str:
    """For an assertion's message."""
    return "\n".join(f"{hit.where}: {hit.form}" for hit in found)
