"""Programs that some tests need beside Python, make and git, and what is said of tests that were left out for them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from perdure.adapters.browser.browser import CHROMIUMS

SPOKEN = {
    "opencode": "opencode-ai",
    "copilot": "@github/copilot",
    "gemini": "@google/gemini-cli",
    "qwen": "@qwen-code/qwen-code",
}
"""Agents of the Agent Client Protocol, and their packages: a host that has them on PATH runs them."""

NAMES = {
    "chromium": CHROMIUMS,
    "node": ("node",),
    "npm": ("npm",),
    "go": ("go",),
    "cargo": ("cargo",),
    "gotestsum": ("gotestsum",),
    "mvn": ("mvn",),
    "gradle": ("gradle",),
    "claude": ("claude",),
    "codex": ("codex",),
    "nginx": ("nginx", "/usr/sbin/nginx"),
    **{name: (name,) for name in SPOKEN},
}
PACKAGES = {
    "chromium": "chromium",
    "node": "nodejs",
    "npm": "npm",
    "go": "golang-go",
    "cargo": "cargo",
    "gotestsum": "gotestsum",
    "mvn": "maven",
    "gradle": "gradle",
    "nginx": "nginx-light",
}
AGENTS = Path(__file__).parents[1] / ".venv" / "agents" / "bin"
"""The place of the programs that `make agents` installs: no distribution has them."""
OURS = frozenset({"claude", "codex"})

NO_GROUP = "NO CONTROL GROUP IS DELEGATED HERE"
"""The reason to leave out what only such a host can show (perdure.adapters.sandbox.groups)."""

_REASON = "NEEDS "


def found(program: str) -> str | None:
    """The path of a program, under any name it has."""
    places = f"{AGENTS}{os.pathsep}{os.environ.get('PATH', os.defpath)}" if program in OURS else None
    return next((path for name in NAMES[program] if (path := shutil.which(name, path=places))), None)


def missing(*programs: str) -> str:
    """The reason to leave a test out; empty where all of them are here."""
    return _REASON + " ".join(gone) if (gone := [one for one in programs if found(one) is None]) else ""


def require(*programs: str) -> None:
    """Leave the running test out where a program is not here."""
    if reason := missing(*programs):
        pytest.skip(reason)


def told(reasons: Iterable[str]) -> str:
    """One line about all that was left out, with what to paste, one about control groups; empty where nothing was."""
    reasons = list(reasons)
    return "\n".join(filter(None, (_told_of_programs(reasons), _told_of_groups(reasons))))


def _told_of_groups(reasons: list[str]) -> str:
    number = sum(NO_GROUP in reason for reason in reasons)
    paste = "systemd-run --user --scope -p Delegate=yes make test"
    return f"LEFT OUT, tests of limits that the kernel holds ({number}); to run them: {paste}" if number else ""


def _told_of_programs(reasons: list[str]) -> str:
    counts = Counter(one for reason in reasons if _REASON in reason for one in reason.partition(_REASON)[2].split())
    if not counts:
        return ""
    named = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    system = " ".join(PACKAGES[name] for name in sorted(counts) if name in PACKAGES)
    spoken = SPOKEN.keys() & counts.keys()
    paste = [f"sudo apt-get install -y {system}"] if system else []
    paste += ["make agents"] if OURS & counts.keys() else []
    paste += [f"npm install -g --engine-strict {' '.join(SPOKEN[one] for one in sorted(spoken))}"] if spoken else []
    return f"LEFT OUT, tests that need a program: {named}; to run them: {' && '.join(paste)}"
