"""The embedded Temporal server of one PERDURE_HOME: started once, found again, stopped cleanly."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.system.files import held, try_lock
from perdure.adapters.system.home import Home
from perdure.local import Say, database, front, ports
from perdure.local.checks import check_home, check_platform
from perdure.local.identity import ServerRecord, answers_as, namespace_of, read_record
from perdure.local.places import Places, temporal_binary, temporal_version
from perdure.local.processes import holds, last_lines, released, rotate, signal_holder, start_detached
from perdure.models.errors import PerdureError, TemporalUnreachable
from perdure.models.limits import SERVER_ANSWER_S, SERVER_START_S, SERVER_STOP_S
from perdure.models.visibility import MORE_ATTRIBUTES, SEARCH_ATTRIBUTES

_POLL_S = 0.05
_START_TRIES = 3
_UI_ENDS_S = 5  # it takes a millisecond after the server's end
_TAKEN = "address already in use"


@dataclass(frozen=True)
class ServerInfo:
    """A server that answered as this home's own. `started`: by this call."""

    address: str
    ui_url: str
    namespace: str
    pid: int
    started: bool


async def ensure_server(home: Home, *, ui_port: int | None = None, port: int | None = None, say: Say) -> ServerInfo:
    """The running server of this home, started if there is none. Of several starters at once one starts it.

    Raises BadInput for a home, database or port that cannot be used, TemporalUnreachable when somebody else's
    server of this home does not answer in time, PerdureError when ours does not start.
    """
    check_platform()
    places = Places(home)
    if not (home.root.is_dir() and held(places.server_lock)):
        ports.refuse_taken(port, ui_port)  # before anything is written
    check_home(home.root)
    binary = temporal_binary()
    version = await asyncio.to_thread(temporal_version, binary)
    said = ""
    for _ in range(_START_TRIES):  # a port found free may be taken before the server has it
        if said:  # the front of the one that failed ends once nobody has the lock, and then its port is free again
            await released(places.ui_lock, within=_UI_ENDS_S)
        lock = await _lock_or_server(home, places)
        await released(places.ui_lock, within=_UI_ENDS_S if isinstance(lock, int) else 0)
        if isinstance(lock, ServerInfo):
            if (known := read_record(places)) is not None:
                await asyncio.to_thread(_stand_before, home, places, known)
            if port is not None and not lock.address.endswith(f":{port}"):
                say(f"Temporal already runs at {lock.address}")
            return lock
        log_start = rotate(places.server_log)
        try:
            record = await asyncio.to_thread(_prepare, home, places, version, port, ui_port)
            say(f"starting Temporal at {record.address}, Web UI {record.ui}")
            await asyncio.to_thread(_stand_before, home, places, record)
            await asyncio.to_thread(_launch, home, places, record, binary, lock)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            said = f"{_TAKEN}: {error}"
            continue
        except subprocess.CalledProcessError as error:
            said = f"it was ended as it began ({error.returncode})"
            continue
        finally:
            os.close(lock)  # the server holds it now, alone: a free lock means that it has died
        if started := await _when_answering(home, places, SERVER_START_S, started=True):
            return started
        log = last_lines(places.server_log, log_start, lines=500)
        said = _cause(log)
        if _TAKEN not in log:  # not only in its last line: a taken port makes the server panic (1.32.0)
            break
        say("another program took that port in the meantime")
    raise PerdureError(
        f"the embedded Temporal server did not start: {said or 'it ended without a word'}",
        where=str(places.server_log),
        fix="perdure doctor looks for the cause",
    )


def _cause(log: str) -> str:
    """The line of a dead server's log that says why: its first error, else its last word."""
    lines = log.splitlines()
    errors = [line for line in lines if "level=ERROR" in line or line.startswith(("panic:", "Error:", "error:"))]
    return (errors or lines[-1:] or [""])[0]


async def find_server(home: Home, *, wait: float = SERVER_ANSWER_S) -> ServerInfo | None:
    """The running server of this home, None when there is none.

    One that is just starting gets `wait` seconds to answer, then TemporalUnreachable.
    """
    return await _when_answering(home, Places(home), wait)


async def stop_server(home: Home) -> bool:
    """End this home's server and wait until it is gone. False when there was none.

    SIGTERM first; SIGKILL after SERVER_STOP_S, which loses no acknowledged write. Raises PerdureError when even that
    leaves the lock held.
    """
    places = Places(home)
    number, signalled = signal.SIGTERM, False
    deadline = _now() + SERVER_START_S
    while held(places.server_lock):
        record = read_record(places) or read_record(places, last=True)
        if record is not None and holds(record.pid, places.server_lock):
            # Set aside first: a record without its server means a crash, which a supervisor makes good.
            places.set_record_aside()
            signalled = signal_holder(record.pid, places.server_lock, number) or signalled
            number = signal.SIGKILL
            await released(places.server_lock, SERVER_STOP_S)
        if _now() > deadline:
            raise PerdureError("the embedded Temporal server does not end", where=str(places.server_lock))
        await asyncio.sleep(_POLL_S)  # somebody has the lock and has not got as far as a server
    return signalled


