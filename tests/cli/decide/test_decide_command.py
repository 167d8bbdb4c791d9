"""Deciding, saying and holding at the command line: what counts, what is refused in which words, and nothing hangs."""

from __future__ import annotations

import asyncio
import json

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError

from perdure.adapters.system.home import login_name
from perdure.models.delivery.decisions import Question, QuestionKind
from perdure.models.delivery.steps import Plan
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.delivery.work import EscalationSettings
from perdure.models.rules.inbox import NotCounted
from tests.cli.conftest import Cli
from tests.cli.decision_fixtures import Desk, desk, on_a_terminal
from tests.cli.typist import Typist

pytestmark = pytest.mark.story

__all__ = ["desk"]


@pytest.mark.timeout(120)
async def test_a_plan_is_rejected_edited_and_approved_and_each_decision_names_what_it_decided(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("plan-one")
        first = await desk.asked("plan-one")
        watched = await desk("watch", "plan-one", "--no-wait", "--json", code=4)
        assert (watched.out, watched.err.count("! waits for you: approve the plan: Add sub\n")) == ("", 1)
        watched = await desk("watch", "plan-one", "--no-wait", code=4)
        assert watched.out.count("! waits for you: approve the plan: Add sub\n") == 1
        shown = (await desk("show", "plan-one")).out
        assert "plan-one  waiting" in shown
        assert "! waits for you: approve the plan: Add sub" in shown
        assert "perdure approve plan-one\n" in shown
        assert "answer" in await desk.refused("answer", "plan-one", "yes")
        assert "not for beef" in await desk.refused("approve", "plan-one", "--of", "beef")
        assert "say why" in await desk.refused("reject", "plan-one")

        told = json.loads((await desk("reject", "plan-one", "--note", "with types", "--json")).out)
        assert told["answer"] == f"rejected: plan {first.target}"
        told = await desk.refused("approve", "plan-one")
        assert "nothing waits for a decision: plan-one is at plan" in told
        desk.scene.replans.set()
        second = await desk.asked("plan-one", first.target)
        printed = (await desk("approve", "plan-one", "--print")).out
        assert "problem: |-\n  There is no sub.\n  People want it.\n  with types\n" in printed
        told = json.loads((await desk("approve", "plan-one", "--print", "--json")).out)
        assert told == {"delivery_id": "plan-one", "of": second.target, "plan": printed}
        assert (await desk("approve", "plan-one", "--file", "-", stdin=printed, code=1)).out.startswith("unchanged")
        assert (await desk("approve", "plan-one", "--file", "-", stdin="# \n", code=1)).out.startswith("empty")
        bad = printed.replace("    details:", "    detail:")
        (desk.cli.cwd / "bad.yaml").write_text(bad)
        line = 1 + bad.splitlines().index("    detail: Beside add.")
        told = await desk.refused("approve", "plan-one", "--file", "bad.yaml")
        assert f"line {line}: tasks.0.detail: unknown field (did you mean details?)" in told
        assert "bad.yaml" in told
        assert "no terminal" in await desk.refused("approve", "plan-one", "--edit")
        assert (await desk.asked("plan-one")).target == second.target

        good = printed.replace("title: Add sub", "title: Add sub and mul", 1)
        ended = await desk("approve", "plan-one", "--file", "-", stdin=good)
        assert f"edited: plan {second.target}" in ended.out
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
    desk.scene.question = Question(
        text="Which?", kind=QuestionKind.CHOICE, choices=("left", "right"), why="it is a fork"
    )
    async with desk.worker():
        await desk.submit("question-one")
        await desk.asked("question-one")
        shown = (await desk("show", "question-one")).out
        assert "! waits for you: Which?\n" in shown
        assert "it matters because: it is a fork" in shown
        assert "2  right" in shown
        told = await desk.refused("answer", "question-one", "straight on")
        assert "'straight on' is none of the 2 choices" in told
        assert "perdure answer question-one --choice 1 (left) or 2 (right)" in told
        assert "does not decide this" in await desk.refused("approve", "question-one")
        assert "twice" in await desk.refused("answer", "question-one", "left", "--choice", "1")
        assert "no delivery waits for that" in await desk.refused("approve", "--edit")
        await desk("hold", "question-one", "--note", "let me look")
        listed = json.loads((await desk("list", "--waiting", "--json")).out)
        assert [(one["delivery_id"], one["asked"]["gate"]) for one in listed] == [("question-one", "question")]
        told = (await desk("answer", "@waiting", "2")).out
        assert (
            told
            == f"✓ answered: right\n! held by {login_name()}: let me look\n  next     perdure resume question-one\n"
        )
        assert f"held by {login_name()}: let me look" in await desk.refused("approve", "question-one")
        await desk("resume", "question-one")
        assert (await desk.result("question-one")).status == "completed"
        answers = [(said.question, said.text) for work in desk.scene.seen for said in work.messages]
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
        asked = await desk.asked("nobody")
    approving = asyncio.create_task(desk("approve", "nobody"))
    with pytest.raises(NotCounted, match="does not decide this"):  # nobody could be told so later
        await desk.perdure.delivery("nobody").answer("yes", asked.target)
    told = (await approving).out
    assert told == "! recorded, not yet read: no worker is running (perdure worker)\n"
    assert await desk.signals("nobody") == [
        ("decide", {"update": "approve", "said": {"of": asked.target, "by": login_name()}})
    ]
    await desk("say", "nobody", "one")
    await desk("say", "nobody", "-", stdin="two")
    shown = (await desk("show", "nobody")).out
    assert "perdure approve nobody" in shown
    assert "✓ plan " in shown, "steps are told from history"
    assert "! recorded, not yet read: approve, say, say\n" in shown
    async with desk.worker():
        result = await desk.result("nobody")
    assert result.status == "completed"
    assert result.unread == ("one", "two")
    assert "unread   2 messages were not read: one" in (await desk("show", "nobody")).out


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
        assert f"! held by {login_name()}: wait for me\n" in shown
        assert "perdure resume held-one" in shown
        told = await desk.refused("approve", "held-one")
        assert f"nothing waits for a decision: held by {login_name()}: wait for me" in told
        assert "fix: perdure resume held-one" in told
        assert desk.scene.seen == []
        await desk("resume", "held-one")
        assert (await desk.result("held-one")).status == "completed"
    for command in (("say", "held-one", "x"), ("hold", "held-one"), ("resume", "held-one")):
        assert "has ended" in await desk.refused(*command)


async def presses(cli: Cli, key: str, *args: str) -> str:
    """All that a command shows to a person who presses a key once they are asked."""

    def person() -> str:
        with Typist(cli, *args) as typist:
            typist.until(r"\[l\]ater ")
            typist.types(key)
            typist.ends()
            return typist.seen

    return await asyncio.to_thread(person)


@pytest.mark.timeout(120)
async def test_on_a_terminal_approve_shows_the_plan_and_asks_and_an_editor_edits_it(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("terminal")
        first = await desk.asked("terminal")
        no = await presses(desk.cli, "n", "approve", "terminal")
        assert "1. Write sub  (calc.py)" in no
        assert "[a]pprove [r]eject [e]dit [l]ater" in no
        assert "it still waits" in no
        editor = desk.cli.cwd / "editor"
        editor.write_text('#!/bin/sh\nsed -i "s/^solution:.*/solution: []/" "$1"\n')
        editor.chmod(0o755)
        slip = await on_a_terminal(desk.cli, "n\n", "approve", "terminal", "--edit", EDITOR=str(editor))
        (kept,) = (desk.cli.home / "plans").iterdir()
        assert "solution: Input should be a valid string" in slip
        assert str(kept) in slip
        editor.write_text('#!/bin/sh\nsed -i "s/^solution:.*/solution: Write it well./" "$1"\n')
        with Typist(desk.cli, "approve", "terminal", "--edit", EDITOR=str(editor)) as person:
            person.types("y\n")  # before anything is asked: it approves nothing
            await asyncio.to_thread(person.until, "going on with what you edited before")
            await asyncio.to_thread(person.until, r"approve the edited plan\?")
            person.types("n\n")
            await asyncio.to_thread(person.until, "not approved: it waits")
            await asyncio.to_thread(person.ends)
        assert f"edited: plan {first.target}" in person.seen
        assert not kept.exists()
        await desk.asked("terminal", first.target)
        assert "approved: plan" in await presses(desk.cli, "y", "approve", "terminal")
        result = await desk.result("terminal")
        sha256 = result.plan.removeprefix("artifact:sha256:")
        assert Plan.model_validate_json(desk.scene.artifacts[sha256]).solution == "Write it well."


@pytest.mark.timeout(120)
async def test_cancel_lets_the_turn_that_runs_end_and_loses_nothing_of_it(desk: Desk) -> None:
    async def slowly(work: TurnInput) -> TurnResult:
        for _ in range(40):
            activity.heartbeat()
            await asyncio.sleep(0.05)
        return await desk.scene.endless(work)

    async def begun() -> bool:
        return len(desk.scene.seen) >= 2

    desk.scene.turn = slowly
    async with desk.worker():
        await desk.submit("rest-one")
        await desk.until(begun)
        told = await desk("cancel", "rest-one")
        assert "what runs may end first" in told.out
        result = await desk.result("rest-one")
        assert result.status == "cancelled"
        assert result.steps[-1].turns == len(desk.scene.seen), "a turn was cut off"
        assert "rest-one has ended: there is nothing to cancel" in await desk.refused("cancel", "rest-one")


@pytest.mark.timeout(120)
async def test_what_died_while_it_was_prepared_is_shown_and_decided_like_any_other_gate(desk: Desk) -> None:
    """Of its repository, branch and plan nothing is known yet."""
    words = "prepare was cut off 3 times: its worker died (3 times)"
    dead = ApplicationError(words, EscalationSettings(asks=True), type="TurnKillsWorker", non_retryable=True)
    async with desk.worker():
        for id in ("goes-on", "ends"):
            desk.scene.troubles = {"prepare": [dead]}
            await desk.submit(id)
            asked = await desk.asked(id)
            assert (asked.gate, asked.target) == ("deaths", "prepare-1")
            assert f"! waits for you: {words}; approve to try again, reject to end it" in (await desk("show", id)).out
            watched = await desk("watch", id, "--no-wait", code=4)
            assert f"perdure approve {id}" in watched.out
            assert id in (await desk("list", "--waiting")).out
            if id == "goes-on":
                await desk("approve", id)
                assert (await desk.asked(id, asked.target)).gate == "plan"
            else:
                await desk("reject", id, "--note", "a larger host first")
                result = await desk.perdure.delivery(id).result()
                assert result.message == f"{words}; rejected: a larger host first"
