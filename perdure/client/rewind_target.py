"""Checks before a rewind or a fork: whether a turn can be taken again, and under which contract."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from perdure.client.delivery import Delivery
from perdure.client.history import DeliveryHistory
from perdure.client.host_activities import HostRefused, HostSilent, run_on_host
from perdure.client.turns import TurnRecord
from perdure.models.errors import BadInput
from perdure.models.forking import RewindTargetInput, RewindTargetResult
from perdure.models.ids import delivery_key
from perdure.models.phases import Step

AIM_TIMEOUT = timedelta(seconds=5)
"""Limit for the host's answer: a live host answers in milliseconds. Without an answer the checkpoint is not checked
here; the turn itself checks it when it begins."""


async def resolve_turn_contract(
    delivery: Delivery, turn: TurnRecord, *, model: str = "", agent: str = "", keep: bool = False
) -> RewindTargetResult | None:
    """Ask the turn's host to check its checkpoint; return the contract and the models that hold from that turn on.

    Runs activity `aim` on the turn's task queue, outside of any workflow, for at most AIM_TIMEOUT. `model` and `agent`
    are wanted for all steps from the turn on; empty: unchanged. With `keep` the host stores the changed contract as an
    artifact of the delivery. Returns None where the contract stays as it is: the host does not answer, or neither model
    nor agent is given and its worker, of an earlier release, does not have the activity. Raises BadInput where the
    checkpoint is damaged, the agent cannot take the turn or the host refuses for another reason, and HostSilent where
    the host does not answer although another model or agent was to be kept.
    """
    work = RewindTargetInput(
        delivery=delivery_key(delivery.id),
        contract=turn.terms,
        step=Step(turn.step),
        turn=turn.turn,
        checkpoint=turn.before,
        model=model,
        agent=agent,
        keep=keep,
    )
    try:
        return await run_on_host(
            delivery.client, "aim", work, RewindTargetResult, queue=turn.queue, about=delivery.id, within=AIM_TIMEOUT
        )
    except HostRefused as error:
        if error.type == "NotFoundError" and not (model or agent):
            return None  # a worker of an earlier release
        raise BadInput(f"{turn.place}: {error.failure_message.partition(chr(10))[0]}", where=delivery.id) from None
    except HostSilent:
        if keep and (model or agent):
            raise
        return None


def require_no_backlog(id: str, runs: Sequence[tuple[str, DeliveryHistory]]) -> None:
    """Raise BadInput for a backlog and for the delivery of a backlog's item: neither can be rewound or forked.

    `runs` are the runs of workflow `id` with their histories, the newest last. What a backlog's delivery has landed,
    others build on.
    """
    newest_history = runs[-1][1]
    if newest_history.type == "Backlog":
        fix = f"perdure backlog status {id} names what can be done with one"
        raise BadInput("a backlog cannot go back: its deliveries have begun, and what landed stays", where=id, fix=fix)
    if newest_history.request.get("landing"):
        fix = f'perdure say {id} "…" tells it something'
        reason = "an item of a backlog cannot be rewound or forked: its turn to land was granted for what it is"
        raise BadInput(reason, where=id, fix=fix)
