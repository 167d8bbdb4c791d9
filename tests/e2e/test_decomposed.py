"""One large request through the real command: decomposed, sent back, edited, approved, landed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError
from test_backlogs import CONFIG, adds

from tests.cli.conftest import Cli
from tests.engine import Engine, git, make_target, pulls, until

STORY = (
    """
[[line]]
step = "decompose"
contains = ["only what is asked"]
answer = { items = [
  { id = "sub", request = "Add subtract", depends_on = [], touches = ["calc.py"], check = [], role = "", priority = 0 },
  { id = "mul", request = "Add everything", depends_on = ["sub"], touches = [], check = [], role = "", priority = 0 },
] }
[[line]]
step = "decompose"
contains = ["there is no item div"]
answer = { items = [
  { id = "sub", request = "Add subtract", depends_on = [], touches = [], check = [], role = "", priority = 0 },
  { id = "art", request = "Paint it", depends_on = ["sub"], touches = [], check = [], role = "", priority = 0 },
] }
[[line]]
step = "decompose"
answer = { items = [
  { id = "sub", request = "Add subtract", depends_on = ["div"], touches = [], check = [], role = "", priority = 0 },
] }
"""
    + adds("sub", "subtract", "-")
    + adds("mul", "multiply", "*")
)


async def first_of(engine: Engine, seen: Callable[[list[dict[str, str]]], Any]) -> Any:
    """What is seen in the night's items, once it is."""

    async def look() -> Any:
        with suppress(RPCError):  # it has only just been asked for, or a busy machine does not answer
            return seen((await engine.handle("night").query("progress"))["items"])

    return await until(look, 90)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_large_request_is_decomposed_sent_back_edited_approved_and_lands(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    (tmp_path / "config.toml").write_text(CONFIG)
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        cli = Cli.among(engine)

        async def perdure(*args: str, code: int = 0, stdin: str = "") -> str:
            ran = await asyncio.to_thread(cli, *args, stdin=stdin)
            assert ran.code == code, f"{args}: {ran.out}{ran.err}\n{engine.worker_log()[-2000:]}"
            return ran.out + ran.err

        async def waits(behind: str = "") -> dict[str, str]:
            return await first_of(engine, lambda items: items[0].get("of", "") not in ("", behind) and items[0])

        engine.worker()
        start = ["backlog", "start", "--request", "Make a calculator", "--id", "night", "--repo", str(origin)]
        await perdure(*start, "--config", str(tmp_path / "config.toml"), "--detach")
        first = await waits()
        assert first["gate"] == "items"
        assert first["because"] == "approve the items: 2 items: sub, art"
        told = [call for call in engine.rehearsal.calls if call.step == "decompose"]
        assert len(told) == 2, "the answer that no backlog could begin with was asked for again"
        assert "perdure approve night/items" in await perdure("backlog", "status", "night")
        await perdure("reject", "night", "--note", "only what is asked")
        second = await waits(first["of"])
        assert second["because"] == "approve the items: 2 items: sub, mul"
        text = await perdure("approve", "night", "--print")
        edited = text.replace("Add everything", "Add multiply")
        assert edited != text
        wrong = edited.replace("- sub", "- sum")
        (tmp_path / "items.yaml").write_text(wrong)
        said = await perdure("approve", "night/items", "--file", str(tmp_path / "items.yaml"), code=2)
        assert "items.1.depends_on: there is no item sum (did you mean sub?)" in said
        assert "line " in said
        said = await perdure("approve", "night/items", "--file", str(tmp_path / "gone.yaml"), code=2)
        assert "the items cannot be read" in said
        assert "--print > items.yaml" in await perdure("approve", "night/items", "--edit", code=2)
        (tmp_path / "items.yaml").write_text(edited)
        await perdure("approve", "night/items", "--file", str(tmp_path / "items.yaml"))
        out = await perdure("backlog", "status", "night", "--watch")
        assert "decomposed" in out
        assert "2 landed" in out
        receipt = await perdure("backlog", "report", "night")
        assert "✓ 2 of 2 landed · items lost 0 · landed twice 0" in receipt
        assert "decomposed into 2 items: sub, mul" in await perdure("show", "night/items")
    code = git(origin, "show", "perdure/night:calc.py")
    assert "def subtract" in code
    assert "def multiply" in code
    subjects = git(origin, "log", "--format=%s", "main..perdure/night").splitlines()
    assert len(subjects) == 2


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_large_request_becomes_a_stack_of_pull_requests(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    (tmp_path / "config.toml").write_text(CONFIG)
    parts = STORY.replace('contains = ["only what is asked"]', "").replace("Add everything", "Add multiply")
    async with Engine.open(tmp_path, parts.replace("check = []", 'check = ["false"]', 1), ports=ports) as engine:
        engine.worker()
        cli = Cli.among(engine)
        start = ["backlog", "start", "--request", "Make a calculator", "--id", "night", "--repo", str(origin)]
        begun = await asyncio.to_thread(
            cli, *start, "--land", "stack", "--yes", "--config", str(tmp_path / "config.toml"), "--detach"
        )
        assert begun.code == 0, begun
        await first_of(engine, lambda items: [item["phase"] for item in items] == ["decomposed", "landed", "landed"])
        ran = await asyncio.to_thread(cli, "backlog", "status", "night", "--watch")
        assert ran.code == 0, ran
        sub, mul = ((await engine.handle("night").query("progress"))["items"])[1:]
    into = {pull["head"]: pull["base"] for pull in pulls(origin)}
    assert into == {sub["branch"]: "main", mul["branch"]: sub["branch"]}
    assert "def subtract" in git(origin, "show", f"{mul['branch']}:calc.py")


NIGHT = """
config: |
  {config}
items:
  - {{id: hello, request: Say hello, check: ["test -f hello.txt"]}}
  - {{id: tidy, request: Tidy up, depends_on: [hello]}}
"""

STUBBORN = """
[[line]]
step = "implement"
turn = 1
contains = ["Say hello"]
use = [{ tool = "bash", input = { command = "echo hello > hello.txt" } }]
[[line]]
step = "implement"
contains = ["Say hello"]
say = "Say hello"
[[line]]
step = "implement"
turn = 1
use = [{ tool = "bash", input = { command = "rm hello.txt; echo tidy > tidy.txt" } }]
[[line]]
step = "implement"
say = "Tidy up"
[[line]]
step = "fix_landing"
say = "It is tidy as it is"
"""


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_what_cannot_land_is_decided_by_a_person_once_more_or_not_at_all(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    (tmp_path / "night.yaml").write_text(NIGHT.format(config=CONFIG.replace("\n", "\n  ")))
    async with Engine.open(tmp_path, STUBBORN, ports=ports) as engine:
        cli = Cli.among(engine)

        async def perdure(*args: str, code: int = 0) -> str:
            ran = await asyncio.to_thread(cli, *args)
            assert ran.code == code, f"{args}: {ran.out}{ran.err}\n{engine.worker_log()[-2000:]}"
            return ran.out + ran.err

        async def tidy(behind: str = "") -> dict[str, str]:
            def stands(items: list[dict[str, str]]) -> Any:
                return (items[1].get("of", "") not in ("", behind) or items[1]["phase"] == "failed") and items[1]

            return await first_of(engine, stands)

        engine.worker()
        await perdure("backlog", "start", str(tmp_path / "night.yaml"), "--repo", str(origin), "--detach")
        first = await tidy()
        mended = len([call for call in engine.rehearsal.calls if call.step == "fix_landing"])
        assert first["gate"] == "landing", first
        assert first["because"].startswith("it could not land: "), first
        assert first["because"].endswith("approve to mend it again, reject to end it")
        assert "perdure approve night/tidy" in await perdure("backlog", "status", "night")
        assert "approved: landing" in await perdure("approve", "night")
        second = await tidy(first["of"])
        assert second["gate"] == "landing"
        assert len([call for call in engine.rehearsal.calls if call.step == "fix_landing"]) > mended, "mended once more"
        assert "rejected: landing" in await perdure("reject", "night", "--note", "leave it")
        out = await perdure("backlog", "status", "night", "--watch", code=1)
        assert "rejected: leave it" in out, out
    assert git(origin, "show", "perdure/night:hello.txt") == "hello"
