"""Around an activity: what goes on the record, what its errors become, and whatever cuts it off."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from perdure.adapters.system.home import Home
from perdure.adapters.worker.attempt import (
    DEATHS_PER_TURN,
    FAILURE_CHARS,
    RESULT_BYTES,
    UNEXPECTED_FAILURES,
    AttemptInterceptor,
    heartbeat_pause,
    update_heartbeat,
    work_key,
)
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.lease import SUPERSEDED
from perdure.models.config.host import HostConfig
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.delivery.work import CloseInput, CloseResult, EscalationSettings, PrepareInput
from perdure.models.errors import (
    BadInput,
    ModelRefusesUs,
    ModelUnavailable,
    NoPorts,
    PerdureError,
    SetupFailed,
    Superseded,
    WorkCutOff,
)
from perdure.models.limits import MODEL_PAUSE, MODEL_PAUSE_MAX
from tests.waiting import until

WORK = CloseInput(delivery="d")


class Doing(ActivityInboundInterceptor):
    """The end of the chain: what the activity itself does."""

    def __init__(self, do: Callable[[], Awaitable[Any]]) -> None:
        self.do = do

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return await self.do()


@pytest.fixture
def host(home: Home) -> Host:
    return Host(home, HostConfig(), None)


def environment(name: str = "implement", **info: Any) -> ActivityEnvironment:
    env = ActivityEnvironment()
    env.info = dataclasses.replace(env.info, activity_type=name, **info)
    return env


async def attempt(
    host: Host,
    do: Callable[[], Awaitable[Any]],
    *,
    work: Any = WORK,
    env: ActivityEnvironment | None = None,
    worker: AttemptInterceptor | None = None,
) -> Any:
    """`worker`: the interceptor that attempts of one worker share."""
    chain = (worker or AttemptInterceptor(host)).intercept_activity(Doing(do))
    arguments = [] if work is None else [work]
    call = ExecuteActivityInput(fn=lambda: None, args=arguments, executor=None, headers={})
    return await (env or environment()).run(chain.execute_activity, call)


async def fail(host: Host, error: BaseException, **more: Any) -> ApplicationError:
    async def do() -> None:
        raise error

    with pytest.raises(ApplicationError) as raised:
        await attempt(host, do, **more)
    return raised.value


def ends(host: Host) -> list[str]:
    return [line["how"] for line in host.journal("d")._read_entries() if "ended" in line]


__all__ = ["host"]


async def test_an_attempt_is_noted_in_flight_before_it_begins_and_journalled_when_it_has_ended(host: Host) -> None:
    async def do() -> CloseResult:
        (note,) = (host.home.inflight / host.inflight.worker).iterdir()
        assert json.loads(note.read_bytes())["run_id"] == "test-run"
        (line,) = host.journal("d")._read_entries()
        assert (line["activity"], line["worker"]) == ("implement", host.inflight.worker)
        return CloseResult(message="done")

    assert await attempt(host, do) == CloseResult(message="done")

    async def find() -> TurnResult:
        return TurnResult(checkpoint="c", summary="s", adopted=True)

    await attempt(host, find)
    assert ends(host) == ["done", "adopted"]


async def test_heartbeats_tell_what_the_attempt_does_from_a_task_of_its_own(host: Host) -> None:
    env, beats = environment(), []
    env.on_heartbeat = lambda *details: beats.append(details)

    async def do() -> None:
        update_heartbeat(turn=3)
        update_heartbeat(doing="pytest -q")
        assert not beats, "that it has begun, the server knows"
        await until(lambda: beats)

    await attempt(host, do, env=env)
    beaten = len(beats)
    assert beats[0] == ({"turn": 3, "doing": "pytest -q"},)
    await asyncio.sleep(1.1)
    assert len(beats) == beaten, "an attempt that has ended went on beating"


@pytest.mark.parametrize(("running", "seconds"), [(1, 1.0), (5, 1.0), (10, 2.0), (15, 3.0), (500, 3.0)])
def test_five_heartbeats_a_second_are_shared_by_all_attempts_of_a_worker(running: int, seconds: float) -> None:
    assert heartbeat_pause(running) == seconds


async def test_ten_attempts_of_a_worker_beat_every_two_seconds_each(host: Host) -> None:
    worker = AttemptInterceptor(host)

    async def one(number: int) -> float:
        env, beats = environment(activity_id=str(number)), list[float]()
        env.on_heartbeat = lambda *_: beats.append(time.monotonic())

        async def do() -> None:
            await until(lambda: len(beats) == 2)

        await attempt(host, do, env=env, worker=worker)
        return beats[1] - beats[0]

    pauses = await asyncio.gather(*(one(number) for number in range(10)))
    assert min(pauses) >= 2.0


def test_saying_what_one_does_outside_of_an_attempt_is_fine() -> None:
    update_heartbeat(doing="nothing")


async def test_reading_is_nobodys_work_and_leaves_no_record(host: Host) -> None:
    async def do() -> str:
        return "page"

    assert await attempt(host, do, env=environment("read", workflow_run_id=None)) == "page"
    assert await attempt(host, do, work=None) == "page"
    assert not host.home.workspace("d").exists()


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (SetupFailed("no uv", where="perdure.toml", fix="install uv"), True),
        (BadInput("no"), True),
        (ModelRefusesUs("no key"), True),
        (NoPorts("all taken"), False),
        (Superseded("a newer attempt works here"), False),
        (PerdureError("ours"), False),
        (KeyError("a mistake of ours"), False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_error_keeps_its_type_and_says_whether_to_try_again(host: Host, error: Exception, final: bool) -> None:
    raised = await fail(host, error)
    assert (raised.type, raised.non_retryable) == (type(error).__name__, final)
    assert str(error) in raised.message
    assert ends(host) == [type(error).__name__]


async def test_what_nobody_foresaw_is_tried_again_but_not_for_ever(host: Host) -> None:
    tries = [(await fail(host, RuntimeError("?"))).non_retryable for _ in range(UNEXPECTED_FAILURES)]
    assert tries == [False] * (UNEXPECTED_FAILURES - 1) + [True]
    assert not (await fail(host, RuntimeError("?"), work=CloseInput(delivery="d", keep=True))).non_retryable


async def test_a_models_pause_is_the_one_it_asked_for_else_doubles_up_to_the_longest(host: Host) -> None:
    async def pause(number: int, asked: float | None = None) -> float:
        raised = await fail(host, ModelUnavailable("529", retry_after=asked), env=environment(attempt=number))
        assert raised.next_retry_delay is not None
        return raised.next_retry_delay.total_seconds()

    first, longest = MODEL_PAUSE.total_seconds(), MODEL_PAUSE_MAX.total_seconds()
    assert 7 <= await pause(5, asked=7) <= 7 * 1.25
    assert first <= await pause(1) <= first * 1.25
    assert 2 * first <= await pause(2) <= 2 * first * 1.25
    assert longest <= await pause(50) <= longest * 1.25


async def test_a_long_message_is_cut_in_its_middle_and_its_cause_stays_on_the_host(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    async def do() -> None:
        try:
            raise ValueError("inner " * 5000)
        except ValueError as inner:
            raise RuntimeError("begin " + "x" * 50_000 + " end") from inner

    with pytest.raises(ApplicationError) as raised:
        await attempt(host, do)
    assert len(raised.value.message) < FAILURE_CHARS + 100
    assert raised.value.message.startswith("RuntimeError: begin")
    assert raised.value.message.endswith(" end")
    failure = DataConverter.default.failure_converter
    from temporalio.api.failure.v1 import Failure

    written = Failure()
    failure.to_failure(raised.value, DataConverter.default.payload_converter, written)
    assert written.ByteSize() < 3 * FAILURE_CHARS
    assert "inner" in caplog.text


async def test_a_result_too_large_for_history_fails_before_anybody_relies_on_it(host: Host) -> None:
    async def do() -> CloseResult:
        return CloseResult(message="ü" * (RESULT_BYTES // 2))

    with pytest.raises(ApplicationError) as raised:
        await attempt(host, do)
    assert (raised.value.type, raised.value.non_retryable) == ("ResultTooLarge", True)
    assert ends(host) == ["failed"]


async def test_what_a_run_ends_with_leaves_no_note_that_somebody_would_read_for_ever(host: Host) -> None:
    async def do() -> str:
        return "done"

    notes, kept = host.home.inflight / host.inflight.worker, []
    for name, error in (("implement", None), ("close", None), ("close", OSError("x")), ("notify", OSError("x"))):
        await (fail(host, error, env=environment(name)) if error else attempt(host, do, env=environment(name)))
        kept.append(sum(1 for _ in notes.iterdir()))
    assert kept == [1, 0, 1, 0], "a close that failed is tried again"


async def test_every_attempt_at_a_piece_of_work_shares_its_key_and_nothing_else_does() -> None:
    turn = TurnInput(delivery="d", step="implement", attempt=1, turn=1, checkpoint="c", contract="p")

    async def key_of(work: Any = turn, **info: Any) -> str:
        async def key() -> str:
            return work_key(work)

        return await environment(**info).run(key)

    same = await key_of()
    assert same == await key_of(attempt=9, activity_id="other")
    others = [
        await key_of(turn.model_copy(update={"turn": 2})),
        await key_of(workflow_run_id="a rewind"),
        await key_of(name="review"),
        await key_of("not a model"),
    ]
    assert len({same, *others}) == 5


async def test_the_work_that_has_killed_its_worker_three_times_is_not_begun_again(host: Host) -> None:
    async def key() -> str:
        return work_key(WORK)

    shared = await environment().run(key)
    log = host.journal("d")
    for number in range(DEATHS_PER_TURN):
        log.record_start(attempt=str(number), key=shared, activity="implement", worker="gone")
    raised = await fail(host, AssertionError("it was begun"))
    assert (raised.type, raised.non_retryable) == ("TurnKillsWorker", True)
    assert "perdure retry test" in raised.message

    work = TurnInput(delivery="d", step="implement", attempt=1, turn=1, checkpoint="c", contract="p")

    async def of_turn() -> str:
        return work_key(work)

    turn = await environment().run(of_turn)
    for number in range(DEATHS_PER_TURN):
        log.record_start(attempt=f"turn {number}", key=turn, activity="implement", worker="gone")
    assert (await fail(host, AssertionError("it was begun"), work=work)).type == "TurnKillsWorker"
    allowed = work.model_copy(update={"approved_retries": 1})
    assert (await fail(host, OSError("begun"), work=allowed)).type == "OSError", "a person lets it be tried again"
    for number in range(DEATHS_PER_TURN):
        log.record_start(attempt=f"again {number}", key=turn, activity="implement", worker="gone")
    assert (await fail(host, AssertionError("it was begun"), work=allowed)).type == "TurnKillsWorker", "and no more"

    async def do() -> str:
        return "tidied up"

    assert await attempt(host, do, env=environment("close")) == "tidied up"


@pytest.mark.parametrize("told", [None, EscalationSettings(asks=True, expiry_s=60.0, notifies=True)])
async def test_a_prepare_that_is_not_begun_again_says_who_decides_as_far_as_that_is_known(
    host: Host, told: EscalationSettings | None
) -> None:
    work = PrepareInput(delivery="d", request=DeliveryRequest(repository="/r", request="x"))
    env = environment("prepare")

    async def killed() -> None:
        host.journal("d").record_deciders(EscalationSettings(asks=False))
        if told is not None:
            host.journal("d").record_deciders(told)
        raise WorkCutOff("the sandbox was killed")

    for _ in range(DEATHS_PER_TURN):
        with pytest.raises(ApplicationError, match="the sandbox was killed"):
            await attempt(host, killed, work=work, env=env)
    raised = await fail(host, AssertionError("it was begun"), work=work, env=env)
    assert (raised.type, raised.details) == ("TurnKillsWorker", (told or EscalationSettings(asks=False),))
    again = work.model_copy(update={"approved_retries": 1})
    assert (await fail(host, OSError("begun"), work=again, env=env)).type == "OSError", (
        "a person lets it be tried again"
    )


async def test_a_sandbox_that_is_ended_again_and_again_is_named_by_what_it_was(host: Host) -> None:
    killed = WorkCutOff("the sandbox was killed, perhaps for memory: peak 1.9 GB")
    for _ in range(DEATHS_PER_TURN):
        raised = await fail(host, killed)
        assert (raised.type, raised.non_retryable) == ("WorkCutOff", False)
    raised = await fail(host, AssertionError("it was begun"))
    assert raised.type == "TurnKillsWorker"
    assert "was cut off 3 times: the sandbox was killed, perhaps for memory: peak 1.9 GB (3 times)" in raised.message


async def interrupted(host: Host, env: ActivityEnvironment, stop: Callable[[asyncio.Task[Any]], Any]) -> BaseException:
    begun = asyncio.Event()

    async def do() -> None:
        begun.set()
        await asyncio.sleep(30)

    task = asyncio.create_task(attempt(host, do, env=env))
    await begun.wait()
    stop(task)
    try:
        await task
    except (asyncio.CancelledError, ApplicationError) as error:
        return error
    raise AssertionError("it was not interrupted")


async def test_a_takeover_is_superseded_and_never_temporals_own_cancel(host: Host) -> None:
    error = await interrupted(host, environment(), lambda task: task.cancel(SUPERSEDED))
    assert isinstance(error, ApplicationError)
    assert (error.type, error.non_retryable) == ("Superseded", False)
    env = environment()
    details = activity.ActivityCancellationDetails(timed_out=True)
    error = await interrupted(host, env, lambda _: env.cancel(details))
    assert isinstance(error, ApplicationError)
    assert error.type == "Superseded"
    assert ends(host) == ["superseded", "superseded"]


async def test_a_cancel_that_was_asked_for_stays_one(host: Host) -> None:
    env = environment()
    assert isinstance(await interrupted(host, env, lambda _: env.cancel()), asyncio.CancelledError)
    assert ends(host) == ["cancelled"]


async def test_what_a_shutdown_interrupts_is_handed_over_at_once(host: Host) -> None:
    env = environment()

    def stop(task: asyncio.Task[Any]) -> None:
        env.worker_shutdown()
        task.cancel()

    error = await interrupted(host, env, stop)
    assert isinstance(error, ApplicationError)
    assert (error.type, error.non_retryable) == ("WorkerShutdown", False)
    assert error.next_retry_delay == timedelta(milliseconds=1)
