"""People read what a reply calls, by whichever names an agent has for its tools."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.adapters.agents.builtin.tools import describe_reply
from perdure.adapters.agents.builtin.tools.tool_calls import command_in

PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: b.py\n+z\n*** End Patch\n"


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("bash", {"command": "pytest -q\n"}, "pytest -q"),
        ("Bash", {"command": "pytest -q", "description": "Run"}, "pytest -q"),
        ("exec_command", {"cmd": "pytest -q", "yield_time_ms": 30000}, "pytest -q"),
        ("shell", {"command": ["bash", "-lc", "pytest -q"]}, "bash -lc pytest -q"),
        ("Read", {"file_path": "/w/a.py"}, "read /w/a.py"),
        ("edit", {"filePath": "a.py", "oldString": "x"}, "edit a.py"),
        ("apply_patch", {"input": PATCH}, "apply_patch src/a.py b.py"),
        ("glob", {"pattern": "**/*.py"}, "glob **/*.py"),
        ("todo", "no object", "todo"),
    ],
)
def test_a_call_is_named_by_what_it_does(name: str, given: Any, words: str) -> None:
    call = {"type": "tool_use", "id": "t", "name": name, "input": given}
    assert describe_reply({"role": "assistant", "content": [call]}) == words


def test_a_call_without_a_command_has_none() -> None:
    assert command_in({"name": "Read", "input": {"file_path": "a"}}) == command_in({"name": "x", "input": None}) == ""
