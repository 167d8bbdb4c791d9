"""Work that was cut off three times holds and asks; where nobody is to be asked, it ends."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.delivery.work import EscalationSettings
from perdure.models.phases import Phase, Step
from tests.deliveries import ADelivery, Script

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
