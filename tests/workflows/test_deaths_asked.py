"""A delivery asks after three deaths and about doubtful tests, and each failure has its own end."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import Client
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, RetryState, TimeoutError, TimeoutType

from perdure.client import Perdure
from perdure.models import errors
from perdure.models.delivery.result import DeliveryResult, Reason, Status, TestsStatus
from perdure.models.delivery.turn import Ending, TurnInput, TurnResult
from perdure.models.delivery.work import EscalationSettings, TestVerdict
from perdure.models.phases import Phase, Step
from tests.deliveries import ADelivery, Script
from workflows.endings import BAD_REQUESTS, ENDINGS, REASONS, DeliveryStopped, interpret_failure, not_delivered

KILLED = "prepare was cut off 3 times: its worker died (3 times)"
CUT_OFF = "implement was cut off 3 times: the sandbox was killed, perhaps for memory: peak 1.9 GB (3 times)"


class Deadly(Script):
    """The first turn of implement is cut off as often as this says, by three. `kind`: of its activity's failure."""

    def __init__(self, times: int, kind: str = "TurnKillsWorker") -> None:
        super().__init__()
        self.times, self.kind, self.turn = times, kind, self.dies

    async def dies(self, work: TurnInput) -> TurnResult:
        if work.step is Step.IMPLEMENT and work.approved_retries < self.times:
            raise ApplicationError(f"{CUT_OFF}\n  fix: retry", type=self.kind, non_retryable=True)
        return await self.plays(work)


@pytest.mark.parametrize("kind", ["TurnKillsWorker", "RepliesCut"])
async def test_the_third_death_asks_and_goes_on_as_often_as_a_person_says(a_delivery: ADelivery, kind: str) -> None:
    """So does the fifth reply that broke off on its way."""
    script = Deadly(times=2, kind=kind)
    async with a_delivery(Phase.BUILD, script=script, gates=("deaths",)) as delivery:
        first = await delivery.pending()
        assert (first.gate, first.options) == ("deaths", ("approve", "reject"))
        assert first.summary == f"{CUT_OFF}; approve to try again, reject to end it"
        await delivery.update("approve", of=first.target)
        second = await delivery.pending(behind=first)
        await delivery.approve(second.target)
        assert (await delivery.ended()).status == "completed"
    assert [work.approved_retries for work in script.seen] == [0, 1, 2]
    assert len({(work.step, work.attempt, work.turn, work.checkpoint) for work in script.seen}) == 1, "the same turn"


async def test_who_says_no_ends_it_with_everything_kept_and_a_retry_begins_to_count_anew(a_delivery: ADelivery) -> None:
    script = Deadly(times=1)
    async with a_delivery(Phase.BUILD, script=script, gates=("deaths",)) as delivery:
        await delivery.pending()
        await delivery.reject("it needs a larger host")
        result = await delivery.ended()
        assert (result.status, result.reason) == ("not_delivered", "limits")
        assert result.message == f"{CUT_OFF}; rejected: it needs a larger host"
        script.times = 0
        await delivery.retry()
        assert (await delivery.ended()).status == "completed"
    assert script.seen[-1].approved_retries == 0


@pytest.mark.parametrize("gates", [(), ("plan",)])
async def test_with_nobody_to_ask_the_third_death_ends_it(a_delivery: ADelivery, gates: tuple[str, ...]) -> None:
    script = Deadly(times=1)
    async with a_delivery(Phase.BUILD, script=script, gates=gates) as delivery:
        result = await delivery.ended()
    assert (result.status, result.reason) == ("not_delivered", "limits")
    assert result.message.startswith(CUT_OFF)


def killed(*asking: EscalationSettings) -> ApplicationError:
    return ApplicationError(f"{KILLED}\n  fix: retry", *asking, type="TurnKillsWorker", non_retryable=True)


async def test_before_anything_is_prepared_a_person_is_asked_too(a_delivery: ADelivery) -> None:
    deaths = [killed(EscalationSettings(asks=True, expiry_s=3600)), killed(EscalationSettings(asks=True))]
    async with a_delivery(Phase.BUILD, troubles={"prepare": deaths}) as delivery:
        first = await delivery.pending()
        assert (first.gate, first.options) == ("deaths", ("approve", "reject"))
        assert first.summary == f"{KILLED}; approve to try again, reject to end it"
        assert first.expires is not None
        assert (await delivery.describe()).pending_decision == first, "seen without a worker"
        await delivery.update("approve", of=first.target)
        second = await delivery.pending(behind=first)
        assert second.expires is None
        await delivery.approve(second.target)
        assert (await delivery.ended()).status == "completed"
    assert [work.approved_retries for work in delivery.script.preparing] == [0, 1, 2]


