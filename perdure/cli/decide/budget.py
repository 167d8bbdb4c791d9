"""`perdure budget`: what a delivery, or all that share a budget, have spent and may spend; and more of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.decide.answer import login_name, report_decision
from perdure.cli.ids import LAST, Json
from perdure.cli.screen import Screen
from perdure.cli.session import run_coroutine, run_with_delivery
from perdure.models.errors import BadInput
from perdure.models.limits import TOKENS_MOST, USD_LEAST, USD_MOST

if TYPE_CHECKING:
    from perdure.client import Delivery


def budget(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A delivery; with --shared a budget as it is named there: label:team-a.",
            show_default=True,
        ),
    ] = LAST,
    add: Annotated[float | None, typer.Option("--add", metavar="USD", help="Dollars more.")] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", metavar="N", help="Tokens more.")] = None,
    time: Annotated[str | None, typer.Option("--time", metavar="1h", help="Time more.")] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Of the day's budgets (UTC) that deliveries share by repository or label.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what a delivery has spent and may spend; with options, let it spend more: it goes on at the same turn."""
    screen = Screen(json=json)
    if shared:
        _run_shared(screen, "" if id == LAST else id, add, tokens, time)
        return
    _check_amounts(id, add, tokens)

    async def show_or_raise(delivery: Delivery) -> None:
        from perdure.cli.decide.decision_view import budget_json, budget_lines

        if add is None and tokens is None and time is None:
            progress = await delivery.progress()
            if json:
                screen.print_json(budget_json(progress))
            else:
                screen.print_lines(budget_lines(progress))
            return
        answered = await delivery.add_budget(add or 0, tokens or 0, time, by=login_name())
        report_decision(screen, delivery.id, answered, {"decided": "add_budget"})

    run_with_delivery(screen, id, show_or_raise)


def _check_amounts(id: str, add: float | None, tokens: int | None) -> None:
    """Raise BadInput for an amount that is not positive or outside the limits of one raise, before any request is
    sent."""
    for option, amount, least, most in (("--add", add, USD_LEAST, USD_MOST), ("--tokens", tokens, 1, TOKENS_MOST)):
        fix = f"perdure budget {shlex.quote(id)} {option} {5 if option == '--add' else 500000}"
        if amount is not None and not 0 < amount < float("inf"):
            raise BadInput(f"{amount:g} is nothing more: a budget is only ever raised", where=option, fix=fix)
        if amount is not None and not least <= amount <= most:
            wrong = "much" if amount > most else "little"
            raise BadInput(f"{amount:,.15g} is too {wrong}: {least:g} to {most:,} at once", where=option, fix=fix)


def _run_shared(screen: Screen, name: str, add: float | None, tokens: int | None, time: str | None) -> None:
    """Print the shared budgets, or add `add` dollars to the one named. Raises BadInput for a name without an amount or
    the reverse, and for tokens or time."""
    from perdure.cli.decide import shared

    fix = "perdure budget --shared label:team-a --add 5; without a name and --add it shows them"
    if tokens is not None or time is not None:
        raise BadInput("a shared budget is in dollars", where="--tokens" if tokens is not None else "--time", fix=fix)
    if bool(name) != (add is not None):
        raise BadInput("which of them, and how much more?", where="NAME" if not name else "--add", fix=fix)
    if add is not None:
        shared.check_amount(name, add)
    run_coroutine(shared.show_budgets(screen) if add is None else shared.add_for_today(screen, name, add))
