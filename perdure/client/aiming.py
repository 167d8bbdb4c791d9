"""A turn that is to be taken anew, asked about at its host before anything is rewound or forked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from perdure.client.delivery import Delivery
from perdure.client.history import Past
from perdure.client.standalone import HostRefused, HostSilent, ask_host
from perdure.client.turns import Turn
from perdure.models.errors import BadInput
from perdure.models.forking import Aimed, AimInput
from perdure.models.ids import delivery_key
from perdure.models.phases import Step

AIM_TIMEOUT = timedelta(seconds=5)
"""A host that lives answers in milliseconds; a checkpoint cannot be looked at without it, and the turn itself will."""


async def aim(delivery: Delivery, turn: Turn, *, model: str = "", agent: str = "", keep: bool = False) -> Aimed | None:
    """The terms that hold from a turn on; None where its host does not answer and they stay as they are.

    BadInput for a turn whose checkpoint is damaged and for an agent that cannot take it. HostSilent where another model
    or agent is wanted and the host does not answer.
    """
    work = AimInput(
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
        return await ask_host(
            delivery.client, "aim", work, Aimed, queue=turn.queue, about=delivery.id, within=AIM_TIMEOUT
        )
    except HostRefused as error:
        if error.type == "NotFoundError" and not (model or agent):
            return None  # a worker of an earlier release
        raise BadInput(f"{turn.place}: {error.said.partition(chr(10))[0]}", where=delivery.id) from None
    except HostSilent:
        if keep and (model or agent):
            raise
        return None


def not_of_a_backlog(id: str, runs: Sequence[tuple[str, Past]]) -> None:
    """BadInput for a backlog and for its deliveries: what they have landed, others stand on."""
    past = runs[-1][1]
    if past.type == "Backlog":
        fix = f"perdure backlog status {id} names what can be done with one"
        raise BadInput("a backlog cannot go back: its deliveries have begun, and what landed stays", where=id, fix=fix)
    if past.request.get("landing"):
        fix = f'perdure say {id} "…" tells it something'
        words = "an item of a backlog cannot be rewound or forked: its turn to land was granted for what it is"
        raise BadInput(words, where=id, fix=fix)
