"""A script run inside a sandbox's network namespace, setup's or a CLI agent's: it serves a TCP port there that leads to
a Unix socket from outside.

Package installers and agents speak to proxies by address and port only. Standard library only: it runs isolated (`-I
-S`). Arguments: the socket's path, the port, and the command that this process becomes once the port is open.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading

_CHUNK = 64 * 1024


def _copy_stream(source: socket.socket, target: socket.socket) -> None:
    """Send everything received from `source` on to `target`, then close the sending side of `target`. A broken
    connection ends it without an error."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _carry_connection(inside: socket.socket, path: str) -> None:
    """Connect to the Unix socket at `path`, and copy bytes both ways between it and `inside` until both sides have
    ended; then close both. If nobody listens at `path`, `inside` is closed at once."""
    with inside, socket.socket(socket.AF_UNIX) as outside:
        try:
            outside.connect(path)
        except OSError:
            return
        replies = threading.Thread(target=_copy_stream, args=(outside, inside), daemon=True)
        replies.start()
        _copy_stream(inside, outside)
        replies.join()


def _serve_connections(listener: socket.socket, path: str) -> None:
    """Accept connections without end and carry each to the Unix socket at `path` in a thread of its own. Standard
    input, output and error are replaced by /dev/null first."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    while True:
        inside, _ = listener.accept()
        threading.Thread(target=_carry_connection, args=(inside, path), daemon=True).start()


def open_port_and_exec(path: str, port: int, command: list[str]) -> None:
    """Listen on 127.0.0.1:`port`, start a process that carries its connections to the Unix socket at `path`, and
    replace this process by `command`. Does not return."""
    listener = socket.create_server(("127.0.0.1", port))
    child = os.fork()
    if child == 0:
        if os.fork() == 0:  # a grandchild, so that the command has no child that it did not start
            _serve_connections(listener, path)
        os._exit(0)
    os.waitpid(child, 0)
    os.execv(command[0], command)  # noqa: S606 (no shell wanted)


if __name__ == "__main__":
    open_port_and_exec(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
