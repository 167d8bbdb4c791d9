"""People and a turn: their questions and words, once; a word about untested edits; what who watches sees."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turn_fixtures import DELIVERY, Bench, in_activity, working

from activities.prepare import PrepareActivity
from perdure.adapters.git.checkpoint import read_transcript
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.attempt import current_facts
from perdure.adapters.worker.turn.builtin_agent import TAIL_CHARS, StreamTail, last_whole_words
from perdure.models.crash import CrashPoint
from perdure.models.delivery.decisions import Question, QuestionKind, UserMessage
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.turn import Ending, TurnInput, TurnResult
from perdure.models.delivery.work import PreparedWorkspace, PrepareInput
from perdure.models.phases import Phase, Step
from perdure.text import register_secrets
from tests.states import with_fields

SECRET = "sk-rehearsal-0123456789"
ASKS = f"""
[[line]]
step = "classify"
answer = {{ kind = "feature", reason = "something new" }}
[[line]]
step = "implement"
turn = 1
use = [
  {{ tool = "ask", input = {{ text = "Order? {SECRET}", kind = "choice", why = "x", choices = ["a - b", "b - a"] }} }},
  {{ tool = "bash", input = {{ command = "echo one > one.txt" }} }},
]
[[line]]
step = "implement"
turn = 2
contains = ["b - a"]
use = [{{ tool = "bash", input = {{ command = "echo two > two.txt" }} }}]
[[line]]
step = "implement"
turn = 3
say = "Add sub"
"""
ASSUMES = """
[[line]]
step = "implement"
use = [
  { tool = "assume", input = { question = "Which order?", assumption = "a - b", why = "as in add" } },
  { tool = "assume", input = { question = "Floats?", assumption = "yes", why = "" } },
]
"""
ANSWER = UserMessage(id="answer-1", text="b - a", question="Order?")
NOTES = (UserMessage(id="n1", text="Keep it short."), UserMessage(id="n2", text="No comments."))

CHILD = """
import asyncio, os, sys
import anthropic
sys.path.insert(0, "tests/adapters/worker/turn")
from turn_fixtures import in_activity
from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.turn.transaction import take_turn
from perdure.models.delivery.turn import TurnInput

async def main():
    host = Host.from_environment(Home.find(), dict(os.environ))
    await in_activity(take_turn, host, TurnInput.model_validate_json(sys.argv[1]))

for _ in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        asyncio.run(main())
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
"""Takes one turn as often as it is told to, each time as a worker that remembers nothing; prints how each ended."""


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Bench]:
    async with working(tmp_path, ASKS) as made:
        made.environ["ANTHROPIC_API_KEY"] = SECRET
        made.host = made.again()
        yield made
        await made.host.close()


async def told(bench: Bench, checkpoint: str) -> list[dict[str, Any]]:
    vault = Workspace.open(bench.host.home, DELIVERY).vault
    return await asyncio.to_thread(read_transcript, vault, checkpoint)


def saying(work: TurnInput, *said: UserMessage) -> TurnInput:
    return work.model_copy(update={"messages": said})


async def heard_once(bench: Bench, last: TurnResult) -> bool:
    """Whether the conversation holds answer and words once each, in their order."""
    said = json.dumps(await told(bench, last.checkpoint))
    places = [said.find(words) for words in ("answers your question", *(note.text for note in NOTES))]
    return -1 not in places and places == sorted(places) and said.count("<person ") == len(places)


async def after_the_question(bench: Bench) -> TurnResult:
    return await bench.take(bench.work(1, bench.prepared.checkpoint))


