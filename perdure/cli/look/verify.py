"""`perdure verify`: every line of a delivery's receipt, derived again from git, history and ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.ids import DeliveryId, resolve_id
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out, connected
from perdure.cli.words import count
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.models.verify import Claim

MARKS = {"verified": "✓", "contradicted": "✗", "unknown": "?"}


def verify(
    id: DeliveryId = "@last",
    no_tests: Annotated[bool, typer.Option("--no-tests", help="Do not run the tests again.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the claims as JSON.")] = False,
) -> None:
    """Check every line of a delivery's receipt again. Exit 1 when one does not hold; ? could not be checked."""

    raise typer.Exit(carry_out(_verify(Screen(json=json), id, tests=not no_tests)))


async def _verify(screen: Screen, id: str, *, tests: bool) -> int:
    from perdure.cli.look.verifying import verified
    from perdure.models.verify import Mark

    perdure = await connected(screen)
    delivery = perdure.delivery(await resolve_id(perdure, id))
    found: list[Claim] = []
    if not screen.json:
        screen.line(delivery.id)
    async for claim in verified(perdure.client, delivery, tests=tests, say=screen.say):
        found.append(claim)
        if not screen.json:
            screen.line(_line(claim))
    if screen.json:
        holds = not any(claim.mark is Mark.CONTRADICTED for claim in found)
        told = [claim.model_dump(mode="json") for claim in found]
        screen.data({"delivery_id": delivery.id, "holds": holds, "claims": told})
    else:
        screen.lines(["", _summary(found)])
    return 1 if any(claim.mark is Mark.CONTRADICTED for claim in found) else 0


def _line(claim: Claim) -> str:
    return f"{MARKS[claim.mark]} {claim.claim:<19} {one_line(claim.said, 400)}"


def _summary(found: Sequence[Claim]) -> str:
    from perdure.models.verify import Mark

    marks = [claim.mark for claim in found]
    parts = [f"{count(marks.count(Mark.VERIFIED), 'claim')} of {len(marks)} verified"]
    if wrong := marks.count(Mark.CONTRADICTED):
        parts.append(f"{wrong} contradicted")
    if left := marks.count(Mark.UNKNOWN):
        parts.append(f"{left} could not be checked")
    return ", ".join(parts)
