"""A script started inside the sandbox: it connects standard input and output to Unix sockets, then becomes the agent.

Standard library only: it runs isolated (`-I -S`). Arguments: the socket's path, and the agent's command line. What the
agent prints on standard error stays in the command's output.
"""

from __future__ import annotations

import os
import socket
import sys


def main(path: str, command: list[str]) -> None:
    """Connect standard input, then standard output, to the Unix socket at `path`, and replace this process by
    `command`."""
    for number in (0, 1):  # two connections: asyncio takes a standard output that can be read for a closed one
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(path)
            os.dup2(engine.fileno(), number)
    os.execvp(command[0], command)  # noqa: S606 (no shell wanted)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
