"""Gathering what claims are judged by: from history, through Temporal from host and publisher, by replay and tests."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import TypeVar

from pydantic import BaseModel
from temporalio.client import Client

from perdure.adapters.system.home import Home
from perdure.cli.look.claims import claims
from perdure.cli.look.evidence import Evidence, HistoryFacts, Unknown, no, told_by, unknown, yes
from perdure.cli.look.report.from_history import request_of
from perdure.cli.words import count, short
from perdure.client import Delivery, Perdure
from perdure.client.history import Past
from perdure.client.standalone import HostRefused, HostSilent, ask_host
from perdure.client.view import word
from perdure.models import verify
from perdure.models.errors import BadInput, PerdureError
from perdure.models.ids import delivery_key, verification_id
from perdure.models.limits import WATCH_SILENCE_S
from perdure.models.request import DeliveryRequest, parse_request
from perdure.models.result import DeliveryResult, TestsResult, TestsStatus

VERIFY_ANSWER = timedelta(minutes=2)
"""For one such answer: to walk a thousand checkpoints of a large repository, or to wait for a forge; then it is said
that nobody answers."""


M = TypeVar("M", bound=BaseModel)
Say = Callable[[str], None]


async def verified(client: Client, delivery: Delivery, *, tests: bool, say: Say) -> AsyncIterator[verify.Claim]:
    """The claims of a delivery that has ended, as they are judged. BadInput while it runs."""
    described = await delivery.describe()
    if described.running:
        raise BadInput(f"{delivery.id} is running: there is no receipt yet", fix=f"perdure watch {delivery.id}")
    result = await delivery.result()
    past = await delivery.past()
    told = told_by(past.acts, complete=past.complete, rewound=past.rewound, forked=request_of(past).forked)
    # Beside what the host is asked: a process that starts and a repository that is walked wait for different things.
    replaying = asyncio.create_task(_replayed(past))
    try:
        evidence = await _evidence(client, delivery, result, told, past, word(described.status))
        for claim in claims(evidence):
            yield claim
        yield await replaying
    finally:
        replaying.cancel()
    if result.tests.status in (TestsStatus.GREEN, TestsStatus.RED):
        for claim in await _tested_again(client, delivery, evidence, tests=tests, say=say):
            yield claim


async def _evidence(
    client: Client, delivery: Delivery, result: DeliveryResult, told: HistoryFacts, past: Past, ended: str
) -> Evidence:
    key, prepared = delivery_key(delivery.id), told.prepared
    if prepared is None:
        never = Unknown("the delivery ended before it had a workspace")
        return Evidence(result, ended, told, never, (), never, key)
    work = verify.VerifyInput(
        delivery=key,
        tip=result.checkpoint or prepared.checkpoint,
        first=told.first,
        start=told.start,
        inherited=told.forked.checkpoint if told.forked else "",
        rebased=prepared.head if prepared.head != told.start else "",
        head=result.head_sha or "",
        commits={commit: checkpoint for commit, (checkpoint, _) in told.commits.items()},
        report=(result.tests.report or "").removeprefix("artifact:sha256:"),
        # History tells of the attempt before the last one only, which is enough: the others are in the journal.
        deaths=tuple(f"{act.id}/{act.tries - 1}" for act in past.acts if act.died),
    )
    asked = verify.PublishedInput(delivery=key, contract=prepared.contract, branch=result.branch or prepared.branch)
    host, outside = await asyncio.gather(
        _pages(client, prepared.queue, work),
        _ask(client, "verify_published", asked, prepared.publisher or prepared.queue, verify.PublishedFacts),
    )
    facts, checkpoints = host
    return Evidence(result, ended, told, facts, checkpoints, outside, key)


async def _pages(
    client: Client, queue: str, work: verify.VerifyInput
) -> tuple[verify.Facts | Unknown, tuple[verify.CheckpointFact, ...]]:
    """Return what the host knows, with the checkpoints and commits of all pages."""
    first = facts = await _ask(client, "verify", work, queue, verify.Facts)
    checkpoints: tuple[verify.CheckpointFact, ...] = ()
    commits: tuple[verify.CommitFact, ...] = ()
    while not isinstance(facts, Unknown) and not isinstance(first, Unknown):
        checkpoints += facts.checkpoints
        commits += facts.commits
        if facts.next is None:
            return first.model_copy(update={"commits": commits}), checkpoints
        facts = await _ask(client, "verify", work.model_copy(update={"offset": facts.next}), queue, verify.Facts)
    return facts, ()


async def _ask(
    client: Client, activity: str, work: verify.VerifyInput | verify.PublishedInput, queue: str, answer: type[M]
) -> M | Unknown:
    try:
        return await ask_host(
            client,
            activity,
            work,
            answer,
            queue=queue,
            about=work.delivery,
            within=VERIFY_ANSWER,
            begun_within=timedelta(seconds=WATCH_SILENCE_S),
        )
    except HostRefused as error:
        if error.type == "NotFoundError":
            return Unknown(f"the worker on queue {queue} is of an earlier release: restart it")
        return Unknown(error.said.partition("\n")[0])
    except HostSilent:
        return Unknown(f"its host does not answer: nobody takes work from queue {queue}")


async def _replayed(past: Past) -> verify.Claim:
    from perdure.local.replay import replay

    name, runs = "history replays", count(len(past.histories), "run")
    try:
        problems = [line for line in await replay(past.histories[::-1]) if line]
    except (PerdureError, OSError) as error:
        return _as(name, unknown(str(error).partition("\n")[0]))
    if problems:
        return _as(name, no(problems[:1]))
    gone = "" if past.complete else "; earlier runs are gone from Temporal"
    events = sum(len(one.events) for one in past.histories)
    return _as(name, yes(f"{events} events of {runs} on this installation's workflow code{gone}"))


async def _tested_again(
    client: Client, delivery: Delivery, evidence: Evidence, *, tests: bool, say: Say
) -> list[verify.Claim]:
    """A small delivery of its own, so that setup and sandbox are the real ones; it changes and publishes nothing. The
    experiments are made again with it."""
    result = evidence.result
    names = ["tests run again", *(["experiment again"] if result.tests.experiment else [])]
    if not tests:
        return [_as(name, unknown("not asked for (--no-tests)")) for name in names]
    if why := _why_not(evidence):
        return [_as(name, unknown(why)) for name in names]
    asked = parse_request(await delivery.request())
    request = DeliveryRequest(
        repository=asked.repository,
        request=_words_again(evidence),
        base=result.base,
        branch=result.branch,
        phases=("test",),
        fix=False,
        config=asked.config,
        source=asked.source,
        allow_test_changes=asked.allow_test_changes,
    )
    id = verification_id(delivery.id, uuid.uuid4().hex)
    say(f"  {id} runs the tests again")
    try:
        again = await (await Perdure(client, Home.find().key()).submit(request, id=id)).delivery.result()
    except PerdureError as error:
        return [_as(name, unknown(f"{id}: {error.what}")) for name in names]
    judged = [_compared(result.tests, again, id), tried_again(result, again)]
    return [_as(name, found) for name, found in zip(names, judged, strict=False)]


def _words_again(evidence: Evidence) -> str:
    """Words that allow what the delivery's own request allowed: where that asked for something to be removed, tests
    that went with it are changed promises. Its id may have such words by accident, and is not in them."""
    host = evidence.host
    tried = None if isinstance(host, Unknown) or host.report is None else host.report.tried
    return "Run the tests again" + (
        " of a change that was asked to remove something" if tried and tried.removes else ""
    )


def _why_not(evidence: Evidence) -> str:
    """Say why the tests cannot be run again; empty: they can."""
    result, outside = evidence.result, evidence.outside
    if isinstance(evidence.host, Unknown):
        return evidence.host.why
    if isinstance(outside, Unknown):
        return outside.why
    if not result.branch or not result.head_sha or outside.tip is None:
        return f"{result.branch or 'its branch'} is not on the remote: it was never published, or is deleted"
    if outside.tip != result.head_sha:
        return f"{result.branch} is at {short(outside.tip)} on the remote now"
    return ""


def _compared(before: TestsResult, again: DeliveryResult, id: str) -> tuple[verify.Mark, str]:
    """A flaky test may be among the passed ones this time, and the other way round."""
    now = again.tests
    if now.status not in (TestsStatus.GREEN, TestsStatus.RED):
        return unknown(f"{id} ended without a verdict: {again.message or again.status}")
    if now.tree_sha != before.tree_sha:
        return unknown(f"the branch has moved to tree {short(now.tree_sha or '')} meanwhile")
    passed = [None if one.passed is None else one.passed + one.flaky for one in (before, now)]
    same = (now.status, passed[1], now.failed) == (before.status, passed[0], before.failed)
    words = [_words(one) for one in (before, now)]
    if not same:
        return no([f"the receipt says {words[0]}, now it is {words[1]} ({id})"])
    return yes(f"{words[1]} on tree {short(now.tree_sha or '')}, as before ({id})")


def tried_again(before: DeliveryResult, again: DeliveryResult) -> tuple[verify.Mark, str]:
    """Each of the numbers is found again, on the same base; a flaky test may be among them once and then not."""
    was, now = before.tests, again.tests
    if now.status not in (TestsStatus.GREEN, TestsStatus.RED):
        return unknown(f"it ended without a verdict: {again.message or again.status}")
    if now.tree_sha != was.tree_sha:
        return unknown(f"the branch has moved to tree {short(now.tree_sha or '')} meanwhile")
    if not now.experiment:
        return unknown("the tests are red now: nothing more was tried")
    same = (now.experiment, now.promises, now.tampered) == (was.experiment, was.promises, was.tampered)
    if same:
        return yes(f"{_tried(now)}, as before")
    told = f"it was {_tried(was)}, now it is {_tried(now)}"
    if (now.promises, now.tampered) == (was.promises, was.tampered):
        if _less(was.experiment, now.experiment):
            return yes(f"{_tried(now)}: all of it, and more")
        if _less(now.experiment, was.experiment):
            return unknown(f"not all of it could be asked again, for lack of time, say; {told}")
    if before.base_sha != again.base_sha:
        return unknown(f"{before.base} has moved on to {short(again.base_sha or '')}; {told}")
    return unknown(f"tests are flaky; {told}") if now.flaky or was.flaky else no([told])


def _less(line: str, of: str) -> bool:
    """True where a line of experiments (perdure.models.experiment) says nothing else than the other, only less."""
    return set(line.split(" · ")) < set(of.split(" · "))


def _tried(tests: TestsResult) -> str:
    more = f", {count(tests.promises, 'changed promise')}" if tests.promises else ""
    return f"{tests.experiment}{more}" + (f", {count(tests.tampered, 'place')} tampered with" if tests.tampered else "")


def _words(tests: TestsResult) -> str:
    counts = "" if tests.passed is None else f", {tests.passed} passed, {tests.failed} failed"
    return f"{tests.status}{counts}" + (f", {tests.flaky} flaky" if tests.flaky else "")


def _as(name: str, judged: tuple[verify.Mark, str]) -> verify.Claim:
    return verify.Claim(mark=judged[0], claim=name, said=judged[1])
