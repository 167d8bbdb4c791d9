"""An agent's memory: the session files in its home, as bytes that a checkpoint can name."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from perdure.adapters.system.files import read_plain
from perdure.models.errors import WorkspaceLost

MEMORY_BYTES = 64 * 1024**2
"""Of all session files of one step: a long session has a few; beyond that it is no session."""


def gather(home: Path, globs: Sequence[str]) -> bytes:
    """The session files of a home; equal files give equal bytes. Links are left where they are.

    WorkspaceLost when they are too large to be kept.
    """
    kept = io.BytesIO()
    with tarfile.open(fileobj=kept, mode="w") as archive:
        for file in _files(home, globs):
            data = read_inside(home, file.relative_to(home), MEMORY_BYTES)
            if data is None:
                continue
            entry = tarfile.TarInfo(str(file.relative_to(home)))
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
            if kept.tell() > MEMORY_BYTES:
                raise WorkspaceLost(f"the agent's session is larger than {MEMORY_BYTES // 1024**2} MiB")
    return kept.getvalue()


def put_back(home: Path, memory: bytes) -> None:
    """The files of `gather` in another home."""
    with tarfile.open(fileobj=io.BytesIO(memory)) as archive:
        archive.extractall(home, filter="data")


def holds(home: Path, globs: Sequence[str], ids: Iterable[str]) -> bool:
    """True once the results of all these calls stand in the session: each id once as a call and once with its result.

    Agents write a little later than they ask: what is not there yet would be forgotten.
    """
    files = (read_inside(home, file.relative_to(home), MEMORY_BYTES) for file in _files(home, globs))
    text = b"".join(data for data in files if data is not None)
    return all(text.count(one.encode()) >= _CALL_AND_RESULT for one in ids)


_CALL_AND_RESULT = 2


def read_inside(home: Path, name: Path, most: int) -> bytes | None:
    """The first bytes of a file in an agent's home, one more than `most` at most; None where it is no plain file there.

    The agent may live, and put a link in the place of any part of the path while it is walked: none is followed.
    """
    at = os.open(home, _INTO)
    try:
        for part in name.parts[:-1]:
            inner = os.open(part, _INTO, dir_fd=at)
            os.close(at)
            at = inner
        return read_plain(name.name, most, at)
    except OSError:
        return None
    finally:
        os.close(at)


_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _files(home: Path, globs: Sequence[str]) -> list[Path]:
    # Before Python 3.13 a last `**` finds directories alone.
    return sorted({file for one in globs for file in home.glob(f"{one}/*" if one.endswith("**") else one)})
