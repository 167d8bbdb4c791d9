"""The replies of a model that a run asks for: a rewind wants others than there are, a retry those that were bought."""

from __future__ import annotations

from temporalio.client import Client

from perdure.client import Perdure
from perdure.models.ids import short_run_id
from perdure.models.phases import Phase
from tests.deliveries import PLANNED, Script, events, playing, reset, waiting


async def test_each_turn_says_which_run_was_started_and_a_retry_goes_on_with_what_a_rewind_began(
    client: Client, fresh: str
) -> None:
    script = Script(Phase.PLAN, gates=("plan",))
    async with playing(client, script):
        delivery = (await Perdure(client).submit(PLANNED, id=fresh)).delivery
        handle = client.get_workflow_handle(fresh)
        await waiting(handle)
        first = (await delivery.describe()).run_id
        done = [event for event, kind, _ in await events(handle) if kind == "workflow_task_completed"]
        rewound = await reset(handle, done[1])
        await waiting(client.get_workflow_handle(fresh, run_id=rewound))
        begun = [(work.step, work.started_run_suffix, work.sample) for work in script.seen]
        assert begun == [("classify", short_run_id(first), ""), ("plan", short_run_id(first), "")] * 2, (
            "a rewound run has the same input"
        )

        await delivery.cancel()
        assert (await delivery.result()).status == "cancelled"
        script.seen.clear()
        described = await delivery.describe()
        assert described.resume is not None
        assert described.resume.state["turns"]["sample"] == short_run_id(rewound)
        await delivery.retry()
        asked = await waiting(handle)
        await delivery.reject("another one")
        await waiting(handle, behind=asked.target)
        again = (await delivery.describe()).run_id
        assert {(work.started_run_suffix, work.sample) for work in script.seen} == {
            (short_run_id(again), short_run_id(rewound))
        }
        await delivery.approve()
        assert (await delivery.result()).status == "completed"
