"""Started as a script inside the sandbox: becomes the agent, whose standard input and output are Unix sockets.

Standard library only: it runs isolated (`-I -S`). Arguments: the socket's path, and the agent's command line. What the
agent says on standard error stays in the command's output.
"""

from __future__ import annotations

import os
import socket
import sys


def main(path: str, command: list[str]) -> None:
    for number in (0, 1):  # one each: asyncio takes a standard output that can be read from for a closed one
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(path)
            os.dup2(engine.fileno(), number)
    os.execvp(command[0], command)  # noqa: S606 (no shell wanted)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
