"""The tested snippets of docs/submitting.md, what they install, and how somebody with nothing of ours runs them."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import ran
from tests.needs import require

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


def installed(directory: Path, *packages: str) -> None:
    """Outside the sandbox; the running test is left out where no registry can be reached."""
    require("npm")
    directory.mkdir(exist_ok=True)
    words = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--no-package-lock", *packages]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install {packages}: {done.stderr[-200:]}")


def example(shared: pytest.TempPathFactory, home: Path) -> Path:
    """`home` with examples/clients/typescript in it and its packages, which are fetched once for all processes
    of a run; the running test is left out where they cannot be fetched."""
    require("node", "npm")
    base = shared.getbasetemp()
    place = (base if base.name.startswith("pytest-") else base.parent) / "typescript"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "whole").exists():
            shutil.copytree(ROOT / "examples/clients/typescript", place, ignore=_MADE, dirs_exist_ok=True)
            words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            try:
                done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=_NPM_S, check=False)
            except subprocess.TimeoutExpired as error:
                pytest.skip(f"the TypeScript example was NOT run: its packages cannot be fetched here: {error}")
            assert not {"EUSAGE", "EINTEGRITY"} & {*done.stderr.split()}, f"the lock does not fit: {done.stderr}"
            if done.returncode:
                said = done.stderr[-300:]
                pytest.skip(f"the TypeScript example was NOT run: its packages cannot be fetched here: {said}")
            (place / "whole").touch()
    shutil.copytree(ROOT / "examples/clients/typescript", home, ignore=_MADE)
    (home / "node_modules").symlink_to(place / "node_modules")
    return home


_MADE = shutil.ignore_patterns("node_modules", "dist")
_NPM_S = 200
