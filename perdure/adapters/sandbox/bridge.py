"""Started as a script inside setup's network namespace: a TCP port there that leads to a Unix socket from outside.

Package installers speak to proxies by address and port only. Standard library only: it runs isolated (`-I -S`).
Arguments: the socket's path, the port, and the command that this process becomes once the port is open.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading

_CHUNK = 64 * 1024


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _carry(inside: socket.socket, path: str) -> None:
    with inside, socket.socket(socket.AF_UNIX) as outside:
        try:
            outside.connect(path)
        except OSError:
            return
        back = threading.Thread(target=_copy, args=(outside, inside), daemon=True)
        back.start()
        _copy(inside, outside)
        back.join()


def _serve(listener: socket.socket, path: str) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    while True:
        inside, _ = listener.accept()
        threading.Thread(target=_carry, args=(inside, path), daemon=True).start()


def main(path: str, port: int, command: list[str]) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    first = os.fork()
    if first == 0:
        if os.fork() == 0:  # nobody's child: the command must not be told of one it did not start
            _serve(listener, path)
        os._exit(0)
    os.waitpid(first, 0)
    os.execv(command[0], command)  # noqa: S606 (no shell wanted)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
