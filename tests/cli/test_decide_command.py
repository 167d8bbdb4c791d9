"""Deciding, saying and holding at the command line: what counts, what is refused in which words, and nothing hangs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import pty
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.models.decisions import Asked, KeepInput, Kept, Question, QuestionKind
from perdure.models.ledger import Spend, Usage
from perdure.models.phases import Phase
from perdure.models.policy import TASK_QUEUE
from perdure.models.report import Plan, Task
from perdure.models.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.work import Page, ReadInput
from perdure.plugin import perdure_plugin
from tests.cli.conftest import Cli, Ran
from tests.served import server
from tests.workflows.workflow_cast import Cast
from workflows import WORKFLOWS

__all__ = ["server"]

PLAN = Plan(
    title="Add sub",
    problem="There is no sub.\nPeople want it.",
    solution="Write it.",
    relevant_files=["calc.py"],
    tasks=[Task(title="Write sub", details="Beside add.", files=["calc.py"])],
    validation=["sub(3, 2) is 1"],
)


class Scene(Cast):
    """A delivery that plans; `artifacts` is what its host keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.phases, self.turn = (Phase.PLAN,), self.plans
        self.settings = {"asks": True, "gates": ("plan",), "budget_usd": 5.0}
        self.artifacts: dict[str, bytes] = {}
        self.asks: Question | None = None

    def put(self, text: str) -> str:
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        self.artifacts[sha256] = text.encode()
        return sha256

    async def plans(self, work: TurnInput) -> TurnResult:
        if self.asks is not None and work.step == "plan" and work.turn == 1:
            return TurnResult(checkpoint="c1" * 20, summary="turn 1", spend=Spend(usd=0.0), question=self.asks)
        data: dict[str, Any] = {"kind": "feature"} if work.step == "classify" else {"title": PLAN.title}
        made = PLAN.model_copy(update={"problem": f"{PLAN.problem}\n{work.materials.get('words', '')}"})
        artifact = "" if work.step == "classify" else self.put(made.model_dump_json())
        outcome = Outcome(ending=Ending.DONE, summary="done", data=data, artifact=artifact)
        notes = tuple(said.id for said in work.said)
        return TurnResult(
            checkpoint="c2" * 20, summary="turn 2", usage=Usage(), spend=Spend(usd=0.25), outcome=outcome, notes=notes
        )

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn
        async def keep(work: KeepInput) -> Kept:
            return Kept(sha256=self.put(work.text))

        @activity.defn
        async def read(work: ReadInput) -> Page:
            return Page(text=base64.b64encode(self.artifacts[work.checkpoint]).decode())

        return [*super().activities(), keep, read]


