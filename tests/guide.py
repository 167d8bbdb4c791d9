"""The tested snippets of docs/submitting.md, and how somebody with nothing of ours runs a program."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.fork_server import ran

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "submitting.md").read_text(encoding="utf-8")
RUN_S = 60


def snippet(name: str) -> str:
    """The code block behind `<!-- tested: name -->`."""
    found = re.search(rf"<!-- tested: {name} -->\n```\w+\n(.*?)```", GUIDE, re.DOTALL)
    assert found, f"docs/submitting.md has no snippet {name}"
    return found[1]


class Stranger:
    """A directory and an environment that know a Temporal address and a repository."""

    def __init__(self, address: str, cwd: Path, repository: str = "/srv/calc") -> None:
        self.cwd = cwd
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTHONPATH"))}
        self.env = kept | {"TEMPORAL_ADDRESS": address, "REPOSITORY": repository}

    async def runs(self, *command: str, code: int = 0, timeout: float = RUN_S) -> str:
        """What it printed, where it ends with `code` as it has to: its errors as well, unless it ends well.

        `command` may begin with a script of Python, which needs a tenth of the time of one that is begun anew.
        """
        if command[0].endswith(".py"):
            program, *args = command
            ended, out, err = await asyncio.to_thread(
                ran, str(self.cwd / program), *args, env=self.env, cwd=self.cwd, timeout=timeout
            )
            assert ended == code, f"{command}: {ended}\n{out}\n{err}"
            return out + (err if code else "")
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=self.cwd, env=self.env, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    async def says(self, *command: str, code: int = 0) -> Any:
        return json.loads((await self.runs(*command, code=code)).splitlines()[0])
