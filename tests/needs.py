"""Programs that some tests need beside Python, make and git, and what is said of tests that were left out for them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
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
    "jq": ("jq",),
    "curl": ("curl",),
    "gradle": ("gradle",),
    "prove": ("prove",),
    "bats": ("bats",),
    "ctest": ("ctest",),
    "busted": ("busted",),
    "phpunit": ("phpunit",),
    "rspec": ("rspec",),
    "rake": ("rake",),
    "git-lfs": ("git-lfs",),
    "git-crypt": ("git-crypt",),
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
    "jq": "jq",
    "curl": "curl",
    "gradle": "gradle",
    "prove": "perl",
    "bats": "bats",
    "ctest": "cmake",
    "busted": "lua-busted",
    "phpunit": "phpunit",
    "rspec": "ruby-rspec",
    "rake": "rake ruby-minitest",
    "git-lfs": "git-lfs",
    "git-crypt": "git-crypt",
    "nginx": "nginx-light",
}
AGENTS = Path(__file__).parents[1] / ".venv" / "agents" / "bin"
"""The place of the programs that `make agents` installs: no distribution has them."""
OURS = frozenset({"claude", "codex"})

NO_GROUP = "NO CONTROL GROUP IS DELEGATED HERE"
"""The reason to leave out what only such a host can show (perdure.adapters.sandbox.control_groups)."""

LEFT_OUT = Path(".pytest_cache/left_out.txt")
"""Ids of the tests that the last run left out for a missing program."""

_REASON = "NEEDS "


def find_program(program: str) -> str | None:
    """The path of a program, under any name it has."""
    places = f"{AGENTS}{os.pathsep}{os.environ.get('PATH', os.defpath)}" if program in OURS else None
    return next((path for name in NAMES[program] if (path := shutil.which(name, path=places))), None)


def missing(*programs: str) -> str:
    """The reason to leave a test out; empty where all of them are here."""
    return (
        _REASON + " ".join(absent)
        if (absent := [program for program in programs if find_program(program) is None])
        else ""
    )


def require(*programs: str) -> None:
    """Leave the running test out where a program is not here."""
    if reason := missing(*programs):
        pytest.skip(reason)


def summary(reasons: Iterable[str]) -> str:
    """Return a line on missing programs and a line on control groups, each with what to paste; empty for neither."""
    reasons = list(reasons)
    return "\n".join(filter(None, (_programs_line(reasons), _control_groups_line(reasons))))


def write_left_out(reasons: Mapping[str, str]) -> None:
    """Write the ids of the tests that were left out for a missing program to LEFT_OUT, one a line, for `make left-out`.

    reasons  test id → why it was skipped
    """
    ids = [test for test, reason in reasons.items() if _REASON in reason]
    LEFT_OUT.parent.mkdir(exist_ok=True)
    LEFT_OUT.write_text("".join(f"{test}\n" for test in ids))


def _control_groups_line(reasons: list[str]) -> str:
    number = sum(NO_GROUP in reason for reason in reasons)
    paste = "systemd-run --user --scope -p Delegate=yes make test"
    return f"LEFT OUT, tests of limits that the kernel holds ({number}); to run them: {paste}" if number else ""


def _programs_line(reasons: list[str]) -> str:
    needed = (reason.partition(_REASON)[2].split() for reason in reasons if _REASON in reason)
    counts = Counter(program for programs in needed for program in programs)
    if not counts:
        return ""
    named = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    system = " ".join(PACKAGES[name] for name in sorted(counts) if name in PACKAGES)
    agents = sorted(SPOKEN.keys() & counts.keys())
    paste = [f"sudo apt-get install -y {system}"] if system else []
    paste += ["make agents"] if OURS & counts.keys() else []
    paste += [f"npm install -g --engine-strict {' '.join(SPOKEN[name] for name in agents)}"] if agents else []
    return f"LEFT OUT, tests that need a program: {named}; to run them: {' && '.join(paste)}"
