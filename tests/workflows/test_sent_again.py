"""An update that is refused at the moment at which its workflow continues as new is sent again, as the same one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from backlog_fixtures import Branch, night
from backlog_fixtures import backlog as begun
from temporalio.client import Client, Interceptor, OutboundInterceptor, StartWorkflowUpdateInput, WorkflowUpdateHandle
from temporalio.service import RPCError, RPCStatusCode

from perdure.client import Perdure
from perdure.client.server.calls import UPDATE_TRIES
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from tests.deliveries import ADelivery, playing

REFUSED = "Unable to perform workflow execution update due to unexpected workflow task failure."


class Refusing(Interceptor):
    """A part of the client, in the place of a server that is caught in that moment so many times."""

    def __init__(self, times: int, status: RPCStatusCode = RPCStatusCode.FAILED_PRECONDITION) -> None:
        self.times, self.status, self.ids = times, status, list[str | None]()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        refusing = self

        class Outbound(OutboundInterceptor):
            async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
                refusing.ids.append(input.update_id)
                if len(refusing.ids) <= refusing.times:
                    raise RPCError(REFUSED, refusing.status, b"")
                return await super().start_workflow_update(input)

        return Outbound(next)

    async def client(self, server: str) -> Perdure:
        return Perdure(await Client.connect(server, plugins=[perdure_plugin(interceptors=[self])]))


async def test_a_change_to_a_backlog_outlasts_the_moment_and_counts_once(
    client: Client, server: str, fresh: str
) -> None:
    branch, refusing = Branch(api="a", page="p"), Refusing(2)
    branch.holding = {"api": asyncio.Event()}
    async with playing(client, branch):
        await Perdure(client).submit_backlog(night({"id": "api"}), fresh)
        backlog = (await refusing.client(server)).backlog(fresh)
        assert "added: page" in await backlog.add({"id": "page", "request": "Do page"})
        assert len(refusing.ids) == 3
        assert len(set(refusing.ids)) == 1, "the same one each time"
        assert [view.id for view in (await backlog.progress()).items] == ["api", "page"]
        branch.holding["api"].set()


async def test_a_decision_outlasts_it_too(a_delivery: ADelivery, server: str) -> None:
    refusing = Refusing(1)
    async with a_delivery(Phase.PLAN, gates=("plan",)) as delivery:
        asked = await delivery.pending()
        answered = await (await refusing.client(server)).delivery(delivery.id).approve(asked.target)
        assert (answered.message, answered.received) == (f"approved: plan {asked.target}", True)
        assert len(refusing.ids) == 2
        assert len(set(refusing.ids)) == 1


@pytest.mark.parametrize(
    ("refusing", "sent"),
    [
        (Refusing(99), UPDATE_TRIES),
        (Refusing(99, RPCStatusCode.PERMISSION_DENIED), 1),
    ],
    ids=["for_ever", "for_another_reason"],
)
async def test_an_update_that_is_refused_for_good_is_not_sent_for_ever(
    client: Client, server: str, fresh: str, refusing: Refusing, sent: int
) -> None:
    await begun(client, fresh, night({"id": "api"}))
    with pytest.raises(RPCError, match="Unable to perform"):
        await (await refusing.client(server)).backlog(fresh).prioritise("api", 5)
    assert len(refusing.ids) == sent
