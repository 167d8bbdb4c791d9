"""The database before a server opens it: damage, versions, copies."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest

from perdure.adapters.system.files import is_locked
from perdure.adapters.system.home import Home
from perdure.local import server
from perdure.local.places import Places
from perdure.local.server import ensure_server
from perdure.models.errors import BadInput


@pytest.fixture
def places(home: Home) -> Places:
    home.root.mkdir()
    return Places(home)


def fill(places: Places, rows: int = 1000) -> None:
    with closing(sqlite3.connect(places.database)) as connection, connection:
        connection.execute("CREATE TABLE t (x TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 200,)] * rows)


async def test_a_file_that_is_no_database_is_refused_with_the_way_out_and_what_is_lost(home: Home) -> None:
    home.root.mkdir()
    places = Places(home)
    places.database.write_bytes(os.urandom(8192))
    before = sorted(home.root.iterdir())
    with pytest.raises(BadInput) as error:
        await ensure_server(home, say=lambda _: None)
    assert "damaged" in error.value.what
    assert "mv " in error.value.fix
    assert "lost are the list and the history" in error.value.fix
    assert not is_locked(places.server_lock)
    assert set(home.root.iterdir()) - set(before) <= {places.server_lock}


def test_a_page_overwritten_in_the_middle_is_found(places: Places) -> None:
    fill(places)
    server.prepare_database(places, "1.9.1")
    with open(places.database, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(4096 * 3))
    with pytest.raises(BadInput, match="damaged"):
        server.prepare_database(places, "1.9.1")


def test_the_way_out_that_the_message_names_works(places: Places) -> None:
    places.database.write_bytes(b"nonsense")
    with pytest.raises(BadInput) as error:
        server.prepare_database(places, "1.9.1")
    command = error.value.fix.partition(" starts with")[0]
    assert os.system(command) == 0
    server.prepare_database(places, "1.9.1")


def test_an_empty_file_is_what_a_server_killed_at_its_first_moment_leaves(places: Places) -> None:
    places.database.touch()
    server.prepare_database(places, "1.9.1")


def test_a_newer_version_s_database_is_refused_and_left_alone(places: Places) -> None:
    fill(places)
    server.prepare_database(places, "1.10.0")
    with pytest.raises(BadInput, match=r"written by temporal 1\.10\.0, this Perdure brings 1\.9\.1"):
        server.prepare_database(places, "1.9.1")
    assert places.database_version.read_text() == "1.10.0\n"
    assert not places.database_copies.exists()


def test_an_upgrade_copies_the_database_with_its_log_first_and_keeps_the_last_copy(places: Places) -> None:
    fill(places, rows=3)
    server.prepare_database(places, "1.8.0")
    writer = sqlite3.connect(places.database)
    writer.execute("PRAGMA journal_mode=wal")
    with writer:
        writer.execute("INSERT INTO t VALUES ('in the log')")
    kept = server.copy_database(places, "1.8.0")
    writer.close()
    assert {path.name for path in kept.iterdir()} >= {"temporal.db", "temporal.db-wal"}
    with closing(sqlite3.connect(kept / "temporal.db")) as copied:
        assert copied.execute("SELECT count(*) FROM t").fetchone() == (4,)
    server.prepare_database(places, "1.9.0")
    server.prepare_database(places, "1.9.1")
    assert [path.name for path in places.database_copies.iterdir()] == ["temporal-1.9.0"]
    assert places.database_version.read_text() == "1.9.1\n"


def test_the_same_version_makes_no_copy(places: Places) -> None:
    fill(places)
    server.prepare_database(places, "1.9.1")
    server.prepare_database(places, "1.9.1")
    assert not places.database_copies.exists()
