"""`perdure verify`: every line of a delivery's receipt, derived again from git, history and ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.formatting import pluralise
from perdure.cli.ids import DeliveryId, resolve_id
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, run_coroutine
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

    raise typer.Exit(run_coroutine(_check_and_print(Screen(json=json), id, tests=not no_tests)))


async def _check_and_print(screen: Screen, id: str, *, tests: bool) -> int:
    """Check the claims of a delivery's receipt and print each as it is judged; return the exit code, 1 where one is
    contradicted.

    `tests`: run the tests again, too. With --json all claims are printed at the end.
    """
    from perdure.cli.look.verifying import check_receipt
    from perdure.models.verify import ClaimStatus

    perdure = await connect_client(screen)
    delivery = perdure.delivery(await resolve_id(perdure, id))
    claims: list[Claim] = []
    if not screen.json:
        screen.print_line(delivery.id)
    async for claim in check_receipt(perdure.client, delivery, tests=tests, say=screen.say):
        claims.append(claim)
        if not screen.json:
            screen.print_line(_claim_line(claim))
    if screen.json:
        holds = not any(claim.mark is ClaimStatus.CONTRADICTED for claim in claims)
        claim_data = [claim.model_dump(mode="json") for claim in claims]
        screen.print_json({"delivery_id": delivery.id, "holds": holds, "claims": claim_data})
    else:
        screen.print_lines(["", _summary_line(claims)])
    return 1 if any(claim.mark is ClaimStatus.CONTRADICTED for claim in claims) else 0


def _claim_line(claim: Claim) -> str:
    """Return a claim in one line: mark, name, explanation."""
    return f"{MARKS[claim.mark]} {claim.claim:<19} {one_line(claim.explanation, 400)}"


def _summary_line(claims: Sequence[Claim]) -> str:
    """Return how many claims are verified, contradicted, and could not be checked."""
    from perdure.models.verify import ClaimStatus

    marks = [claim.mark for claim in claims]
    parts = [f"{pluralise(marks.count(ClaimStatus.VERIFIED), 'claim')} of {len(marks)} verified"]
    if contradicted := marks.count(ClaimStatus.CONTRADICTED):
        parts.append(f"{contradicted} contradicted")
    if unchecked := marks.count(ClaimStatus.UNKNOWN):
        parts.append(f"{unchecked} could not be checked")
    return ", ".join(parts)
