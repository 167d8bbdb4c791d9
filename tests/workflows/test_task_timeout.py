"""Nobody can report a worker that dies over a decision: every run asks the server to wait 5 s for one, not 10."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from perdure.client import Perdure
from perdure.client import budgets as treasury
from perdure.models.budget.treasury import TREASURY, BudgetRule
from perdure.models.limits import WORKFLOW_TASK
from tests.deliveries import WHOLE, Script, events, playing, reset, task_timeout

REFUSED = ApplicationError("no", type="ForgeRefused", non_retryable=True)


async def test_every_run_of_a_delivery_asks_for_five_seconds_a_decision(client: Client, fresh: str) -> None:
    """Submitted and left, submitted and accepted, retried, rewound. In a new run of a long history:
    test_words_holds_decisions_and_budget_go_along_into_a_new_run. From the command line: test_same_words_again."""
    assert timedelta(seconds=5) == WORKFLOW_TASK
    script = Script()
    script.troubles = {"open_pull_request": [REFUSED, REFUSED]}
    async with playing(client, script):
        for id, patience in ((fresh, None), (f"{fresh}-accepted", timedelta(seconds=30))):
            delivery = (await Perdure(client).submit(WHOLE, id=id, patience=patience)).delivery
            assert await task_timeout(client, id) == WORKFLOW_TASK
            first = await delivery.result()
            assert first.reason == "forge_refused"
        await delivery.retry()
        handle = client.get_workflow_handle(id)
        second = await delivery.result()
        assert (second.status, second.run_id == first.run_id) == ("delivered", False)
        assert await task_timeout(client, id, second.run_id) == WORKFLOW_TASK
        decided = [number for number, kind, _ in await events(handle) if kind == "workflow_task_completed"]
        rewound = await reset(handle, decided[-1])
        assert await task_timeout(client, id, rewound) == WORKFLOW_TASK
        assert (await delivery.result()).run_id == rewound


async def test_the_treasury_that_deliveries_wait_for_asks_for_as_little(client: Client) -> None:
    await treasury.put_rules(client, [BudgetRule(label="team-a", usd_per_day=1)])
    try:
        assert await task_timeout(client, TREASURY) == WORKFLOW_TASK
    finally:
        await client.get_workflow_handle(TREASURY).terminate()