async def test_a_question_ends_the_turn_behind_its_other_calls_and_its_answer_begins_the_next(asking: Bench) -> None:
    first = await after_the_question(asking)
    assert first.outcome is None
    assert first.question == Question(
        text="Order? [redacted]", kind=QuestionKind.CHOICE, choices=("a - b", "b - a"), why="x"
    )
    assert (asking.host.home.tree(DELIVERY) / "one.txt").read_text() == "one\n"
    assert first.summary.startswith("turn 1 · ask Order? [redacted]")
    assert await after_the_question(asking) == first.model_copy(update={"adopted": True}), "it is not asked again"
    assert len(asking.rehearsal.calls) == 1

    second = await asking.take(saying(asking.work(2, first.checkpoint), ANSWER, *NOTES))
    assert second.notes == ("answer-1", "n1", "n2")
    assert second.question is None
    third = await asking.take(asking.work(3, second.checkpoint))
    assert third.notes == ()
    assert asking.rehearsal.prefix_breaks == 0
    assert await heard_once(asking, third)

    unanswered = await asking.take(asking.work(2, first.checkpoint), run="run-2")
    assert "Your question has no answer" in json.dumps(await told(asking, unanswered.checkpoint))


@pytest.mark.story
@pytest.mark.timeout(180)
async def test_a_turn_that_is_killed_everywhere_has_heard_everything_once_in_the_end(asking: Bench) -> None:
    first = await after_the_question(asking)
    work = saying(asking.work(2, first.checkpoint), ANSWER, *NOTES)
    points = (CrashPoint.WAITING_FOR_MODEL, CrashPoint.AFTER_REPLY, CrashPoint.DURING_TOOL, CrashPoint.AFTER_SNAPSHOT)
    home = {"PERDURE_HOME": str(asking.host.home.root), "PERDURE_CRASH_AT": ",".join(points)}
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CHILD, work.model_dump_json(), str(len(points))],
        env={**os.environ, **asking.environ, **home},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.stdout.split() == [str(-signal.SIGKILL)] * len(points), ended.stderr
    assert len(asking.rehearsal.calls) == 1 + 2, "a reply that was received is not asked for again"
    second = await asking.take(work)
    assert second.adopted
    assert second.notes == ("answer-1", "n1", "n2")
    assert len({json.dumps(call.body) for call in asking.rehearsal.calls[1:]}) == 1
    third = await asking.take(asking.work(3, second.checkpoint))
    assert await heard_once(asking, third)
    assert asking.rehearsal.prefix_breaks == 0


async def test_a_classification_leaves_words_to_the_next_step_whose_first_message_they_end(asking: Bench) -> None:
    done = await asking.take(saying(asking.work(1, asking.prepared.checkpoint, Step.CLASSIFY), *NOTES))
    assert done.outcome is not None
    assert done.notes == ()
    assert "Keep it short." not in json.dumps(await told(asking, done.checkpoint))

    edited = b'{"title":"Add sub, edited","problem":"p","solution":"s","relevant_files":[],"tasks":[],"validation":[]}'
    vault = Workspace.open(asking.host.home, DELIVERY).vault
    plan = await asyncio.to_thread(vault.put_artifact, DELIVERY, edited)
    work = saying(asking.work(1, done.checkpoint), *NOTES).model_copy(update={"materials": {"plan": plan}})
    first = await asking.take(work)
    assert first.notes == ("n1", "n2")
    opening = [block["text"] for block in (await told(asking, first.checkpoint))[0]["content"]]
    assert edited.decode() in "".join(opening[:-3])
    assert "Carry out step implement" in opening[-3]
    assert ["Keep it short." in opening[-2], "No comments." in opening[-1]] == [True, True]


async def test_where_nobody_is_asked_what_was_assumed_is_in_the_turns_result(tmp_path: Path) -> None:
    async with working(tmp_path, ASSUMES, questions=False) as bench:
        first = await bench.take(bench.work(1, bench.prepared.checkpoint))
        assert first.assumption == "Which order? a - b (as in add)\nFloats? yes"
        assert first.question is None
        (call,) = bench.rehearsal.calls
        names = [tool["name"] for tool in call.body["tools"]]
        assert ("assume" in names, "ask" in names) == (True, False)


