"""An agent's memory: the session files in its home, as bytes that a checkpoint can name."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

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
            data = file.read_bytes()
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
    text = b"".join(file.read_bytes() for file in _files(home, globs))
    return all(text.count(one.encode()) >= _CALL_AND_RESULT for one in ids)


_CALL_AND_RESULT = 2


def _files(home: Path, globs: Sequence[str]) -> list[Path]:
    found = {file for one in globs for file in home.glob(one)}
    inside = home.resolve()
    return sorted(file for file in found if file.is_file() and file.resolve() == inside / file.relative_to(home))
