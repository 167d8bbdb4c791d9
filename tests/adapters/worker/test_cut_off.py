"""Attempts that are cut off: by deaths, takeovers, a cancel, the end of their worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attempting import WORK, attempt, ends, environment, fail, host
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from perdure.adapters.worker.attempt import DEATHS_PER_TURN, work_key
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.lease import SUPERSEDED
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.turn import TurnInput
from perdure.models.delivery.work import EscalationSettings, PrepareInput
from perdure.models.errors import (
    WorkCutOff,
)

__all__ = ["host"]


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
