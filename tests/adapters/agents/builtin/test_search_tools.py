from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import psutil
import pytest
from tool_calls import called, mistake, ok, run

from perdure.adapters.agents.builtin.tools import Toolbox, search_tools
from perdure.adapters.agents.builtin.tools.search import glob_to_regex
from perdure.adapters.agents.builtin.tools.search_tools import SEARCH_FILE_BYTES, SEARCH_RESULTS
from tests.processes import alive
from tests.waiting import patient


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
