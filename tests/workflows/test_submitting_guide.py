"""docs/submitting.md holds: our client, and the `temporal` command do what it says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from perdure.local.places import temporal_binary
from perdure.models.delivery.decisions import Question
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.phases import Phase
from schemas import SHAPES, build_schema
from tests.deliveries import BUILT, Script, at, playing, waiting
from tests.guide import ROOT, Stranger, snippet

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
    assert out[0].startswith("phase: unknown field (did you mean phases?)"), out
    assert (out[1].partition(" plan")[0], out[2:]) == ("approved:", ["completed"])


@pytest.mark.story
def test_every_field_a_person_may_send_is_a_field_of_the_typescript_types() -> None:
    types = (ROOT / "examples/clients/typescript/perdure.ts").read_text()
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
            await typist.runs("bash", "-euc", line.replace("again", typist.id))
        progress = await at(handle, lambda progress: progress["unread"])
        assert progress["held"] == "held: release day"
        await typist.signals("decide", {"update": "answer", "said": {"of": second.target, "answer": "yes"}})
        await at(handle, lambda progress: progress["waiting"] == "held: release day")
        assert len(script.seen) == 2, "a turn began although it is held"
        resume, cancel = snippet("steer").splitlines()[2:]
        await typist.runs("bash", "-euc", resume.replace("again", typist.id))
        assert (await waiting(handle, behind=second.target)).summary == "question: And then?"
        assert [[said.text for said in work.messages] for work in script.seen] == [
            [],
            ["b"],
            ["yes", "Mind the old format"],
        ]
        await typist.runs("bash", "-euc", cancel.replace("again", typist.id))
        assert "CANCELED" in await typist.types("result", "--workflow-id", typist.id, code=1)
