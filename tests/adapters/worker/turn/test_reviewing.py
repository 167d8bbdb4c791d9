"""A review as it is carried out: what it is told, what is done with the places it names, what the engine finds."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from turn_fixtures import DELIVERY, Bench, in_activity

from activities.commit import CommitActivity
from activities.inspect_change import InspectChangeActivity
from perdure.adapters.git.checkpoint import snapshot_worktree
from perdure.adapters.git.objects import TreeEntry
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.host import Host
from perdure.models.checks.report import CommandExperiment, Experiment, Findings, Promise, Review, Severity, TestReport
from perdure.models.delivery.decisions import UserMessage
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.delivery.work import CommitInput, CommitResult, InspectInput, InspectResult
from perdure.models.errors import WorkspaceLost
from perdure.models.phases import Step
from perdure.rehearsal.screenplay import Screenplay, Script
from perdure.rehearsal.server import Rehearsal

PRIVATE = "between you and me this is a hack"
"""What only the implementer says."""


@asynccontextmanager
async def playing(
    bench: Bench,
    *answers: dict[str, Any],
    look_first: bool = False,
    file: str = "calc.py",
    content: str = "",
    command: str = "true",
) -> AsyncIterator[Bench]:
    """The implementer writes one file and runs a command; the reviewer answers these, one after the other, and may run
    a tool before."""
    writes = {"tool": "write", "input": {"path": file, "content": content or CALC}}
    reads = {"tool": "read", "input": {"path": file}}
    lines: list[dict[str, Any]] = [
        {"step": "implement", "turn": 1, "think": PRIVATE, "use": [reads]},
        {"step": "implement", "turn": 2, "use": [writes, {"tool": "bash", "input": {"command": command}}]},
        {"step": "implement", "say": f"Add sub\n\n{PRIVATE}"},
    ]
    if look_first:
        lines.append({"step": "review", "turn": 1, "use": [reads]})
    for number, answer in enumerate(answers):
        told = {"last": "not accepted"} if number else {"lacks": ["not accepted"]}
        lines.append({"step": "review", "answer": answer, **told})
    async with Rehearsal(Screenplay(Script.model_validate({"line": lines}), "", "review")) as rehearsal:
        environ = bench.environ | {"ANTHROPIC_BASE_URL": rehearsal.url}
        host = Host.from_environment(bench.host.home, {**os.environ, **environ})
        yield replace(bench, host=host, rehearsal=rehearsal, environ=environ)
        await host.close()


CALC = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n"


def issue(file: str, line: int) -> dict[str, Any]:
    facts = {"title": "t", "description": "d", "severity": "blocker", "suggestion": "s", "screenshots": []}
    return {"summary": "One thing.", "issues": [{**facts, "file": file, "line": line}]}


def vault(bench: Bench) -> Vault:
    return Workspace.open(bench.host.home, DELIVERY).vault


async def committed(bench: Bench, checkpoint: str, step: Step = Step.IMPLEMENT, *, parent: str = "") -> str:
    """`parent`: where the delivery began, unless another is named."""
    work = CommitInput(
        delivery=DELIVERY,
        contract=bench.prepared.contract,
        step=step,
        attempt=1,
        checkpoint=checkpoint,
        parent=parent or bench.prepared.head,
        subject="Add sub",
    )
    made: CommitResult = await in_activity(CommitActivity(bench.host).commit, work)
    return made.commit


async def built(bench: Bench) -> tuple[TurnResult, str]:
    """Implemented and committed: (the last turn, the commit)."""
    last = await bench.take(bench.work(1, bench.prepared.checkpoint))
    turn = 2
    while last.outcome is None:
        last = await bench.take(bench.work(turn, last.checkpoint))
        turn += 1
    return last, await committed(bench, last.checkpoint)


def reviewing(bench: Bench, turn: int, checkpoint: str, head: str, **more: str) -> TurnInput:
    materials = {"base": bench.prepared.base_commit.sha, "head": head, **more} if turn == 1 else {}
    return bench.work(turn, checkpoint, Step.REVIEW).model_copy(update={"materials": materials})


async def reviewed(bench: Bench, head: str, checkpoint: str) -> tuple[Review, TurnResult]:
    last = await bench.take(reviewing(bench, 1, checkpoint, head))
    turn = 2
    while last.outcome is None:
        last = await bench.take(reviewing(bench, turn, last.checkpoint, head))
        turn += 1
    data = await asyncio.to_thread(vault(bench).get_artifact, DELIVERY, last.outcome.artifact)
    return Review.model_validate_json(data), last


def asked(bench: Bench, step: str) -> list[dict[str, Any]]:
    return [call.body for call in bench.rehearsal.calls if call.step == step]


async def inspected(bench: Bench, head: str) -> InspectResult:
    work = InspectInput(delivery=DELIVERY, contract=bench.prepared.contract, commit=head)
    found: InspectResult = await in_activity(InspectChangeActivity(bench.host).inspect_change, work)
    return found


async def test_a_reviewer_is_told_of_the_change_and_nothing_of_how_it_was_made(bench: Bench) -> None:
    async with playing(bench, issue("calc.py", 5)) as bench:
        last, head = await built(bench)
        found = await inspected(bench, head)
        await bench.take(reviewing(bench, 1, last.checkpoint, head, findings=found.findings))
        assert PRIVATE in json.dumps(asked(bench, "implement"))
        [request] = asked(bench, "review")
        assert [message["role"] for message in request["messages"]] == ["user"]
        said = json.dumps(request["messages"])
        assert "+def sub(a, b):" in said
        assert "The change: 1 files" in said
        for word in (PRIVATE, "tool_use", "tool_result", "toolu_", "thinking"):
            assert word not in said


@pytest.mark.parametrize("look_first", [False, True])
async def test_a_place_outside_the_diff_is_asked_about_in_whatever_turn_it_is_named(
    bench: Bench, look_first: bool
) -> None:
    async with playing(bench, issue("calc.py", 99), issue("calc.py", 5), look_first=look_first) as bench:
        last, head = await built(bench)
        review, done = await reviewed(bench, head, last.checkpoint)
        assert [(one.file, one.line, one.severity) for one in review.issues] == [("calc.py", 5, Severity.BLOCKER)]
        assert len(asked(bench, "review")) == 2 + look_first
        assert "calc.py:99 has no such line in the diff" in json.dumps(asked(bench, "review")[-1])
        assert done.outcome is not None
        assert done.outcome.data["blocker"] == 1


async def test_a_blocker_whose_place_is_wrong_twice_still_blocks(bench: Bench) -> None:
    async with playing(bench, issue("nowhere.py", 1), issue("tests/test_calc.py", 1)) as bench:
        last, head = await built(bench)
        review, done = await reviewed(bench, head, last.checkpoint)
        [one] = review.issues
        assert (one.file, one.line, one.severity) == ("", None, Severity.BLOCKER)
        assert "tests/test_calc.py:1" in one.description
        assert done.outcome is not None
        assert done.outcome.data["blocker"] == 1


async def test_the_change_is_inspected_from_the_vault_alone_and_twice_is_the_same(bench: Bench) -> None:
    async with playing(bench) as bench:
        _, head = await built(bench)
        tree = bench.host.home.tree(DELIVERY)
        (tree / "perdure.toml").write_text("garbage")
        first = await inspected(bench, head)
        assert first.summary == "nothing found"
        assert (first.blockers, first.tech_debt, first.skippable, first.secrets) == (0, 0, 0, 0)
        assert await inspected(bench, head) == first
        assert (tree / "perdure.toml").read_text() == "garbage"
        data = await asyncio.to_thread(vault(bench).get_artifact, DELIVERY, first.findings)
        assert Findings.model_validate_json(data).head == head


async def test_a_new_file_that_no_word_or_call_of_an_agent_names_was_written_by_a_command(bench: Bench) -> None:
    """A helper that a command runs leaves files behind; what an agent writes, or names, is meant."""
    helper = (
        "import os\nos.makedirs('out/deep')\nfor name in ['tra' + 'ce.dat', 'out/deep/x.y' + 'z', 'tests/test_m' + "
        "'ade.py', 'mean' + 't.cfg', 'package-lo' + 'ck.json']:\n    open(name, 'w').write('1\\n')\n"
    )
    command = "python3 helper.tool && rm -rf out/deep/nothing meant.cfg.bak && echo meant.cfg"
    async with playing(bench, file="helper.tool", content=helper, command=command) as bench:
        _, head = await built(bench)
        found = await inspected(bench, head)
        data = await asyncio.to_thread(vault(bench).get_artifact, DELIVERY, found.findings)
        findings = [(one.file, one.severity) for one in Findings.model_validate_json(data).findings]
        assert findings == [("trace.dat", Severity.TECH_DEBT)]
        assert found.summary == "1 tech debt: a file that a command has written, it seems in trace.dat"
    person = await asyncio.to_thread(commit_by_nobody, bench)
    assert (await inspected(bench, person)).tech_debt == 0, "a commit of somebody else: nobody knows"


def commit_by_nobody(bench: Bench) -> str:
    """A commit on the base, without trailers, that adds a file."""
    objects = vault(bench).objects
    return objects.write_commit(
        objects.write_tree([TreeEntry("trace.dat", objects.write_blob(b"1"))]), [bench.prepared.head], "Add a file"
    )


async def test_a_blocker_of_the_engine_is_counted_and_named(bench: Bench) -> None:
    async with playing(bench, file="perdure.toml", content="version = 1\n") as bench:
        _, head = await built(bench)
        found = await inspected(bench, head)
        assert (found.blockers, found.secrets) == (1, 0)
        assert found.summary == "1 blocker: a protected path is changed in perdure.toml"


async def test_a_secret_that_was_taken_out_is_gone_once_one_commit_takes_the_place_of_both(bench: Bench) -> None:
    token = "ghp_" + secrets.token_hex(18)
    async with playing(bench, content=CALC + f'TOKEN = "{token}"\n') as bench:
        last, head = await built(bench)
        first = await inspected(bench, head)
        assert (first.secrets, first.blockers) == (1, 1)
        data = await asyncio.to_thread(vault(bench).get_artifact, DELIVERY, first.findings)
        assert token.encode() not in data
        (bench.host.home.tree(DELIVERY) / "calc.py").write_text(CALC)
        workspace = Workspace.open(bench.host.home, DELIVERY)
        told = {"step": "fix_review", "attempt": 1, "turn": 1, "result": {}}
        clean = await asyncio.to_thread(
            lambda: snapshot_worktree(workspace, parent=last.checkpoint, turn=told, transcript=[], changed=True)
        )
        on_top = await committed(bench, clean, Step.FIX_REVIEW, parent=head)
        still = await inspected(bench, on_top)
        assert (still.secrets, still.summary) == (1, "1 blocker: a GitHub token in an earlier commit in calc.py")
        anew = await committed(bench, clean, Step.FIX_REVIEW)
        assert (await inspected(bench, anew)).secrets == 0
        assert await asyncio.to_thread(vault(bench).tree_of, anew) == await asyncio.to_thread(
            vault(bench).tree_of, on_top
        )


async def test_a_host_without_the_vault_says_so(bench: Bench) -> None:
    work = InspectInput(delivery="another", contract=bench.prepared.contract, commit="0" * 40)
    with pytest.raises(WorkspaceLost):
        await in_activity(InspectChangeActivity(bench.host).inspect_change, work)


@pytest.mark.parametrize(
    ("person", "blockers", "look_first"),
    [("", 1, True), ("", 1, False), ("Let add count\nbackwards, please.", 0, True)],
)
async def test_a_changed_promise_that_nothing_asks_for_is_a_blocker_and_a_person_can_ask_for_it(
    bench: Bench, person: str, blockers: int, look_first: bool
) -> None:
    name = "tests/test_calc.py::test_add"
    promise = Promise(name=name, file="tests/test_calc.py", message="E 3 != -1", before="a\n== 3", after="a\n== -1")
    tried = CommandExperiment(name="unit", command="pytest", base_tests=2, base_passed=1, promises=(promise,))
    report = TestReport(commit="c", tree="t", experiment=Experiment(base="b", change="c", commands=(tried,)))

    def says(quote: str) -> dict[str, Any]:
        return {"summary": "Fine.", "issues": [], "promises": [{"test": name, "quote": quote, "reason": "so"}]}

    async with playing(bench, says("count it backwards"), says("add count backwards"), look_first=look_first) as bench:
        last, head = await built(bench)
        artifact = await asyncio.to_thread(vault(bench).put_artifact, DELIVERY, report.model_dump_json().encode())
        first = reviewing(bench, 1, last.checkpoint, head, report=artifact)
        done = await bench.take(
            first.model_copy(update={"messages": (UserMessage(id="1", text=person),) if person else ()})
        )
        turn = 2
        while done.outcome is None:
            done = await bench.take(reviewing(bench, turn, done.checkpoint, head))
            turn += 1
        assert done.outcome.data["blocker"] == blockers
        data = await asyncio.to_thread(vault(bench).get_artifact, DELIVERY, done.outcome.artifact)
        review = Review.model_validate_json(data)
        assert [(one.file, name in one.title) for one in review.issues] == [(promise.file, True)] * blockers
        assert [one.test for one in review.promises] == [name]
        begun = asked(bench, "review")[0]["messages"][0]["content"]
        [shown] = [block["text"] for block in begun if block["text"].startswith('<data name="experiment"')]
        assert all(word in shown for word in (f"- {name}\n", "  - == 3", "  + == -1", "E 3 != -1"))
        assert "does not stand in the request" in json.dumps(asked(bench, "review")[-1])
