"""An agent's memory: the session files in its home, as bytes that a checkpoint can name."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from perdure.adapters.system.files import read_regular_file
from perdure.models.errors import WorkspaceLost

MEMORY_BYTES = 64 * 1024**2
"""The most bytes of all session files of one step: a long session has a few; beyond that it is no session."""


def pack_session_files(home: Path, globs: Sequence[str]) -> bytes:
    """Return the session files of a home, those that match the globs, as an archive; equal files give equal bytes.
    Links are left out. Raises WorkspaceLost when the files are too large to be kept."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in _session_files(home, globs):
            data = read_home_file(home, file.relative_to(home), MEMORY_BYTES)
            if data is None:
                continue
            entry = tarfile.TarInfo(str(file.relative_to(home)))
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
            if buffer.tell() > MEMORY_BYTES:
                raise WorkspaceLost(f"the agent's session is larger than {MEMORY_BYTES // 1024**2} MiB")
    return buffer.getvalue()


def unpack_session_files(home: Path, memory: bytes) -> None:
    """Write the files of an archive of `pack_session_files` into another home."""
    with tarfile.open(fileobj=io.BytesIO(memory)) as archive:
        archive.extractall(home, filter="data")


def has_all_results(home: Path, globs: Sequence[str], ids: Iterable[str]) -> bool:
    """Return whether the results of all these calls stand in the session files: each id once as a call and once with
    its result.

    Agents write a little later than they ask: what is not there yet would be forgotten.
    """
    files = (read_home_file(home, file.relative_to(home), MEMORY_BYTES) for file in _session_files(home, globs))
    text = b"".join(data for data in files if data is not None)
    return all(text.count(call_id.encode()) >= _CALL_AND_RESULT for call_id in ids)


_CALL_AND_RESULT = 2


def read_home_file(home: Path, name: Path, max_bytes: int) -> bytes | None:
    """Read the first bytes of a file in an agent's home, one more than `max_bytes` at most; None where it is no plain
    file there.

    The agent may live, and put a link in the place of any part of the path meanwhile: none is followed.
    """
    directory_fd = os.open(home, _OPEN_DIRECTORY)
    try:
        for part in name.parts[:-1]:
            child_fd = os.open(part, _OPEN_DIRECTORY, dir_fd=directory_fd)
            os.close(directory_fd)
            directory_fd = child_fd
        return read_regular_file(name.name, max_bytes, directory_fd)
    except OSError:
        return None
    finally:
        os.close(directory_fd)


_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _session_files(home: Path, globs: Sequence[str]) -> list[Path]:
    """Return the paths below a home that match the globs, sorted; a last `**` stands for all below."""
    # Before Python 3.13 a last `**` finds directories alone.
    return sorted(
        {file for pattern in globs for file in home.glob(f"{pattern}/*" if pattern.endswith("**") else pattern)}
    )
