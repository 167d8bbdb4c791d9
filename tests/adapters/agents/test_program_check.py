"""A program is looked for, asked for its version, and nothing of it stays."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from perdure.adapters.agents import presets
from perdure.adapters.agents.presets import check_program
from perdure.models.config.preset import Preset, VersionCheck
from tests.waiting import patient


def told(tmp_path: Path, script: str | None, *, least: str = "2.1", node: str = "", its_node: str = "") -> str:
    """The problem seen with a program that is this script, on a PATH of its own."""
    for name, text in (("agent", script), ("node", f"echo {its_node}" if its_node else None)):
        if text is not None:
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
    preset = Preset(title="Agent", command=("agent",), wire="anthropic", node=node, version=VersionCheck(least=least))
    return check_program(preset, str(tmp_path)).problem


@pytest.mark.parametrize(
    ("script", "options", "problem"),
    [
        ("echo 2.1.330 '(Agent)'", {}, ""),
        ("echo agent", {"least": ""}, ""),
        (None, {}, "agent is not installed, or not on PATH"),
        ("echo 2.0.9", {}, "2.0.9 is too old, 2.1 is needed"),
        ("echo hello", {}, "no version in what it says: 'hello'"),
        ("exit 3", {}, "it does not say its version: exit code 3"),
        ("echo 2.1", {"node": "22"}, "it needs Node 22 or newer, and there is no node on PATH"),
        ("echo 2.1", {"node": "22", "its_node": "v20.20.2"}, "it needs Node 22 or newer, 20.20.2 is here"),
        ("echo 2.1", {"node": "22", "its_node": "v22.0.1"}, ""),
    ],
)
def test_what_is_wrong_with_a_program_is_said(
    tmp_path: Path, script: str | None, options: dict[str, str], problem: str
) -> None:
    assert told(tmp_path, script, **options) == problem


def test_it_sees_no_secret_and_no_home_of_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    assert told(tmp_path, f'echo "$HOME $ANTHROPIC_API_KEY" > {tmp_path}/seen; echo 2.1') == ""
    home, *rest = (tmp_path / "seen").read_text().split()
    assert rest == []
    assert not Path(home).exists()


def test_a_program_that_never_answers_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "VERSION_S", 1.0)
    assert told(tmp_path, f"PATH=/usr/bin:/bin; sleep 97 & echo $! > {tmp_path}/child; wait") == (
        "it does not say its version: nothing within 1 s"
    )
    child, until = int((tmp_path / "child").read_text()), time.monotonic() + patient(30)
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)
