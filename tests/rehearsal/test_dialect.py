"""One screenplay for every agent: its tools by the names that an agent offers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.rehearsal.reply import translate_call
from perdure.rehearsal.wire import ApiTool, Request

BARE = ("Bash", "Edit", "Read")
CODEX = ("exec_command", "apply_patch")


def offering(*names: str, directory: str = "") -> Request:
    said = f"<env>\n - Primary working directory: {directory}\n" if directory else "Go."
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    messages = [{"role": "user", "content": said}]
    return Request.model_validate({"model": "m", "max_tokens": 9, "messages": messages, "tools": tools})


EDIT = {"path": "a/b.py", "old": "x = 1\n", "new": "x = 2\ny = 3\n"}
UPDATE = "*** Begin Patch\n*** Update File: a/b.py\n@@\n-x = 1\n+x = 2\n+y = 3\n*** End Patch\n"
WRITE = {"path": "a/b.py", "content": "x = 1\n"}
ADD = "*** Begin Patch\n*** Add File: a/b.py\n+x = 1\n*** End Patch\n"


@pytest.mark.parametrize(
    ("offered", "tool", "asked", "wanted"),
    [
        (("edit",), "edit", EDIT, ("edit", EDIT)),
        (BARE, "bash", {"command": "ls"}, ("Bash", {"command": "ls"})),
        (BARE, "read", {"path": "a.py", "offset": 3}, ("Read", {"file_path": "/w/a.py", "offset": 3})),
        (
            BARE,
            "edit",
            EDIT,
            ("Edit", {"file_path": "/w/a/b.py", "old_string": "x = 1\n", "new_string": "x = 2\ny = 3\n"}),
        ),
        ((*BARE, "Write"), "write", WRITE, ("Write", {"file_path": "/w/a/b.py", "content": "x = 1\n"})),
        (BARE, "write", WRITE, ("Bash", {"command": "mkdir -p a && printf %s 'x = 1\n' > a/b.py"})),
        (BARE, "grep", {"pattern": "de f"}, ("Bash", {"command": "grep -rnE --exclude-dir=.git -e 'de f' ."})),
        (CODEX, "bash", {"command": "ls"}, ("exec_command", {"cmd": "ls", "yield_time_ms": 30000})),
        (CODEX, "edit", EDIT, ("apply_patch", {"input": UPDATE})),
        (CODEX, "write", WRITE, ("apply_patch", {"input": ADD})),
        (
            ("exec_command",),
            "write",
            WRITE,
            ("exec_command", {"cmd": f"apply_patch <<'PATCH'\n{ADD}PATCH", "yield_time_ms": 30000}),
        ),
        (
            ("run_shell_command", "replace"),
            "read",
            {"path": "a"},
            ("run_shell_command", {"command": "sed -n '1,$p' a", "description": "read"}),
        ),
        (
            ("bash",),
            "write",
            WRITE,
            ("bash", {"command": "mkdir -p a && printf %s 'x = 1\n' > a/b.py", "description": "write"}),
        ),
        (BARE, "ask", {"text": "Which?"}, None),
        (CODEX, "ask", {"text": "Which?"}, None),
        (("something",), "bash", {"command": "ls"}, None),
    ],
)
def test_a_call_becomes_one_that_the_agent_offers(
    offered: tuple[str, ...], tool: str, asked: dict[str, Any], wanted: tuple[str, Any] | None
) -> None:
    assert translate_call(tool, asked, offering(*offered, directory="/w")) == wanted


def test_the_newest_codex_has_one_tool_for_all() -> None:
    assert translate_call("edit", EDIT, offering("exec", "wait")) == (
        "exec",
        {"input": 'text(await tools.apply_patch("' + UPDATE.replace("\n", "\\n") + '"));'},
    )


def test_an_edit_by_a_shell_changes_that_text_alone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.py").write_text("x = 1\nz = '\\1'\n")
    call = translate_call("edit", EDIT, offering("run_shell_command"))
    assert call is not None
    subprocess.run(["bash", "-c", call[1]["command"]], cwd=tmp_path, check=True)
    assert (tmp_path / "a/b.py").read_text() == "x = 2\ny = 3\nz = '\\1'\n"


@pytest.mark.parametrize("shell", ["bash", "run_shell_command"])
def test_a_tool_of_the_same_name_is_not_the_same_where_the_shell_is_another_agents(shell: str) -> None:
    schema = {"type": "object", "properties": {"command": {}, "description": {}}}
    tools = [{"name": shell, "input_schema": schema}, {"name": "read", "input_schema": {"type": "object"}}]
    asked = offering("bash").model_copy(update={"tools": [ApiTool.model_validate(tool) for tool in tools]})
    call = translate_call("read", {"path": "a"}, asked)
    assert call == (shell, {"command": "sed -n '1,$p' a", "description": "read"})


def test_opencodes_tools_have_our_names_and_take_other_words() -> None:
    reads = {"type": "object", "properties": {"filePath": {}}}
    tools = [{"name": "read", "input_schema": reads}, {"name": "bash", "input_schema": {"type": "object"}}]
    asked = offering("bash").model_copy(update={"tools": [ApiTool.model_validate(tool) for tool in tools]})
    call = translate_call("read", {"path": "a"}, asked)
    assert call == ("bash", {"command": "sed -n '1,$p' a", "description": "read"})


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["C", "Z"])), min_size=1))
def test_a_patch_says_every_line_of_what_is_written(lines: list[str]) -> None:
    call = translate_call("write", {"path": "a", "content": "\n".join(lines) + "\n"}, offering(*CODEX))
    assert call is not None
    assert call[1]["input"].split("\n")[2:-2] == ["+" + line for line in lines]