class Desk:
    """Where a person sits: the real command, with nothing but a Temporal connection."""

    def __init__(self, cli: Cli, perdure: Perdure, client: Client) -> None:
        self.cli, self.perdure, self.client = cli, perdure, client
        self.scene = Scene()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with asyncio.timeout(80):
            async with Worker(
                self.client, task_queue=TASK_QUEUE, workflows=WORKFLOWS, activities=self.scene.activities()
            ):
                yield

    async def __call__(self, *args: str, code: int = 0, stdin: str = "") -> Ran:
        ran: Ran = await asyncio.to_thread(self.cli, *args, stdin=stdin)
        assert ran.code == code, (args, ran)
        return ran

    async def refused(self, *args: str) -> str:
        """What a command says that counts nothing: three lines at most."""
        told = (await self(*args, code=2)).err
        assert len(told.strip().splitlines()) <= 3, told
        return told

    async def submit(self, id: str, **more: Any) -> str:
        await self.perdure.submit({"repository": "/r", "request": "Add sub", "phases": ["plan"], **more}, id=id)
        return id

    async def asked(self, id: str, not_of: str = "") -> Asked:
        found: Asked = await self.until(lambda: self._asked(id, not_of))
        return found

    async def _asked(self, id: str, not_of: str) -> Asked | None:
        asked = (await self.perdure.delivery(id).describe()).asked
        return asked if asked is not None and asked.of != not_of else None

    async def until(self, what: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(30):
            while not (found := await what()):
                await asyncio.sleep(0.05)
        return found

    async def result(self, id: str) -> Any:
        async with asyncio.timeout(30):
            return await self.perdure.delivery(id).result()


@pytest.fixture
async def desk(server: str, tmp_path: Path) -> Desk:
    client = await Client.connect(server, plugins=[perdure_plugin()])
    cli = Cli(tmp_path / "home", tmp_path, {"TEMPORAL_ADDRESS": server})
    return Desk(cli, Perdure(client), client)


@pytest.mark.timeout(120)
async def test_a_plan_is_rejected_edited_and_approved_and_each_decision_names_what_it_decided(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("plan-one")
        first = await desk.asked("plan-one")
        shown = (await desk("show", "plan-one")).out
        assert "plan-one  waiting" in shown
        assert "! waits for you: approve the plan: Add sub" in shown
        assert "perdure approve plan-one\n" in shown
        assert "answer" in await desk.refused("answer", "plan-one", "yes")
        assert "not for beef" in await desk.refused("approve", "plan-one", "--of", "beef")
        assert "say why" in await desk.refused("reject", "plan-one")

        told = json.loads((await desk("reject", "plan-one", "--note", "with types", "--json")).out)
        assert told["answer"] == f"rejected: plan {first.of}"
        second = await desk.asked("plan-one", first.of)
        printed = (await desk("edit-plan", "plan-one", "--print")).out
        assert "problem: |-\n  There is no sub.\n  People want it.\n  with types\n" in printed
        assert (await desk("edit-plan", "plan-one", "--file", "-", stdin=printed, code=1)).out.startswith("unchanged")
        assert (await desk("edit-plan", "plan-one", "--file", "-", stdin="# \n", code=1)).out.startswith("empty")
        bad = printed.replace("    details:", "    detail:")
        (desk.cli.cwd / "bad.yaml").write_text(bad)
        line = 1 + bad.splitlines().index("    detail: Beside add.")
        told = await desk.refused("edit-plan", "plan-one", "--file", "bad.yaml")
        assert f"line {line}: tasks.0.detail: unknown field (did you mean details?)" in told
        assert "bad.yaml" in told
        assert "no terminal" in await desk.refused("edit-plan", "plan-one")
        assert (await desk.asked("plan-one")).of == second.of

        good = printed.replace("title: Add sub", "title: Add sub and mul", 1)
        ended = await desk("edit-plan", "plan-one", "--file", "-", "--approve", stdin=good)
        assert f"edited: plan {second.of}" in ended.out
        assert "✓ approved: plan " in ended.out
        result = await desk.result("plan-one")
        assert result.status == "completed"
        sha256 = result.plan.removeprefix("artifact:sha256:")
        assert Plan.model_validate_json(desk.scene.artifacts[sha256]).title == "Add sub and mul"
        told = await desk.refused("approve", "plan-one")
        assert "plan-one has ended (completed)" in told
        assert "did you mean plan-one?" in await desk.refused("approve", "plan-onr")


@pytest.mark.timeout(120)
async def test_a_question_takes_one_of_its_choices_and_says_which_there_are(desk: Desk) -> None:
    desk.scene.settings["gates"] = ()
    desk.scene.asks = Question(text="Which?", kind=QuestionKind.CHOICE, choices=("left", "right"), why="it is a fork")
    async with desk.worker():
        await desk.submit("question-one")
        await desk.asked("question-one")
        shown = (await desk("show", "question-one")).out
        assert "! waits for you: Which?\n" in shown
        assert "it matters because: it is a fork" in shown
        assert "2  right" in shown
        told = await desk.refused("answer", "question-one", "straight on")
        assert "'straight on' is none of left, right" in told
        assert "perdure answer question-one --choice 1" in told
        assert "does not decide this" in await desk.refused("approve", "question-one")
        assert "twice" in await desk.refused("answer", "question-one", "left", "--choice", "1")
        told = json.loads((await desk("answer", "question-one", "--choice", "2", "--json")).out)
        assert (told["decided"], told["read"]) == ("answer", True)
        assert (await desk.result("question-one")).status == "completed"
        answers = [(said.about, said.text) for work in desk.scene.seen for said in work.said]
        assert answers == [("Which?", "right")]


@pytest.mark.timeout(120)
async def test_a_budget_is_shown_raised_and_never_lowered(desk: Desk) -> None:
    desk.scene.settings |= {"budget_usd": 0.2, "gates": ("plan",)}
    async with desk.worker():
        await desk.submit("budget-one")
        await desk.asked("budget-one")
        assert "dollars  $0.25 of $0.20" in (await desk("budget", "budget-one")).out
        for wrong in (("--add", "-1"), ("--add", "0"), ("--add", "nan"), ("--tokens", "0")):
            assert "a budget is only ever raised" in await desk.refused("budget", "budget-one", *wrong)
        assert "time: " in await desk.refused("budget", "budget-one", "--time", "soon")
        assert "added $5 and 1h" in (await desk("budget", "budget-one", "--add", "5", "--time", "1h")).out
        shown = json.loads((await desk("budget", "budget-one", "--json")).out)
        assert shown["usd"]["limit"] == 5.2
        assert shown["time_s"]["limit"] == 3 * 3600
        assert (await desk.asked("budget-one")).gate == "plan", "the gate still waits"
        await desk("approve", "budget-one")
        assert (await desk.result("budget-one")).status == "completed"
        assert "has ended" in await desk.refused("budget", "budget-one", "--add", "5")


@pytest.mark.timeout(120)
async def test_what_is_decided_while_no_worker_runs_is_recorded_and_read_by_the_next_one(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("nobody")
        await desk.asked("nobody")
    told = (await desk("approve", "nobody")).out
    assert told == "! recorded, not yet read: no worker is running (perdure up --detach)\n"
    assert "perdure approve nobody" in (await desk("show", "nobody")).out
    await desk("say", "nobody", "one")
    await desk("say", "nobody", "-", stdin="two")
    async with desk.worker():
        result = await desk.result("nobody")
    assert result.status == "completed"
    assert result.unread == ("one", "two")
    assert "unread   2 words were not read: one" in (await desk("show", "nobody")).out


@pytest.mark.timeout(120)
async def test_a_held_delivery_says_who_holds_it_and_goes_on_after_resume(desk: Desk) -> None:
    desk.scene.settings["gates"] = ()
    await desk.submit("held-one")
    assert "no further turn begins" in (await desk("hold", "held-one", "--note", "wait for me")).out
    async with desk.worker():
        progress = desk.perdure.delivery("held-one").progress

        async def held() -> bool:
            return bool((await progress()).waiting)

        await desk.until(held)
        shown = (await desk("show", "held-one")).out
        assert "! held: wait for me\n" in shown
        assert "perdure resume held-one" in shown
        told = await desk.refused("approve", "held-one")
        assert "nothing waits for a decision: held-one is at held: wait for me" in told
        assert desk.scene.seen == []
        await desk("resume", "held-one")
        assert (await desk.result("held-one")).status == "completed"
    for command in (("say", "held-one", "x"), ("hold", "held-one"), ("resume", "held-one")):
        assert "has ended" in await desk.refused(*command)


@pytest.mark.timeout(120)
async def test_on_a_terminal_approve_shows_the_plan_and_asks_and_an_editor_edits_it(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("terminal")
        first = await desk.asked("terminal")
        no = await on_a_terminal(desk.cli, "n\n", "approve", "terminal")
        assert "1. Write sub  (calc.py)" in no
        assert "approve?" in no
        assert "it still waits" in no
        editor = desk.cli.cwd / "editor"
        editor.write_text('#!/bin/sh\nsed -i "s/^solution:.*/solution: []/" "$1"\n')
        editor.chmod(0o755)
        slip = await on_a_terminal(desk.cli, "", "edit-plan", "terminal", EDITOR=str(editor))
        (kept,) = (desk.cli.home / "plans").iterdir()
        assert "solution: Input should be a valid string" in slip
        assert str(kept) in slip
        editor.write_text('#!/bin/sh\nsed -i "s/^solution:.*/solution: Write it well./" "$1"\n')
        mended = await on_a_terminal(desk.cli, "", "edit-plan", "terminal", EDITOR=str(editor))
        assert "going on with what you edited before" in mended
        assert f"edited: plan {first.of}" in mended
        assert not kept.exists()
        await desk.asked("terminal", first.of)
        assert "approved: plan" in await on_a_terminal(desk.cli, "y\n", "approve", "terminal")
        result = await desk.result("terminal")
        sha256 = result.plan.removeprefix("artifact:sha256:")
        assert Plan.model_validate_json(desk.scene.artifacts[sha256]).solution == "Write it well."


async def on_a_terminal(cli: Cli, typed: str, *args: str, **env: str) -> str:
    """What a command writes to a terminal on which a person types."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure.cli", *args),
        cwd=cli.cwd,
        env=cli.environment(TERM="xterm", COLUMNS="200", NO_COLOR="1", **env),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    reading = asyncio.create_task(asyncio.to_thread(_drain, ours))
    try:
        async with asyncio.timeout(60):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        text = await reading
        os.close(ours)
    return text.replace("\r\n", "\n")


def _drain(terminal: int) -> str:
    seen = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # EIO: nobody has it open any more
            return seen.decode(errors="replace")
        if not chunk:
            return seen.decode(errors="replace")
        seen += chunk
