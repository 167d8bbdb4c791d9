"""`python -m perdure.rehearsal.github ROOT [--port N]`."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import sys
from pathlib import Path

from perdure.models.errors import PerdureError
from perdure.rehearsal.github.server import GitHubTwin

REPOSITORY = "me/sample"
TOKEN_FILE = "token"  # noqa: S105  # its name


async def serve(root: Path, port: int, token: str, file: Path) -> None:
    """A twin with one repository and one issue, until SIGINT or SIGTERM; says where it is."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with GitHubTwin(root, token=token, port=port) as github:
        github.add_repository(REPOSITORY)
        text = "A sentence on what this is, please."
        issue = github.add_issue(REPOSITORY, "The README says nothing", text, labels=("documentation",))
        print(f"GitHub's twin is at {github.url} until Ctrl-C; in another terminal:")
        print(f'  export PERDURE_GITHUB_URL={github.url} PERDURE_GITHUB_TOKEN="$(cat {file})"')
        print(f"  {github.url}/{REPOSITORY}/issues/{issue}", flush=True)
        await stop.wait()
        for violation in github.violations:
            print(f"against GitHub's description: {violation}", file=sys.stderr)


def run(root: Path, port: int) -> None:
    """As above, with a token that only its owner can read, in `root`. BadInput when the port is taken."""
    root.mkdir(parents=True, exist_ok=True)
    token, file = f"ghp_{secrets.token_hex(18)}", root / TOKEN_FILE
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as writing:
        writing.write(token + "\n")
    try:
        asyncio.run(serve(root, port, token, file))
    finally:
        file.unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m perdure.rehearsal.github", description="A GitHub on this machine.")
    parser.add_argument("root", type=Path, help="where its repositories live; one is made, an older one replaced")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    arguments = parser.parse_args()
    try:
        run(arguments.root, arguments.port)
    except PerdureError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
