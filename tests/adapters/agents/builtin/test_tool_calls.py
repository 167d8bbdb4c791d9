"""Calls of tools: checked, described for people, and searches in the worktree."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tool_calls import called, mistake, ok, run

from perdure.adapters.agents.builtin.tools import Toolbox, describe_reply, search_tools, tool_definitions
from perdure.adapters.agents.builtin.tools.search import glob_to_regex
from perdure.adapters.agents.builtin.tools.search_tools import SEARCH_FILE_BYTES, SEARCH_RESULTS
from perdure.adapters.agents.builtin.tools.tool_calls import command_in
from perdure.models.delivery.steps import AGENTIC, WRITERS
from perdure.models.phases import Step
from tests.processes import alive
from tests.waiting import patient


@pytest.mark.parametrize("step", AGENTIC)
def test_every_step_has_its_tools_sorted_and_closed(step: Step) -> None:
    names = [tool["name"] for tool in tool_definitions(step)]
    assert names == sorted(names)
    assert json.dumps(tool_definitions(step)) == json.dumps(tool_definitions(step))
    for tool in tool_definitions(step):
        assert set(tool) == {"name", "description", "input_schema"}
        assert tool["input_schema"]["additionalProperties"] is False
    assert ("write" in names) is (step in WRITERS)
    assert bool(names) is (step is not Step.CLASSIFY)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("browse", {"url": "http://x"}, "there is no tool 'browse' in this step; there are: ask, bash, edit"),
        ("read", {}, "path: Field required"),
        ("read", {"path": "a", "lines": 3}, "lines: Extra inputs are not permitted"),
        ("read", {"path": 7}, "path: Input should be a valid string"),
        ("read", {"path": "a", "offset": 0}, "offset: Input should be greater than or equal to 1"),
        ("bash", {"command": "true", "timeout": -1}, "timeout"),
        ("read", "a.py", "input"),
        ("edit", None, "input"),
        ("write", [], "input"),
    ],
)
async def test_a_wrong_call_is_answered_with_what_is_wrong(toolbox: Toolbox, name: str, given: Any, words: str) -> None:
    (result,) = await run(toolbox, called(name, given))
    assert result["is_error"] is True
    assert words in result["content"]


@pytest.mark.parametrize("step", [Step.PLAN, Step.REVIEW])
@pytest.mark.parametrize("name", ["write", "edit"])
async def test_reading_steps_have_no_writing_tools(toolbox: Toolbox, step: Step, name: str) -> None:
    (result,) = await run(toolbox, called(name, {"path": "x", "content": "y"}), step=step)
    assert "there is no tool" in result["content"]
    assert not (toolbox.worktree / "x").exists()


async def test_every_call_is_answered_once_in_order_and_a_mistake_does_not_stop_the_next(toolbox: Toolbox) -> None:
    results = await run(
        toolbox,
        {"type": "text", "text": "Let me see."},
        called("write", {"path": "n.txt", "content": "x"}, "t1"),
        called("nonsense", {}, "t2"),
        called("edit", {"path": "n.txt", "old": "x", "new": "y"}, "t3"),
        called("bash", {"command": "cat n.txt"}, "t4"),
    )
    assert [result["tool_use_id"] for result in results] == ["t1", "t2", "t3", "t4"]
    assert [result.get("is_error", False) for result in results] == [False, True, False, False]
    assert results[3]["content"] == "exit code 0\ny"


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([called("edit", {"path": "src/x.py"}), called("bash", {"command": "pytest -q"})], "edit src/x.py, pytest -q"),
        ([called("grep", {"pattern": "a"}), called("glob", {"pattern": "*.py"})], "grep a, glob *.py"),
        ([called("bash", {"command": "a \\\n  b\x1b[31m\u202e c"})], "a \\ b c"),
        ([called("bash", "not an object"), called("read", {})], "bash, read"),
        ([{"type": "text", "text": "## Done\nmore"}], "Done"),
        ([{"type": "thinking", "thinking": "hm", "signature": "s"}], "no answer"),
    ],
)
def test_a_turn_is_described_in_a_few_plain_words(blocks: list[dict[str, Any]], words: str) -> None:
    assert describe_reply({"role": "assistant", "content": blocks}) == words


def test_a_description_has_at_most_80_characters() -> None:
    words = describe_reply({"role": "assistant", "content": [called("bash", {"command": "x" * 500})] * 3})
    assert len(words) <= 80
    assert words.isprintable()


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


@pytest.fixture
def many(worktree: Path) -> Path:
    for name, text in {
        "README.md": "Durations\n",
        "src/web/app.ts": "export const duration = 1\n",
        "tests/test_parse.py": "def test_parse():\n    assert Parse\n",
        "node_modules/x/index.js": "parse\n",
        ".venv/lib/x.py": "parse\n",
        ".git": "parse\n",
        "src/__pycache__/x.py": "parse\n",
    }.items():
        (worktree / name).parent.mkdir(parents=True, exist_ok=True)
        (worktree / name).write_text(text)
    (worktree / "data.bin").write_bytes(b"\0parse\n")
    (worktree / "latin.txt").write_bytes(b"caf\xe9 parse\n")
    return worktree


async def test_grep_names_file_line_and_text_in_order_of_path(toolbox: Toolbox, many: Path) -> None:
    assert (await ok(toolbox, "grep", pattern=r"\bparse\b")).splitlines() == [
        "latin.txt:1: caf\ufffd parse",
        "src/durations.py:1: def parse(text):",
    ]
    folded = await ok(toolbox, "grep", pattern="assert parse", ignore_case=True)
    assert folded == "tests/test_parse.py:2:     assert Parse", "indentation is kept for edit"
    assert await ok(toolbox, "grep", pattern="nowhere at all") == "no matches"


async def test_grep_looks_where_it_is_told(toolbox: Toolbox, many: Path) -> None:
    only = await ok(toolbox, "grep", pattern="duration", glob="*.ts", ignore_case=True)
    assert only.splitlines() == ["src/web/app.ts:1: export const duration = 1"]
    assert await ok(toolbox, "grep", pattern="parse", path="src/durations.py") == "src/durations.py:1: def parse(text):"
    assert "x.py:1" in await ok(toolbox, "grep", pattern="parse", path=".venv/lib")


async def test_glob_lists_files_and_no_dependencies(toolbox: Toolbox, many: Path) -> None:
    assert (await ok(toolbox, "glob", pattern="*.py")).splitlines() == ["src/durations.py", "tests/test_parse.py"]
    assert await ok(toolbox, "glob", pattern="src/**/*.ts") == "src/web/app.ts"
    assert await ok(toolbox, "glob", pattern="web/*.ts", path="src") == "src/web/app.ts"


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.py", "a/b/c.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/b/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("**/test_*.py", "x/y/test_a.py", True),
        ("src/**", "src/a/b", True),
        ("a?.{ts,tsx}", "ab.tsx", True),
        ("a?.{ts,tsx}", "abc.ts", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("a.b", "aXb", False),
        ("{a", "{a", True),
        ("{a,{b,c}}.x", "c.x", True),
        ("[", "[", True),
        ("./src/*.py", "src/a.py", True),
    ],
)
def test_globs_mean_what_people_expect(glob: str, path: str, matches: bool) -> None:
    assert bool(glob_to_regex(glob).fullmatch(path)) is matches


async def test_a_bad_pattern_is_the_models_mistake(toolbox: Toolbox) -> None:
    assert "not a regular expression" in await mistake(toolbox, "grep", pattern="(unclosed")
    assert "no such file" in await mistake(toolbox, "grep", pattern="x", path="nowhere")


async def test_too_many_results_are_cut_and_said_to_be(toolbox: Toolbox, worktree: Path) -> None:
    (worktree / "many.txt").write_text("hit\n" * (SEARCH_RESULTS + 50))
    lines = (await ok(toolbox, "grep", pattern="hit")).splitlines()
    assert len(lines) == SEARCH_RESULTS + 1
    assert "narrow the search" in lines[-1]


async def test_large_files_are_not_searched_and_that_is_said(toolbox: Toolbox, worktree: Path) -> None:
    (worktree / "large.txt").write_bytes(b"hit\n" * (SEARCH_FILE_BYTES // 4 + 1))
    assert "1 files over" in await ok(toolbox, "grep", pattern="hit")


async def test_links_and_pipes_are_not_opened(toolbox: Toolbox, worktree: Path) -> None:
    (worktree.parent / "outside.txt").write_text("secret\n")
    (worktree / "link.txt").symlink_to(worktree.parent / "outside.txt")
    (worktree / "up").symlink_to(worktree.parent)
    os.mkfifo(worktree / "pipe")
    assert await ok(toolbox, "grep", pattern="secret") == "no matches"


async def test_a_file_name_that_is_not_utf_8_is_shown_so_that_it_can_be_sent(toolbox: Toolbox, worktree: Path) -> None:
    (worktree / os.fsdecode(b"caf\xe9.txt")).write_text("hit\n")
    assert (await ok(toolbox, "grep", pattern="hit")).encode()


def children() -> set[int]:
    """Of this test process; other tests have left theirs (a pool's resource tracker)."""
    return {child.pid for child in psutil.Process().children()}


@pytest.mark.timeout(30)
async def test_a_pattern_without_end_stops_neither_the_worker_nor_its_heartbeat(
    toolbox: Toolbox, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_tools, "SEARCH_S", 1.0)
    (worktree / "trap.txt").write_text("a" * 60 + "!\n")
    beats, before = 0, children()

    async def heartbeat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.05)
            beats += 1

    beating = asyncio.create_task(heartbeat())
    assert "did not end" in await mistake(toolbox, "grep", pattern="(a+)+$")
    beating.cancel()
    assert beats >= 10
    assert children() == before


