"""The two ports of the embedded server: which are free, and who holds one that is not."""

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
class ServerPorts:
    """The ports of one server: `grpc` for clients and workers, `ui` for the Web UI."""

    grpc: int
    ui: int


DEFAULT_PORTS = ServerPorts(7233, 8233)
"""Temporal's own ports, which every other Temporal client tries by itself."""


def choose_ports(grpc: int | None, ui: int | None, last: ServerPorts | None) -> ServerPorts:
    """Choose a server's ports: those requested, else the last ones of this home, else Temporal's own, else any free.

    `grpc` and `ui` are the requested ports, None: not requested. The last ones come first because workers and watchers
    that survived the server look for it there. Raises BadInput when a requested port is taken.
    """
    check_ports_free(grpc, ui)
    if grpc is None and ui is None:
        for pair in filter(None, (last, DEFAULT_PORTS)):
            if is_port_free(pair.grpc) and is_port_free(pair.ui):
                return pair
    free = find_free_ports()
    return ServerPorts(grpc or free.grpc, ui or free.ui)


def check_ports_free(grpc: int | None, ui: int | None) -> None:
    """Raise BadInput when a requested port is taken, naming the program that has it, or both are the same."""
    if grpc is not None and grpc == ui:
        raise BadInput(f"port {grpc} was given to both", where="--port and --ui-port", fix="leave one of them out")
    for flag, port in (("--port", grpc), ("--ui-port", ui)):
        if port is not None and not is_port_free(port):
            owner = find_port_owner(port)
            raise BadInput(
                f"port {port} is taken" + (f" by {owner}" if owner else ""),
                where=flag,
                fix=f"leave {flag} out for a free port, or name another one",
            )


def is_port_free(port: int) -> bool:
    """Return whether a server could listen on this port of 127.0.0.1 now; a port in TIME_WAIT counts as free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: TIME_WAIT is not taken
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def find_free_ports() -> ServerPorts:
    """Find two different ports that are free now."""
    with socket.socket() as first, socket.socket() as second:
        first.bind((HOST, 0))
        second.bind((HOST, 0))
        return ServerPorts(first.getsockname()[1], second.getsockname()[1])


def choose_hidden_address() -> str:
    """Choose a random address of 127.0.0.0/8 with a port that is free there, `host:port`, which nobody guesses.

    Returns an empty string where there is only 127.0.0.1 (other systems than Linux).
    """
    if sys.platform != "linux":
        return ""
    host = ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


def find_port_owner(port: int) -> str:
    """Find the process that listens on a port, such as "python3 (pid 4711)".

    Empty when the kernel does not show it: other users' processes.
    """
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
    """Return the sockets that listen on a port, as `socket:[inode]`; empty where there is no /proc/net."""
    listen_state, inodes = "0A", set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == listen_state and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return inodes
