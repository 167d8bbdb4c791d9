"""A screenplay: its lines by what a conversation contains, for every agent's tools; one that is wrong says where."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from anthropic import BadRequestError
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.agents.builtin.conversation import schema_for
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from perdure.rehearsal.reply import translate_call
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.wire import ApiTool, Request, answer_problem, fill_empties

TOOLS: list[dict[str, Any]] = [
    {"name": name, "input_schema": {"type": "object", "properties": {}}} for name in ("bash", "edit")
]

STORY = """
title = "story"
[[line]]
step = "implement"
last = 'exit code: [1-9]'
say = "It fails."
[[line]]
step = "implement"
turn = 1
say = "First."
use = [
  { tool = "edit", input = { path = "src/a.py", lines = [1, 2] } },
  { tool = "bash", input = { command = "pytest" } },
]
[[line]]
step = "implement"
contains = ["src/a.py", "2 passed"]
lacks = ["rejected"]
say = "Done."
[[line]]
step = "review"
contains = ["blocker fixed"]
say = "Clean."
"""


def turn(message: Any, *results: str) -> list[dict[str, Any]]:
    uses = [block.id for block in message.content if block.type == "tool_use"]
    answers = [
        {"type": "tool_result", "tool_use_id": use, "content": text} for use, text in zip(uses, results, strict=True)
    ]
    return [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [block.to_dict() for block in message.content]},
        {"role": "user", "content": answers},
    ]


async def test_a_line_answers_by_step_turn_texts_inputs_and_results(rehearsal, ask):
    twin = await rehearsal(STORY)
    first = await ask(twin, tools=TOOLS)
    assert [block.type for block in first.content] == ["text", "tool_use", "tool_use"]
    assert first.content[1].input == {"path": "src/a.py", "lines": [1, 2]}
    assert first.stop_reason == "tool_use"
    green = await ask(twin, turn(first, "edited", "2 passed"), tools=TOOLS)
    red = await ask(twin, turn(first, "edited", "2 passed\nexit code: 1"), tools=TOOLS)
    assert (green.content[0].text, green.stop_reason) == ("Done.", "end_turn")
    assert red.content[0].text == "It fails."
    assert [(call.step, call.turn, call.line) for call in twin.calls] == [
        ("implement", 1, 2),
        ("implement", 2, 3),
        ("implement", 2, 1),
    ]


async def test_a_line_answers_as_often_as_it_matches(rehearsal, ask):
    twin = await rehearsal(STORY)
    assert len({(await ask(twin, tools=TOOLS)).to_json() for _ in range(3)}) == 1
    assert twin.report()["repeated"] == 2


async def test_the_system_prompt_is_not_part_of_the_conversation(rehearsal, ask):
    twin = await rehearsal(STORY)
    with pytest.raises(BadRequestError):
        await ask(twin, system="Step: review\n\nblocker fixed")


async def test_when_no_line_matches_the_error_names_what_was_asked_and_the_nearest_lines(rehearsal, ask):
    twin = await rehearsal(STORY)
    first = await ask(twin, tools=TOOLS)
    with pytest.raises(BadRequestError) as caught:
        await ask(twin, turn(first, "edited", "rejected"), tools=TOOLS)
    said = caught.value.api_message
    assert "no line of 'story' answers step implement, turn 2, last message 'edited\\nrejected'" in said
    assert "line 2 (screenplay:7): its turn is 1" in said
    assert "line 3 (screenplay:15): '2 passed' does not occur; 'rejected' occurs" in said
    assert "line 4" not in said
    assert caught.value.type == "invalid_request_error"
    assert twin.report()["refused"] == 1


async def test_a_request_without_a_step_is_told_how_to_name_one(rehearsal, ask):
    twin = await rehearsal(STORY)
    with pytest.raises(BadRequestError, match="no line `Step: <step>` in the system prompt"):
        await ask(twin, system="Be brief.")


async def test_a_line_that_uses_a_tool_nobody_offered_is_named(rehearsal, ask):
    twin = await rehearsal('[[line]]\nuse = [{ tool = "edti" }]')
    with pytest.raises(BadRequestError, match=r"line 1 .*'edti'.*bash, edit \(did you mean edit\?\).*unknown = true"):
        await ask(twin, tools=TOOLS)


async def test_a_made_up_tool_call_may_stand_in_the_conversation(rehearsal, ask):
    twin = await rehearsal(
        '[[line]]\nturn = 1\nuse = [{ tool = "sing", unknown = true }]\n[[line]]\nturn = 2\nsay = "Oh."'
    )
    first = await ask(twin, tools=TOOLS)
    assert (await ask(twin, turn(first, "no such tool"), tools=TOOLS)).content[0].text == "Oh."


REMINDED = "Not tested since your last edit: run `pytest` first."


def reminded(said: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": said},
        {"role": "user", "content": REMINDED},
    ]


async def test_a_model_that_is_reminded_of_the_tests_says_again_what_it_said(rehearsal, ask):
    twin = await rehearsal('[[line]]\nturn = 1\nsay = "Done."\n[[line]]\nturn = 2\nsay = "Something else."')
    again = await ask(twin, reminded("Done."))
    assert again.content[0].text == "Done."


async def test_a_line_that_is_about_the_reminder_answers_it(rehearsal, ask):
    script = '[[line]]\nturn = 1\nsay = "Done."\n[[line]]\nlast = "^Not tested"\nuse = [{ tool = "bash", input = {} }]'
    twin = await rehearsal(script)
    heeded = await ask(twin, reminded("Done."), tools=TOOLS)
    assert [block.type for block in heeded.content] == ["tool_use"]


ISSUE = {"title": "t", "description": "d", "severity": "blocker", "file": "", "line": 0, "suggestion": "s"}


def test_a_review_written_before_there_were_screenshots_is_an_answer_the_api_could_send() -> None:
    schema = schema_for(Step.REVIEW)
    assert schema is not None
    old = {"summary": "s", "issues": [ISSUE, {**ISSUE, "screenshots": ["/"]}]}
    assert answer_problem(old, schema) == "answer.issues[0].screenshots is missing"
    sent = fill_empties(old, schema)
    assert answer_problem(sent, schema) is None
    assert [issue["screenshots"] for issue in sent["issues"]] == [[], ["/"]]


def test_issues_and_words_are_never_made_up() -> None:
    schema = schema_for(Step.REVIEW)
    assert schema is not None
    assert answer_problem(fill_empties({"summary": "s"}, schema), schema) == "answer.issues is missing"
    mute = {"summary": "s", "issues": [{name: value for name, value in ISSUE.items() if name != "title"}]}
    assert answer_problem(fill_empties(mute, schema), schema) == "answer.issues[0].title is missing"
    assert fill_empties({"summary": "s", "issues": ["x", None]}, schema)["issues"] == ["x", None]


def test_a_plan_written_before_tasks_had_roles_is_an_answer_too() -> None:
    schema = schema_for(Step.PLAN)
    assert schema is not None
    task = {"title": "t", "details": "d", "files": []}
    plan = {"title": "t", "problem": "", "solution": "s", "relevant_files": [], "tasks": [task], "validation": []}
    sent = fill_empties(plan, schema)
    assert answer_problem(sent, schema) is None
    assert sent["tasks"] == [task | {"role": None, "depends_on": []}]


WRONG = [
    ("title = ", "not valid TOML", "play.toml:1"),
    ('title = "x"', "line is missing", "play.toml:1"),
    ('[[line]]\nsay = "x"\n\n[[line]]\nsay = "y"\nlats = "z"', "unknown key lats (did you mean last?)", "play.toml:6"),
    ('[[line]]\nsay = "x"\nfault = "418"', "fault", "play.toml:3"),
    ('[[line]]\nsay = "x"\nstep = "implemet"', "step", "play.toml:3"),
    ('[[line]]\nsay = "x"\nstep = "commit"', "no model is asked in step commit", "play.toml:3"),
    ('[[line]]\nsay = "x"\nlast = "(["', "not a regular expression", "play.toml:3"),
    ('[[line]]\nsay = "x"\nturn = 0', "turn is 0, allowed is 1 or more", "play.toml:3"),
    ('[[line]]\nsay = "x"\n[[line]]\nstep = "plan"', "the line says nothing", "play.toml:3"),
    ('[[line]]\nsay = "x"\nanswer = { a = 1 }', "write one of them", "play.toml:1"),
    ('[[line]]\nsay = "x"\ntimes = 2', "belong to a fault", "play.toml:1"),
    ('[[line]]\nuse = [{ tool = "bash", inputs = {} }]', "unknown key inputs (did you mean input?)", "play.toml:2"),
]


@pytest.mark.parametrize(("toml", "what", "where"), WRONG)
def test_a_mistake_is_named_with_file_line_and_key(tmp_path, toml, what, where):
    file = tmp_path / "play.toml"
    file.write_text(toml)
    with pytest.raises(BadInput) as caught:
        Screenplay.load(file)
    assert what in caught.value.what
    assert caught.value.where.split(" ")[0] == f"{tmp_path}/{where}"
    assert caught.value.fix


@pytest.mark.parametrize("content", [None, b"\xc3\x28"])
def test_a_file_that_cannot_be_read_is_bad_input(tmp_path, content):
    file = tmp_path / "play.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput, match="cannot be read"):
        Screenplay.load(file)


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