@pytest.mark.timeout(30)
async def test_a_cancelled_search_leaves_no_process_behind(toolbox: Toolbox, worktree: Path) -> None:
    (worktree / "trap.txt").write_text("a" * 60 + "!\n")
    before = children()
    task = asyncio.create_task(run(toolbox, called("grep", {"pattern": "(a+)+$"})))
    while children() == before:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == before


@pytest.mark.timeout(40)
async def test_a_search_dies_with_its_worker(worktree: Path) -> None:
    """A real worker-like process starts a search without end and is killed with SIGKILL."""
    (worktree / "trap.txt").write_text("a" * 60 + "!\n")
    code = f"""
import asyncio, pathlib
from perdure.adapters.agents.builtin.tools import Toolbox, run_calls
from perdure.models.phases import Step
box = Toolbox(worktree=pathlib.Path({str(worktree)!r}), sandbox=None, log_dir=pathlib.Path("/"), check=lambda: None)
call = {{"type": "tool_use", "id": "t", "name": "grep", "input": {{"pattern": "(a+)+$"}}}}
asyncio.run(run_calls({{"role": "assistant", "content": [call]}}, box, Step.IMPLEMENT))
"""
    import sys

    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    search = await _busy_child(psutil.Process(worker.pid))
    worker.kill()
    await worker.wait()
    deadline = time.monotonic() + patient(10)
    while alive(search) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert not alive(search)


async def _busy_child(worker: psutil.Process) -> psutil.Process:
    """The search, once it is past its start and matching."""
    while True:
        for child in worker.children():
            if child.cpu_times().user > 0.2:
                return child
        await asyncio.sleep(0.02)
