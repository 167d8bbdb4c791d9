"""Work that was cut off three times holds and asks; where nobody is to be asked, it ends."""

from __future__ import annotations

import pytest
from people_fixtures import BUILT, Company, waiting
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from workflow_fixtures import playing

from perdure.client import Perdure
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.delivery.work import EscalationSettings
from perdure.models.phases import Phase, Step

KILLED = "prepare was cut off 3 times: its worker died (3 times)"
CUT_OFF = "implement was cut off 3 times: the sandbox was killed, perhaps for memory: peak 1.9 GB (3 times)"


class Deadly(Company):
    """The first turn of implement is cut off as often as this says, by three. `kind`: of its activity's failure."""

    def __init__(self, times: int, kind: str = "TurnKillsWorker") -> None:
        super().__init__()
        self.times, self.kind, self.turn = times, kind, self.dies

    async def dies(self, work: TurnInput) -> TurnResult:
        if work.step is Step.IMPLEMENT and work.approved_retries < self.times:
            raise ApplicationError(f"{CUT_OFF}\n  fix: retry", type=self.kind, non_retryable=True)
        return await self.plays(work)


@pytest.mark.parametrize("kind", ["TurnKillsWorker", "RepliesCut"])
async def test_the_third_death_asks_and_goes_on_as_often_as_a_person_says(
    client: Client, fresh: str, kind: str
) -> None:
    """So does the fifth reply that broke off on its way."""
    company = Deadly(times=2, kind=kind)
    company.asks(Phase.BUILD, gates=("deaths",))
    async with playing(client, company):
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        handle = client.get_workflow_handle(fresh)
        first = await waiting(handle)
        assert (first.gate, first.options) == ("deaths", ("approve", "reject"))
        assert first.summary == f"{CUT_OFF}; approve to try again, reject to end it"
        await handle.execute_update("approve", {"of": first.target})
        second = await waiting(handle, behind=first.target)
        await delivery.approve(second.target)
        assert (await delivery.result()).status == "completed"
    assert [work.approved_retries for work in company.seen] == [0, 1, 2]
    assert len({(work.step, work.attempt, work.turn, work.checkpoint) for work in company.seen}) == 1, "the same turn"


async def test_who_says_no_ends_it_with_everything_kept_and_a_retry_begins_to_count_anew(
    client: Client, fresh: str
) -> None:
    company = Deadly(times=1)
    company.asks(Phase.BUILD, gates=("deaths",))
    async with playing(client, company):
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        await waiting(client.get_workflow_handle(fresh))
        await delivery.reject("it needs a larger host")
        result = await delivery.result()
        assert (result.status, result.reason) == ("not_delivered", "limits")
        assert result.message == f"{CUT_OFF}; rejected: it needs a larger host"
        company.times = 0
        await delivery.retry()
        assert (await delivery.result()).status == "completed"
    assert company.seen[-1].approved_retries == 0


@pytest.mark.parametrize("gates", [(), ("plan",)])
async def test_with_nobody_to_ask_the_third_death_ends_it(client: Client, fresh: str, gates: tuple[str, ...]) -> None:
    company = Deadly(times=1)
    company.asks(Phase.BUILD, gates=gates)
    async with playing(client, company):
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        result = await delivery.result()
    assert (result.status, result.reason) == ("not_delivered", "limits")
    assert result.message.startswith(CUT_OFF)


def killed(*asking: EscalationSettings) -> ApplicationError:
    return ApplicationError(f"{KILLED}\n  fix: retry", *asking, type="TurnKillsWorker", non_retryable=True)


async def test_before_anything_is_prepared_a_person_is_asked_too(client: Client, fresh: str) -> None:
    company = Company()
    company.asks(Phase.BUILD)
    company.troubles = {
        "prepare": [killed(EscalationSettings(asks=True, expiry_s=3600)), killed(EscalationSettings(asks=True))]
    }
    async with playing(client, company):
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        handle = client.get_workflow_handle(fresh)
        first = await waiting(handle)
        assert (first.gate, first.options) == ("deaths", ("approve", "reject"))
        assert first.summary == f"{KILLED}; approve to try again, reject to end it"
        assert first.expires is not None
        assert (await delivery.describe()).pending_decision == first, "seen without a worker"
        await handle.execute_update("approve", {"of": first.target})
        second = await waiting(handle, behind=first.target)
        assert second.expires is None
        await delivery.approve(second.target)
        assert (await delivery.result()).status == "completed"
    assert [work.approved_retries for work in company.preparing] == [0, 1, 2]


async def test_who_says_no_before_anything_is_prepared_ends_it_and_a_retry_prepares_anew(
    client: Client, fresh: str
) -> None:
    company = Company()
    company.asks(Phase.BUILD)
    company.troubles = {"prepare": [killed(EscalationSettings(asks=True))]}
    async with playing(client, company):
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        await waiting(client.get_workflow_handle(fresh))
        await delivery.reject("it needs a larger host")
        result = await delivery.result()
        assert (result.status, result.reason) == ("not_delivered", "limits")
        assert result.message == f"{KILLED}; rejected: it needs a larger host"
        await delivery.retry()
        assert (await delivery.result()).status == "completed"
    assert [work.approved_retries for work in company.preparing] == [0, 0]


@pytest.mark.parametrize("asking", [(), (EscalationSettings(asks=False),)])
async def test_with_nobody_to_ask_the_third_death_of_prepare_ends_it(
    client: Client, fresh: str, asking: tuple[EscalationSettings, ...]
) -> None:
    """No word of who is asked: a worker of a release before this one."""
    company = Company()
    company.asks(Phase.BUILD)
    company.troubles = {"prepare": [killed(*asking)]}
    async with playing(client, company):
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        result = await delivery.result()
    assert (result.status, result.reason) == ("not_delivered", "limits")
    assert result.message.startswith(KILLED)


async def test_a_retry_that_dies_while_it_prepares_asks_too(client: Client, fresh: str) -> None:
    company = Deadly(times=1)
    company.asks(Phase.BUILD)
    async with playing(client, company):
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        assert (await delivery.result()).reason == "limits"
        company.times, company.troubles = 0, {"prepare": [killed(EscalationSettings(asks=True))]}
        await delivery.retry()
        asked = await waiting(client.get_workflow_handle(fresh))
        await delivery.approve(asked.target)
        assert (await delivery.result()).status == "completed"
    assert [(work.approved_retries, work.previous is None) for work in company.preparing] == [
        (0, True),
        (0, False),
        (1, False),
    ]