async def test_who_says_no_before_anything_is_prepared_ends_it_and_a_retry_prepares_anew(a_delivery: ADelivery) -> None:
    troubles = {"prepare": [killed(EscalationSettings(asks=True))]}
    async with a_delivery(Phase.BUILD, troubles=troubles) as delivery:
        await delivery.pending()
        await delivery.reject("it needs a larger host")
        result = await delivery.ended()
        assert (result.status, result.reason) == ("not_delivered", "limits")
        assert result.message == f"{KILLED}; rejected: it needs a larger host"
        await delivery.retry()
        assert (await delivery.ended()).status == "completed"
    assert [work.approved_retries for work in delivery.script.preparing] == [0, 0]


@pytest.mark.parametrize("asking", [(), (EscalationSettings(asks=False),)])
async def test_with_nobody_to_ask_the_third_death_of_prepare_ends_it(
    a_delivery: ADelivery, asking: tuple[EscalationSettings, ...]
) -> None:
    """No word of who is asked: a worker of a release before this one."""
    async with a_delivery(Phase.BUILD, troubles={"prepare": [killed(*asking)]}) as delivery:
        result = await delivery.ended()
    assert (result.status, result.reason) == ("not_delivered", "limits")
    assert result.message.startswith(KILLED)


async def test_a_retry_that_dies_while_it_prepares_asks_too(a_delivery: ADelivery) -> None:
    script = Deadly(times=1)
    async with a_delivery(Phase.BUILD, script=script) as delivery:
        assert (await delivery.ended()).reason == "limits"
        script.times, script.troubles = 0, {"prepare": [killed(EscalationSettings(asks=True))]}
        await delivery.retry()
        asked = await delivery.pending()
        await delivery.approve(asked.target)
        assert (await delivery.ended()).status == "completed"
    assert [(work.approved_retries, work.previous is None) for work in script.preparing] == [
        (0, True),
        (0, False),
        (1, False),
    ]


WORDS = "new and old failures cannot be told apart: unit: exit code 1"


class Doubtful(Script):
    """Its tests are red as the base was, on one tree a commit; `verdicts` says how often."""

    def __init__(self, *, doubted: int) -> None:
        super().__init__(gates=("tests",), allow_untested=False)
        self.blockers = []
        self.verdicts, self.doubted, self.asked = [], doubted, 0

    def verdict(self, attempt: int) -> TestVerdict:
        self.asked += 1
        status = TestsStatus.RED if self.asked <= self.doubted else TestsStatus.GREEN
        summary = "unit: exit code 1" if status is TestsStatus.RED else "3 green"
        tree = f"{attempt:0>40}"[::-1]
        return TestVerdict(status=status, tree=tree, report="r", summary=summary, undecidable=status is TestsStatus.RED)


async def delivered(client: Client, id: str) -> DeliveryResult:
    return await Perdure(client).delivery(id).result()


async def test_what_a_person_lets_through_is_published_with_their_word(a_delivery: ADelivery) -> None:
    script = Doubtful(doubted=1)
    async with a_delivery(script=script) as delivery:
        asked = await delivery.pending()
        assert (asked.gate, asked.options) == ("tests", ("approve", "reject"))
        assert asked.summary.startswith(WORDS)
        assert script.shipped == []
        said = {"of": asked.target, "note": "it is the old one", "by": "Ada"}
        assert await delivery.handle.execute_update("approve", said) == f"approved: tests {asked.target}"
        result = await delivery.ended()
    assert (result.status, result.tests.status) == (Status.DELIVERED, TestsStatus.RED)
    assert result.tests.accepted == "approved by Ada: it is the old one"
    [shipped] = script.shipped
    assert (shipped.draft, shipped.draft_reason, shipped.accepted) == (False, "", result.tests.accepted)