async def _lock_or_server(home: Home, places: Places) -> int | ServerInfo:
    """The server's lock for us, or the server that holds it."""
    deadline = _now() + SERVER_START_S
    while (lock := try_lock(places.server_lock)) is None:
        if running := await _answering(home, places):
            return running
        if _now() > deadline:
            raise _silent(places)
        await asyncio.sleep(_POLL_S)
    return lock


async def _when_answering(home: Home, places: Places, wait: float, *, started: bool = False) -> ServerInfo | None:
    """The server that holds the lock, as soon as it answers. None when nobody holds the lock."""
    deadline = _now() + wait
    while held(places.server_lock):
        if running := await _answering(home, places, started=started):
            return running
        if _now() > deadline:
            raise _silent(places)
        await asyncio.sleep(_POLL_S)
    return None


async def _answering(home: Home, places: Places, *, started: bool = False) -> ServerInfo | None:
    record = read_record(places)
    if record is None or not await answers_as(record, home):
        return None
    return ServerInfo(record.address, record.ui, record.namespace, record.pid, started)


def _prepare(home: Home, places: Places, version: str, port: int | None, ui_port: int | None) -> ServerRecord:
    """Do what may refuse to start a server. The caller holds the lock, so the record names a dead server."""
    places.set_record_aside()
    last = read_record(places, last=True)
    database.prepare(places, version)
    pair = ports.choose(port, ui_port, last.ports if last else None)
    return ServerRecord(
        pid=0,
        address=f"{ports.HOST}:{pair.grpc}",
        ui=f"http://{ports.HOST}:{pair.ui}",
        ui_behind=ports.hidden(),
        temporal=version,
        home_id=home.host_id(),
    )


def _stand_before(home: Home, places: Places, record: ServerRecord) -> None:
    """Put perdure.local.front before the Web UI, unless it stands there. OSError when its port is taken.

    Called while somebody holds the server's lock: it ends with that.
    """
    if not record.ui_behind or (lock := try_lock(places.ui_lock)) is None:
        return
    try:
        with socket.create_server((ports.HOST, record.ports.ui)) as listener:
            host, _, port = record.ui_behind.rpartition(":")
            words = [str(listener.fileno()), host, port, str(places.server_lock)]
            start_detached(
                [sys.executable, "-I", "-S", str(front.__file__), *words],
                log=places.server_log,
                env=_environment(os.environ),
                cwd=home.root,
                inherit=[lock, listener.fileno()],
            )
    finally:
        os.close(lock)


def _launch(home: Home, places: Places, record: ServerRecord, binary: Path, lock: int) -> None:
    start_detached(
        [str(binary), *_arguments(home, places, record)],
        log=places.server_log,
        env=_environment(os.environ),
        cwd=home.root,
        inherit=[lock],
        record=places.server_record,
        text=record.model_dump_json(exclude={"pid"}),
    )


def _arguments(home: Home, places: Places, record: ServerRecord) -> list[str]:
    synchronous = os.environ.get("PERDURE_SQLITE_SYNCHRONOUS", "2")  # FULL: with less, power loss rolls it back (H12)
    arguments = ["server", "start-dev", "--db-filename", str(places.database), "--log-level", "warn"]
    ui_host, _, ui_port = (record.ui_behind or record.ui.removeprefix("http://")).rpartition(":")
    arguments += ["--ip", ports.HOST, "--port", str(record.ports.grpc), "--ui-ip", ui_host, "--ui-port", ui_port]
    arguments += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", f"synchronous={synchronous}"]
    # Its default of 20 a second makes every dispatch wait 50 ms (reference: temporal.md §0).
    arguments += ["--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000"]
    # Without it fairness keys say nothing: who has ten deliveries waits behind all of who has a hundred.
    arguments += ["--dynamic-config-value", "matching.enableFairness=true"]
    # Its HTTP port cannot be closed. It answers this name alone, which nothing can have: no page gets in by another.
    arguments += ["--dynamic-config-value", 'frontend.httpAllowedHosts=["nobody.invalid"]']
    arguments += ["--namespace", namespace_of(home), "--ui-disable-news-fetch"]
    for name, kind in {**SEARCH_ATTRIBUTES, **MORE_ATTRIBUTES}.items():
        arguments += ["--search-attribute", f"{name}={kind}"]
    return arguments


_COLLECTS = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
"""For the server, in Go: looks for garbage less often, a sixth less of a processor, twice its 200 MB."""


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """For the server: no model key, no forge token, no TEMPORAL_* meant for another server."""
    kept = ("PATH", "HOME", "TMPDIR", "LANG", "TZ", *_COLLECTS)
    return {**_COLLECTS, **{name: env[name] for name in kept if name in env}}


def _silent(places: Places) -> TemporalUnreachable:
    record = read_record(places)
    at = f" at {record.address} (pid {record.pid})" if record else ""
    return TemporalUnreachable(
        f"the embedded Temporal server{at} does not answer",
        where=str(places.server_log),
        fix="perdure down ends it, perdure up --detach starts it again",
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
