"""Gathering what claims of a receipt are judged by, for `perdure verify`: from history, from host and publisher through
Temporal, by replay, by running the tests again. The last two are judged here, all others in `claims` beside this."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import TypeVar

from pydantic import BaseModel
from temporalio.client import Client

from perdure.adapters.system.home import Home
from perdure.cli.look.claims import check_claims
from perdure.cli.look.evidence import (
    Evidence,
    HistoryFacts,
    UnknownFacts,
    contradicted,
    fold_activities,
    unknown,
    verified,
)
from perdure.client import Delivery, Perdure
from perdure.client.history.fold import DeliveryHistory
from perdure.client.history.state import request_of
from perdure.client.server.calls import HostRefused, HostSilent, run_on_host
from perdure.client.server.view import status_word
from perdure.local.replay import replay_histories
from perdure.models.checks.report import killed_runs_text
from perdure.models.delivery import verify
from perdure.models.delivery.request import DeliveryRequest, parse_request
from perdure.models.delivery.result import DeliveryResult, TestsResult, TestsStatus
from perdure.models.errors import BadInput, PerdureError
from perdure.models.ids import delivery_key, verification_id
from perdure.models.limits import WATCH_SILENCE_S
from perdure.text import format_count, shell_word, short_sha

VERIFY_ANSWER = timedelta(minutes=2)
"""Limit for one such answer: to walk a thousand checkpoints of a large repository, or to wait for a forge; then it is
said that nobody answers."""


M = TypeVar("M", bound=BaseModel)
Say = Callable[[str], None]


async def check_receipt(client: Client, delivery: Delivery, *, tests: bool, say: Say) -> AsyncIterator[verify.Claim]:
    """Check the receipt of a delivery that has ended, and yield each claim as it is judged.

    `tests`: run the tests again when there is a verdict, in a delivery of its own; `say` is told of that. Without
    `tests` the claims about them are unknown. Raises BadInput while the delivery runs, and PerdureError when it ended
    without a result.
    """
    described = await delivery.describe()
    if described.running:
        raise BadInput(
            f"{delivery.id} is running: there is no receipt yet", fix=f"perdure watch {shell_word(delivery.id)}"
        )
    result = await delivery.result()
    past = await delivery.past()
    history = fold_activities(
        past.activities, complete=past.complete, rewound=past.rewound, forked=request_of(past).forked
    )
    # Beside the questions to the host: a process that starts and a repository that is walked wait for different things.
    replay_task = asyncio.create_task(_check_replay(past))
    try:
        evidence = await _gather_evidence(client, delivery, result, history, past, status_word(described.status))
        for claim in check_claims(evidence):
            yield claim
        yield await replay_task
    finally:
        replay_task.cancel()
    if result.tests.status in (TestsStatus.GREEN, TestsStatus.RED):
        for claim in await _rerun_tests(client, delivery, evidence, tests=tests, say=say):
            yield claim


async def _gather_evidence(
    client: Client,
    delivery: Delivery,
    result: DeliveryResult,
    history: HistoryFacts,
    past: DeliveryHistory,
    workflow_status: str,
) -> Evidence:
    """Ask the delivery's host, and the publisher about remote and forge, for their facts; return all evidence.

    Nobody is asked where the delivery ended before it had a workspace. `history`: folded from `past`.
    """
    key, prepared = delivery_key(delivery.id), history.prepared
    if prepared is None:
        no_workspace = UnknownFacts("the delivery ended before it had a workspace")
        return Evidence(result, workflow_status, history, no_workspace, (), no_workspace, key)
    host_request = verify.VerifyInput(
        delivery=key,
        tip=result.checkpoint or prepared.checkpoint,
        first=history.first_checkpoint,
        start=history.start_commit,
        inherited=history.forked.checkpoint if history.forked else "",
        rebased=prepared.head if prepared.head != history.start_commit else "",
        head=result.head_sha or "",
        commits={commit: checkpoint for commit, (checkpoint, _) in history.commits.items()},
        report=(result.tests.report or "").removeprefix("artifact:sha256:"),
        # History tells of the attempt before the last one only, which is enough: the others are in the journal.
        deaths=tuple(f"{act.id}/{act.tries - 1}" for act in past.activities if act.died),
    )
    published_request = verify.PublishedFactsInput(
        delivery=key, contract=prepared.contract, branch=result.branch or prepared.branch
    )
    host, published = await asyncio.gather(
        _read_host_facts(client, prepared.queue, host_request),
        _ask_host(
            client,
            "verify_published",
            published_request,
            prepared.publishing.publisher or prepared.queue,
            verify.PublishedFacts,
        ),
    )
    facts, checkpoints = host
    return Evidence(result, workflow_status, history, facts, checkpoints, published, key)


async def _read_host_facts(
    client: Client, queue: str, request: verify.VerifyInput
) -> tuple[verify.HostFacts | UnknownFacts, tuple[verify.CheckpointFact, ...]]:
    """Read all pages of the host's facts; return them, with the commits of all pages, and all checkpoints.

    UnknownFacts and no checkpoints where one of the pages cannot be had.
    """
    first = facts = await _ask_host(client, "verify", request, queue, verify.HostFacts)
    checkpoints: tuple[verify.CheckpointFact, ...] = ()
    commits: tuple[verify.CommitFact, ...] = ()
    while not isinstance(facts, UnknownFacts) and not isinstance(first, UnknownFacts):
        checkpoints += facts.checkpoints
        commits += facts.commits
        if facts.next is None:
            return first.model_copy(update={"commits": commits}), checkpoints
        facts = await _ask_host(
            client, "verify", request.model_copy(update={"offset": facts.next}), queue, verify.HostFacts
        )
    return facts, ()


async def _ask_host(
    client: Client,
    activity: str,
    request: verify.VerifyInput | verify.PublishedFactsInput,
    queue: str,
    result_type: type[M],
) -> M | UnknownFacts:
    """Run a verification activity on a host and return its result; UnknownFacts where the host refuses or does not
    answer."""
    try:
        return await run_on_host(
            client,
            activity,
            request,
            result_type,
            queue=queue,
            about=request.delivery,
            within=VERIFY_ANSWER,
            start_within=timedelta(seconds=WATCH_SILENCE_S),
        )
    except HostRefused as error:
        if error.type == "NotFoundError":
            return UnknownFacts(f"the worker on queue {queue} is of an earlier release: restart it")
        return UnknownFacts(error.failure_message.partition("\n")[0])
    except HostSilent:
        return UnknownFacts(f"its host does not answer: nobody takes work from queue {queue}")


async def _check_replay(past: DeliveryHistory) -> verify.Claim:
    """Replay the histories of all runs on this installation's workflow code, in a process of its own; return the claim.

    Contradicted, with the first problem, when a run does not replay; unknown when the replay cannot be carried out.
    """
    name, runs = "history replays", format_count(len(past.histories), "run")
    try:
        problems = [line for line in await replay_histories(past.histories[::-1]) if line]
    except (PerdureError, OSError) as error:
        return _make_claim(name, unknown(str(error).partition("\n")[0]))
    if problems:
        return _make_claim(name, contradicted(problems[:1]))
    missing_note = "" if past.complete else "; earlier runs are gone from Temporal"
    events = sum(len(history.events) for history in past.histories)
    return _make_claim(name, verified(f"{events} events of {runs} on this installation's workflow code{missing_note}"))


async def _rerun_tests(
    client: Client, delivery: Delivery, evidence: Evidence, *, tests: bool, say: Say
) -> list[verify.Claim]:
    """Run the tests and the experiments again, in a small delivery of its own; return the claim about the tests and,
    when the result tells of an experiment, the one about that.

    So setup and sandbox are the real ones; that delivery changes and publishes nothing. Unknown where `tests` is False
    or the tests cannot be run.
    """
    result = evidence.result
    names = ["tests run again", *(["experiment again"] if result.tests.experiment else [])]
    if not tests:
        return [_make_claim(name, unknown("not asked for (--no-tests)")) for name in names]
    if reason := _no_rerun_reason(evidence):
        return [_make_claim(name, unknown(reason)) for name in names]
    original = parse_request(await delivery.request())
    request = DeliveryRequest(
        repository=original.repository,
        request=_rerun_request(evidence),
        base=result.base,
        branch=result.branch,
        phases=("test",),
        fix=False,
        config=original.config,
        source=original.source,
        allow_test_changes=original.allow_test_changes,
    )
    id = verification_id(delivery.id, uuid.uuid4().hex)
    say(f"  {id} runs the tests again")
    try:
        home = Home.find()
        rerun = await (await Perdure(client, home.key(), home.queue()).submit(request, id=id)).delivery.result()
    except PerdureError as error:
        return [_make_claim(name, unknown(f"{id}: {error.what}")) for name in names]
    judgements = [compare_tests(result.tests, rerun, id), compare_experiments(result, rerun)]
    return [_make_claim(name, judgement) for name, judgement in zip(names, judgements, strict=False)]


def _rerun_request(evidence: Evidence) -> str:
    """Return the request of the delivery that runs the tests again: it allows what the original request allowed.

    Where that asked for something to be removed, tests that went with it are changed promises. The delivery's id may
    have such words by accident, and is not in the text.
    """
    host = evidence.host
    experiment = None if isinstance(host, UnknownFacts) or host.report is None else host.report.experiment
    return "Run the tests again" + (
        " of a change that was asked to remove something" if experiment and experiment.removes else ""
    )


def _no_rerun_reason(evidence: Evidence) -> str:
    """Return why the tests cannot be run again; empty: they can."""
    result, outside = evidence.result, evidence.published
    if isinstance(evidence.host, UnknownFacts):
        return evidence.host.reason
    if isinstance(outside, UnknownFacts):
        return outside.reason
    if not result.branch or not result.head_sha or outside.tip is None:
        return f"{result.branch or 'its branch'} is not on the remote: it was never published, or is deleted"
    if outside.tip != result.head_sha:
        return f"{result.branch} is at {short_sha(outside.tip)} on the remote now"
    return ""


def compare_tests(before: TestsResult, rerun: DeliveryResult, id: str) -> tuple[verify.ClaimStatus, str]:
    """Compare the verdict of a rerun, a delivery of that id, with the receipt's; return the claim's status and
    explanation.

    Unknown when the rerun ended without a verdict or tested another tree, or when tests are flaky and the counts
    differ. Flaky tests are among the passed ones; of them, and of killed runs, the explanation tells: the other run
    need not have seen them.
    """
    now = rerun.tests
    if now.status not in (TestsStatus.GREEN, TestsStatus.RED):
        return unknown(f"{id} ended without a verdict: {rerun.message or rerun.status}")
    if now.tree_sha != before.tree_sha:
        return unknown(f"the branch has moved to tree {short_sha(now.tree_sha or '')} meanwhile")
    was_text, now_text = _tests_text(before), _tests_text(now)
    difference = f"the receipt says {was_text}, now it is {now_text} ({id})"
    if now.status != before.status:
        return contradicted([difference])
    if (now.passed, now.failed) != (before.passed, before.failed):
        return unknown(f"tests are flaky; {difference}") if now.flaky or before.flaky else contradicted([difference])
    more = "as before" if was_text == now_text else f"the receipt says {was_text}"
    return verified(f"{now_text} on tree {short_sha(now.tree_sha or '')}, {more} ({id})")


def compare_experiments(before: DeliveryResult, rerun: DeliveryResult) -> tuple[verify.ClaimStatus, str]:
    """Compare the experiments of a rerun with those of the delivery before; return the claim's status and explanation.

    Each number has to be found again; more is verified, too. Unknown where the rerun has no verdict or is red, the
    branch or the base has moved on, tests are flaky, or less could be tried than before.
    """
    was, now = before.tests, rerun.tests
    if now.status not in (TestsStatus.GREEN, TestsStatus.RED):
        return unknown(f"it ended without a verdict: {rerun.message or rerun.status}")
    if now.tree_sha != was.tree_sha:
        return unknown(f"the branch has moved to tree {short_sha(now.tree_sha or '')} meanwhile")
    if not now.experiment:
        return unknown("the tests are red now: nothing more was tried")
    same = (now.experiment, now.promises, now.tampered) == (was.experiment, was.promises, was.tampered)
    if same:
        return verified(f"{_experiment_text(now)}, as before")
    difference = f"it was {_experiment_text(was)}, now it is {_experiment_text(now)}"
    if (now.promises, now.tampered) == (was.promises, was.tampered):
        if _is_part_of(was.experiment, now.experiment):
            return verified(f"{_experiment_text(now)}: all of it, and more")
        if _is_part_of(now.experiment, was.experiment):
            return unknown(f"not all of it could be asked again, for lack of time, say; {difference}")
    if before.base_sha != rerun.base_sha:
        return unknown(f"{before.base} has moved on to {short_sha(rerun.base_sha or '')}; {difference}")
    return unknown(f"tests are flaky; {difference}") if now.flaky or was.flaky else contradicted([difference])


def _is_part_of(part: str, whole: str) -> bool:
    """Return whether one line of experiments (perdure.models.checks.report) says nothing but what the other says, and
    less."""
    return set(part.split(" · ")) < set(whole.split(" · "))


def _experiment_text(tests: TestsResult) -> str:
    """Return the line of the experiments, with the number of changed promises and places tampered with."""
    more = f", {format_count(tests.promises, 'changed promise')}" if tests.promises else ""
    return f"{tests.experiment}{more}" + (
        f", {format_count(tests.tampered, 'place')} tampered with" if tests.tampered else ""
    )


def _tests_text(tests: TestsResult) -> str:
    """Return a verdict's status and counts in words."""
    parts = [str(tests.status)]
    parts += [] if tests.passed is None else [f"{tests.passed} passed", f"{tests.failed} failed"]
    parts += [f"{tests.flaky} flaky"] if tests.flaky else []
    parts += [killed_runs_text(tests.killed_runs)] if tests.killed_runs else []
    return ", ".join(parts)


def _make_claim(name: str, judgement: tuple[verify.ClaimStatus, str]) -> verify.Claim:
    """Return a claim with its status and the explanation."""
    return verify.Claim(mark=judgement[0], claim=name, explanation=judgement[1])