async def test_what_a_person_calls_new_is_mended_in_their_words_and_asked_again_for_the_new_tree(
    a_delivery: ADelivery,
) -> None:
    script = Doubtful(doubted=2)
    async with a_delivery(script=script) as delivery:
        first = await delivery.pending()
        await delivery.update("reject", of=first.target, note="test_sub is new")
        second = await delivery.pending(behind=first)
        await delivery.update("reject", of=second.target, note="it still is")
        result = await delivery.ended()
    assert (result.status, result.tests.status, result.tests.accepted) == (Status.DELIVERED, TestsStatus.GREEN, "")
    fixes = [work for work in script.seen if work.step == "fix_tests" and work.turn == 1]
    assert [(work.attempt, work.materials["words"]) for work in fixes] == [(1, "test_sub is new"), (2, "it still is")]
    assert [[said.text for said in work.delivered_messages] for work in fixes] == [[], ["test_sub is new"]]
    (review,) = [work for work in script.seen if work.step == "review"]
    assert [said.text for said in review.delivered_messages] == ["test_sub is new", "it still is"]


@pytest.mark.parametrize("gates", [(), ("tests",)])
async def test_where_nobody_is_asked_or_nobody_decides_in_time_it_is_a_draft_that_says_why(
    a_delivery: ADelivery, gates: tuple[str, ...]
) -> None:
    script = Doubtful(doubted=1)
    script.settings |= {"gates": gates, "expiry_s": 1.0}
    async with a_delivery(script=script) as delivery:
        result = await delivery.ended()
    assert (result.status, result.tests.accepted) == (Status.DRAFT, "")
    [shipped] = script.shipped
    assert (shipped.draft, shipped.draft_reason) == (True, WORDS)


def failure(cause: BaseException | None, state: RetryState = RetryState.NON_RETRYABLE_FAILURE) -> ActivityError:
    error = ActivityError(
        "failed", scheduled_event_id=1, started_event_id=2, identity="w", activity_type="implement",
        activity_id="1", retry_state=state,
    )  # fmt: skip
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(("kind", "reason"), [*REASONS.items(), ("KeyError", Reason.LIMITS), (None, Reason.LIMITS)])
def test_a_typed_failure_has_its_reason_and_any_other_is_our_own_mistake(kind: str | None, reason: Reason) -> None:
    stop = interpret_failure(failure(ApplicationError("why", type=kind)))
    assert isinstance(stop, DeliveryStopped)
    assert (stop.status, stop.reason, stop.message) == (Status.NOT_DELIVERED, reason, "why")


def test_every_type_named_here_exists_in_the_tree_of_errors() -> None:
    for name in {*REASONS, *BAD_REQUESTS} - {"ResultTooLarge"}:
        assert issubclass(getattr(errors, name), errors.PerdureError)


def test_every_ending_of_an_agent_but_done_has_a_reason_and_words() -> None:
    assert ENDINGS.keys() == set(Ending) - {Ending.DONE}


@pytest.mark.parametrize("kind", BAD_REQUESTS)
def test_a_bad_request_fails_the_workflow_instead_of_ending_a_delivery(kind: str) -> None:
    error = interpret_failure(failure(ApplicationError("base: no branch x", type=kind)))
    assert isinstance(error, ApplicationError)
    assert (error.type, error.non_retryable) == ("InvalidRequest", True)
    assert error.message == "InvalidRequest: base: no branch x"


def test_a_cancel_is_one_however_the_activity_heard_of_it() -> None:
    died = ApplicationError("the worker died", type="WorkerDied")
    assert isinstance(interpret_failure(failure(CancelledError("x"))), asyncio.CancelledError)
    assert isinstance(interpret_failure(failure(died, RetryState.CANCEL_REQUESTED)), asyncio.CancelledError)
    assert isinstance(interpret_failure(failure(died, RetryState.TIMEOUT)), DeliveryStopped)


def test_a_timeout_and_a_failure_without_a_cause_are_limits() -> None:
    late = TimeoutError("late", type=TimeoutType.SCHEDULE_TO_CLOSE, last_heartbeat_details=[])
    for cause, words in ((late, "implement did not end within"), (None, "failed")):
        stop = interpret_failure(failure(cause))
        assert isinstance(stop, DeliveryStopped)
        assert stop.reason is Reason.LIMITS
        assert words in stop.message
    assert str(not_delivered(Reason.BUDGET, "m")) == "m"
