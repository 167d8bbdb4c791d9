"""Two free ports for the embedded server, and who has taken one."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from perdure.models.errors import BadInput

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Pair:
    """grpc: what clients and workers speak; ui: the Web UI."""

    grpc: int
    ui: int


DEFAULT = Pair(7233, 8233)
"""Temporal's own, which every other Temporal client tries by itself."""


def choose(grpc: int | None, ui: int | None, last: Pair | None) -> Pair:
    """Ports for a server: what was asked for, else what this home had last, else Temporal's own, else any.

    The last pair first, because workers and watchers that survived the server look for it there. Raises BadInput
    when a port that was asked for is taken.
    """
    refuse_taken(grpc, ui)
    if grpc is None and ui is None:
        for pair in filter(None, (last, DEFAULT)):
            if is_free(pair.grpc) and is_free(pair.ui):
                return pair
    free = any_free()
    return Pair(grpc or free.grpc, ui or free.ui)


def refuse_taken(grpc: int | None, ui: int | None) -> None:
    """Raises BadInput when a port that was asked for is taken, naming by whom, or was asked for twice."""
    if grpc is not None and grpc == ui:
        raise BadInput(f"port {grpc} was given to both", where="--port and --ui-port", fix="leave one of them out")
    for flag, port in (("--port", grpc), ("--ui-port", ui)):
        if port is not None and not is_free(port):
            owner = owner_of(port)
            raise BadInput(
                f"port {port} is taken" + (f" by {owner}" if owner else ""),
                where=flag,
                fix=f"leave {flag} out for a free port, or name another one",
            )


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: TIME_WAIT is not taken
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def any_free() -> Pair:
    """Two different ports that are free now."""
    with socket.socket() as one, socket.socket() as other:
        one.bind((HOST, 0))
        other.bind((HOST, 0))
        return Pair(one.getsockname()[1], other.getsockname()[1])


def hidden() -> str:
    """An address of this machine that nobody guesses, with a port that is free there; empty where there is only one."""
    if sys.platform != "linux":
        return ""
    host = ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])
    with socket.socket() as one:
        one.bind((host, 0))
        return f"{host}:{one.getsockname()[1]}"


def owner_of(port: int) -> str:
    """Name the listener on a port, such as "python3 (pid 4711)"; empty when the kernel does not tell (others')."""
    inodes = _listening_inodes(port)
    if not inodes:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(fd) in inodes for fd in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
        except OSError:
            continue
    return ""


def _listening_inodes(port: int) -> set[str]:
    listen, found = "0A", set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == listen and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found
