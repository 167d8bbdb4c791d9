"""The program of a preset on this host: there or not, its version, and what it needs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from perdure.models.preset import Preset, older, version_in

VERSION_S = 60.0
"""For an agent to say its version: one that runs on Node was seen to take 15 s the first time on a cold disk."""

VERSION_CHARS = 4096
"""Read of what it says: a program that says more than that is asked something else."""


@dataclass(frozen=True)
class Installed:
    """program: the file that would be run, None without one; version: as it said, empty when it did not; problem: why
    it cannot be used, empty where it can; fix: what to do about that."""

    program: Path | None = None
    version: str = ""
    problem: str = ""
    fix: str = ""


def look(preset: Preset, path: str | None = None) -> Installed:
    """Find the program on PATH (or `path`) and ask for its version; it starts with an empty home and no secret."""
    path = path if path is not None else os.environ.get("PATH", os.defpath)
    get = preset.install or "see the documentation of the agent"
    found = shutil.which(preset.command[0], path=path)
    if found is None:
        return Installed(problem=f"{preset.command[0]} is not installed, or not on PATH", fix=get)
    if preset.node and (problem := _node_problem(preset.node, path)):
        return Installed(Path(found), problem=problem, fix=f"install Node {preset.node} or newer")
    try:
        said = _said([found, *preset.command[1:], *preset.version.args], path)
    except (OSError, subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        return Installed(Path(found), problem=f"it does not say its version: {_short(error)}", fix=get)
    version = version_in(said)
    if preset.version.least and not version:
        shown = " ".join(said.split())[:60]
        return Installed(Path(found), problem=f"no version in what it says: {shown!r}", fix=get)
    if preset.version.least and older(version, preset.version.least):
        return Installed(Path(found), version, f"{version} is too old, {preset.version.least} is needed", get)
    return Installed(Path(found), version)


def _node_problem(least: str, path: str) -> str:
    node = shutil.which("node", path=path)
    if node is None:
        return f"it needs Node {least} or newer, and there is no node on PATH"
    try:
        version = version_in(_said([node, "--version"], path))
    except (OSError, subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        return f"it needs Node {least} or newer, and node does not say its version: {_short(error)}"
    return f"it needs Node {least} or newer, {version} is here" if not version or older(version, least) else ""


def _said(words: list[str], path: str) -> str:
    """Return what a program prints on standard output. Its home is empty, and gone afterwards: some write at once."""
    with (
        tempfile.TemporaryDirectory(prefix="perdure-", ignore_cleanup_errors=True) as home,
        tempfile.TemporaryFile() as out,
    ):
        process = subprocess.Popen(
            words,
            env={"PATH": path, "HOME": home, "LANG": os.environ.get("LANG", "C.UTF-8")},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(VERSION_S)
        finally:
            _end(process)
        if code:
            raise subprocess.CalledProcessError(code, words[0])
        out.seek(0)
        return out.read(VERSION_CHARS).decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of it lives on, its children neither."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _short(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"nothing within {VERSION_S:g} s"
    if isinstance(error, subprocess.CalledProcessError):
        return f"exit code {error.returncode}"
    return str(error)[:120]
