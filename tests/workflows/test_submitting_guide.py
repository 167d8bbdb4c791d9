"""docs/submitting.md holds: our client, plain Python, TypeScript and the `temporal` command do what it says."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from temporalio.client import Client

from perdure.client import Perdure
from perdure.local.places import temporal_binary
from perdure.models.delivery.decisions import Question
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.phases import Phase
from schemas import SHAPES, build_schema
from tests.deliveries import BUILT, Script, at, playing, waiting
from tests.guide import ROOT, Stranger, example, snippet

PLANNED = {"repository": "/srv/calc", "request": "Add sub", "phases": ["plan"], "gates": ["plan"]}
SCHEMAS = {shape.name: build_schema(shape) for shape in SHAPES}


@pytest.fixture
def waits() -> Script:
    """A delivery that waits with its plan for somebody to approve it."""
    return Script(Phase.PLAN, gates=("plan",))


@pytest.fixture
def stranger(server: str, tmp_path: Path) -> Stranger:
    return Stranger(server, tmp_path)


@pytest.mark.story
async def test_our_client_submits_attaches_and_approves(client: Client, waits: Script, stranger: Stranger) -> None:
    async with playing(client, waits):
        out = (await stranger.runs(sys.executable, "-c", snippet("client"))).splitlines()
    assert out[0].startswith("reqest: unknown field (did you mean request?)"), out
    assert out[1:] == ["accepted", "attached", "approve the plan: Add sub", "completed None"]


async def converses(client: Client, script: Script, stranger: Stranger, fresh: str, *program: str) -> None:
    """What both examples do in the same words: the answers are what the schemas say."""
    sent, other = json.dumps(PLANNED), json.dumps({**PLANNED, "repository": "/other"})
    there = await stranger.says(*program, "submit", fresh, sent)
    valid("attached", there)
    assert (there["delivery_id"], there["repository"]) == (fresh, "/srv/calc")
    assert await stranger.says(*program, "submit", fresh, sent) == there, "attached"
    taken = await stranger.says(*program, "submit", fresh, other, code=1)
    assert f"{fresh} is taken by another repository, /srv/calc" in str(taken)

    asked = await waiting(client.get_workflow_handle(fresh))
    progress = await stranger.says(*program, "progress", fresh)
    valid("progress", progress)
    assert progress["asked"]["of"] == asked.target
    assert (
        await stranger.says(*program, "approve", fresh, json.dumps({"of": asked.target}))
        == f"approved: plan {asked.target}"
    )
    result = await stranger.says(*program, "result", fresh)
    valid("result", result)
    assert (result["status"], result["delivery_id"]) == ("completed", fresh)
    assert await stranger.says(*program, "submit", fresh, sent) == there, "attached to what has ended"
    await refuses_and_fails(client, script, stranger, fresh, *program)


async def refuses_and_fails(client: Client, script: Script, stranger: Stranger, fresh: str, *program: str) -> None:
    """A misspelt request, a decision on something else, and a delivery that ends undelivered, each with its type."""
    misspelt = await stranger.says(*program, "submit", f"{fresh}-1", '{"repository": "/r", "reqest": "x"}', code=1)
    assert "InvalidRequest" in str(misspelt)
    assert "reqest: unknown field (did you mean request?)" in str(misspelt)

    failing = f"{fresh}-2"
    await Perdure(client).submit(PLANNED, id=failing)
    asked = await waiting(client.get_workflow_handle(failing))
    wrong = await stranger.says(*program, "approve", failing, '{"of": "beef"}', code=1)
    assert f"it waits for plan {asked.target}, not for beef" in str(wrong)
    await client.get_workflow_handle(failing).cancel()

    script.settings = {"fails": "SetupFailed"}
    await Perdure(client).submit(PLANNED, id=f"{fresh}-3")
    failure = (await stranger.says(*program, "result", f"{fresh}-3", code=1))["not_delivered"]
    valid("result", failure)
    assert (failure["status"], failure["reason"]) == ("not_delivered", "setup_failed")
    late = await stranger.says(*program, "approve", f"{fresh}-3", code=1)
    assert f"{fresh}-3 has ended, or there is none" in str(late)


def valid(name: str, value: dict[str, Any]) -> None:
    Draft202012Validator(SCHEMAS[name]).validate(value)


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_python_with_nothing_of_ours_submits_misspells_attaches_and_reads_a_typed_failure(
    client: Client, waits: Script, stranger: Stranger, fresh: str
) -> None:
    program = stranger.cwd / "deliver.py"
    shutil.copy(ROOT / "examples/python-plain/deliver.py", program)
    assert "perdure." not in program.read_text(), "it needs something of ours"
    async with playing(client, waits):
        await converses(client, waits, stranger, fresh, "deliver.py")


@pytest.mark.story
async def test_without_a_worker_python_with_nothing_of_ours_is_told_that_it_is_recorded(
    client: Client, stranger: Stranger, fresh: str
) -> None:
    program = str(ROOT / "examples/python-plain/deliver.py")
    assert await stranger.says(sys.executable, "-I", program, "submit", fresh, json.dumps(PLANNED)) is None
    handle = client.get_workflow_handle(fresh)
    assert len((await handle.fetch_history()).events) == 2, "started, and started once"
    await handle.terminate()


@pytest.mark.story
@pytest.mark.long
@pytest.mark.timeout(300)
async def test_typescript_submits_misspells_attaches_approves_and_reads_a_typed_failure(
    client: Client, waits: Script, stranger: Stranger, fresh: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger.cwd = example(tmp_path_factory, stranger.cwd / "example")
    install, *commands = snippet("typescript").splitlines()
    misspelt = (stranger.cwd / "client.ts").read_text().replace("there.repository !==", "there.repo !==")
    (stranger.cwd / "wrong.ts").write_text(misspelt)
    complaints = await stranger.runs(*install.partition(" && ")[2].split(), code=2)  # it writes JavaScript all the same
    assert [line.partition("(")[0] for line in complaints.splitlines() if "error TS" in line] == ["wrong.ts"]
    assert "Property 'repo' does not exist" in complaints
    submit, progress, approve, result = (("bash", "-euc", command) for command in commands)
    async with playing(client, waits):
        there = await stranger.says(*submit)
        valid("attached", there)
        assert await stranger.says(*submit) == there, "attached"
        asked = await waiting(client.get_workflow_handle("from-typescript"))
        assert (await stranger.says(*progress))["asked"]["of"] == asked.target
        assert await stranger.says(*approve) == f"approved: plan {asked.target}"
        valid("result", await stranger.says(*result))
        await refuses_and_fails(client, waits, stranger, fresh, "node", "dist/deliver.js")


@pytest.mark.story
def test_every_field_a_person_may_send_is_a_field_of_the_typescript_types() -> None:
    types = (ROOT / "examples/typescript/perdure.ts").read_text()
    fields = {name for shape in SHAPES for name in SCHEMAS[shape.name]["properties"]}
    assert [name for name in sorted(fields) if f"  {name}: " not in types and f"  {name}?: " not in types] == []


ATTACH = ("--update-name", "attach", "--update-id", "attach")


class Typist(Stranger):
    """With nothing but the `temporal` command, its output as JSON."""

    def __init__(self, address: str, cwd: Path, id: str) -> None:
        super().__init__(address, cwd)
        self.id = id
        self.env["PATH"] = f"{temporal_binary().parent}:{os.environ['PATH']}"

    async def submits(self, request: dict[str, Any], code: int = 0) -> str:
        sent = json.dumps(request)
        how = ("--id-conflict-policy", "UseExisting", "--id-reuse-policy", "RejectDuplicate", *ATTACH)
        what = ("--type", "Delivery", "--task-queue", "perdure", "--workflow-id", self.id)
        return await self.types("execute-update-with-start", *what, *how, "--input", sent, code=code)

    async def updates(self, name: str, said: dict[str, Any], code: int = 0) -> str:
        what = ("--workflow-id", self.id, "--name", name, "--input", json.dumps(said))
        return await self.types("update", "execute", *what, code=code)

    async def signals(self, name: str, said: dict[str, Any]) -> None:
        await self.types("signal", "--workflow-id", self.id, "--name", name, "--input", json.dumps(said))

    async def types(self, *words: str, code: int = 0) -> str:
        return await self.runs("temporal", "workflow", *words, code=code)


@pytest.fixture
def typist(server: str, tmp_path: Path, fresh: str) -> Typist:
    return Typist(server, tmp_path, fresh)


async def asks_always(script: Script, work: TurnInput) -> TurnResult:
    result = await script.plays(work)
    questions = [
        Question(text="Which one?", kind="choice", choices=("A", "B")),
        Question(text="Really?", kind="yes_no"),
        Question(text="And then?"),
    ]
    return result.model_copy(update={"question": questions[work.turn - 1]})


async def test_a_misspelt_request_is_refused_in_the_call_that_sends_it(client: Client, typist: Typist) -> None:
    async with playing(client, Script()):
        said = await typist.submits({"repository": "/r", "reqest": "x"}, code=1)
    assert "InvalidRequest: reqest: unknown field (did you mean request?)" in said


async def test_an_answer_a_hold_words_and_a_cancel_need_nothing_but_the_temporal_command(
    client: Client, typist: Typist
) -> None:
    script = Script(Phase.BUILD)
    script.turns_each = 4
    script.turn = lambda work: asks_always(script, work)
    handle = client.get_workflow_handle(typist.id)
    async with playing(client, script):
        accepted = [await typist.submits(BUILT) for _ in range(2)]
        assert [f"delivery_id:{typist.id} " in said for said in accepted] == [True, True], accepted
        first = await waiting(handle)
        assert "C' is none of A / B" in await typist.updates("answer", {"answer": "C"}, code=1)
        assert "approve does not decide this" in await typist.updates("approve", {}, code=1)
        assert f"answered: question {first.target}" in await typist.updates("answer", {"answer": "b"})

        second = await waiting(handle, behind=first.target)
        for line in snippet("steer").splitlines()[:2]:
            await typist.runs("bash", "-euc", line.replace("from-shell", typist.id))
        progress = await at(handle, lambda progress: progress["unread"])
        assert progress["held"] == "held: release day"
        await typist.signals("decide", {"update": "answer", "said": {"of": second.target, "answer": "yes"}})
        await at(handle, lambda progress: progress["waiting"] == "held: release day")
        assert len(script.seen) == 2, "a turn began although it is held"
        resume, cancel = snippet("steer").splitlines()[2:]
        await typist.runs("bash", "-euc", resume.replace("from-shell", typist.id))
        assert (await waiting(handle, behind=second.target)).summary == "question: And then?"
        assert [[said.text for said in work.messages] for work in script.seen] == [
            [],
            ["b"],
            ["yes", "Mind the old format"],
        ]
        await typist.runs("bash", "-euc", cancel.replace("from-shell", typist.id))
        assert "CANCELED" in await typist.types("result", "--workflow-id", typist.id, code=1)