async def test_prepare_tells_the_workflow_where_people_decide_and_a_retry_can_add_to_it(tmp_path: Path) -> None:
    config = "version = 1\n[setup]\ncommands = []\n[gates]\nbefore = ['plan', 'pull_request']\nexpire = '72h'\n"
    more = {"config": config, "phases": (Phase.PLAN, Phase.BUILD), "tokens": 5000}
    async with working(tmp_path, ASSUMES, **more) as bench:
        made = bench.prepared
        assert (made.decisions.asks, made.decisions.gates, made.decisions.expiry_s, made.limits.budget_tokens) == (
            True,
            ("plan", "deaths"),
            259200.0,
            5000,
        )

        async def again(previous: PreparedWorkspace, **fields: Any) -> PreparedWorkspace:
            request = DeliveryRequest(repository=str(tmp_path / "calc.git"), request="Add sub", **fields)
            work = PrepareInput(delivery=DELIVERY, request=request, previous=previous)
            done = await in_activity(PrepareActivity(bench.host).prepare, work)
            assert isinstance(done, PreparedWorkspace)
            return done

        assert (await again(made)).limits.budget_tokens == 5000
        assert (await again(made, tokens=9000)).limits.budget_tokens == 9000
        older = with_fields(made, asks=False, gates=(), phases=tuple(Phase), budget_tokens=0)
        retried = await again(older, gates=("pull_request",))
        assert (retried.decisions.asks, retried.decisions.gates, retried.limits.budget_tokens) == (
            True,
            ("plan", "tests", "deaths", "pull_request"),
            0,
        )
        bench.environ["PERDURE_TOKENS"] = "700"
        bench.host = bench.again()
        assert (await again(made, tokens=9000)).limits.budget_tokens == 700
        assert (await again(older)).limits.budget_tokens == 700


EDITS = """
[[line]]
step = "implement"
turn = 1
use = [{ tool = "write", input = { path = "new.py", content = "x = 1" } }]
[[line]]
step = "implement"
turn = 2
say = "Add x"
"""


@pytest.mark.parametrize(("most", "turns"), [(60, 3), (2, 2)])
async def test_it_is_told_once_and_never_in_its_last_turn(tmp_path: Path, most: int, turns: int) -> None:
    config = f"version = 1\n[limits]\nturns_per_step = {most}\n"
    async with working(tmp_path, EDITS, config=config) as bench:
        checkpoint, outcomes = bench.prepared.checkpoint, []
        for turn in range(1, turns + 1):
            result = await bench.take(bench.work(turn, checkpoint))
            checkpoint = result.checkpoint
            outcomes.append(result.outcome)
        assert outcomes[:-1] == [None] * (turns - 1)
        last = outcomes[-1]
        assert last is not None
        assert (last.ending, last.summary) == (Ending.DONE, "Add x")
        said = [str(call.body["messages"][-1]) for call in bench.rehearsal.calls]
        assert sum("Not tested since your last edit" in words for words in said) == turns - 2


def test_a_stream_that_comes_in_pieces_is_shown_in_whole_words() -> None:
    told: dict[str, object] = {}
    token = current_facts.set(told)
    try:
        shown = StreamTail()
        for piece in ("I will think ov", "er for a while. ", "Then I wr", "ite"):
            shown.add(piece)
    finally:
        current_facts.reset(token)
    assert told["doing"] == "I will think over for a while. Then I write"


def test_the_words_of_a_reply_travel_whole_bounded_and_without_a_secret_that_comes_in_pieces() -> None:
    told: dict[str, object] = {}
    register_secrets("sk-streamed-9f3ab2")
    token = current_facts.set(told)
    try:
        shown = StreamTail()
        for piece in ("I see.\n\nThe key sk-str", "eamed-9f3", "ab2 opens it"):
            shown.add(piece)
            assert "sk-str" not in str(told.get("reply_tail"))
        assert told["reply_tail"] == "I see.\n\nThe key [redacted] opens "
        for _ in range(1000):
            shown.add("and so on ")
        assert len(str(told["reply_tail"])) <= TAIL_CHARS
        told.clear()
        answer = StreamTail()
        for piece in ('{"title": ', '"Add sub"}'):
            answer.add(piece)
        assert "reply_tail" not in told, "an answer in JSON is for the engine"
    finally:
        current_facts.reset(token)


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=30), min_size=1, max_size=40))
def test_what_is_shown_is_the_end_of_the_text_and_begins_with_a_word(words: list[str]) -> None:
    shown = last_whole_words("  ".join(words))
    assert 0 < len(shown) <= 80
    assert " ".join(words).endswith(shown)
    assert shown.split()[0] in words
