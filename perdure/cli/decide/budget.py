"""`perdure budget`: what a delivery, or all that share a budget, have spent and may spend; and more of it."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perdure.adapters.system.home import login_name
from perdure.cli.commands.options import LAST
from perdure.cli.decide.gate import report_decision
from perdure.cli.event_loop import run_coroutine
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, run_with_delivery
from perdure.client import Delivery
from perdure.client.budgets import ENDED, read_budget_table
from perdure.client.budgets import add_to_budget as add_to
from perdure.local.connect import not_received_message
from perdure.models.errors import BadInput, PerdureError
from perdure.models.limits import ADDED_MOST_USD, TOKENS_MOST, USD_LEAST, USD_MOST
from perdure.models.rules.budget_grants import BudgetAllocator
from perdure.render.decision_lines import budget_json, budget_lines
from perdure.render.formatting import align_columns
from perdure.text import format_money, shell_word

if TYPE_CHECKING:
    from temporalio.client import Client

    from perdure.models.budget.treasury import TreasuryTable


def budget(id: str, add: float | None, tokens: int | None, time: str | None, shared: bool, json: bool) -> None:
    """Print what a delivery has spent and may spend, as lines or JSON; with an amount, let it spend more and print the
    reply.

    `shared`: print the day's budgets that deliveries share, or add `add` dollars to the one that `id` names. Raises
    BadInput for amounts that are not possible (InvalidRequest for a wrong time) and when `id` names no single delivery
    or budget, NoWorker when no worker can show it.
    """
    screen = Screen(json=json)
    if shared:
        _run_shared(screen, "" if id == LAST else id, add, tokens, time)
        return
    _check_amounts(id, add, tokens)

    async def show_or_raise(delivery: Delivery) -> None:
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
        fix = f"perdure budget {shell_word(id)} {option} {5 if option == '--add' else 500000}"
        if amount is not None and not 0 < amount < float("inf"):
            raise BadInput(f"{amount:g} is nothing more: a budget is only ever raised", where=option, fix=fix)
        if amount is not None and not least <= amount <= most:
            wrong = "much" if amount > most else "little"
            raise BadInput(f"{amount:,.15g} is too {wrong}: {least:g} to {most:,} at once", where=option, fix=fix)


def _run_shared(screen: Screen, name: str, add: float | None, tokens: int | None, time: str | None) -> None:
    """Print the shared budgets, or add `add` dollars to the one named.

    Raises BadInput for a name without an amount or the reverse, for tokens or time, for an amount that is not possible,
    and when no budgets are shared; NoWorker when no worker can show them.
    """

    fix = "perdure budget --shared label:team-a --add 5; without a name and --add it shows them"
    if tokens is not None or time is not None:
        raise BadInput("a shared budget is in dollars", where="--tokens" if tokens is not None else "--time", fix=fix)
    if bool(name) != (add is not None):
        raise BadInput("which of them, and how much more?", where="NAME" if not name else "--add", fix=fix)
    if add is not None:
        check_amount(name, add)
    run_coroutine(show_budgets(screen) if add is None else add_for_today(screen, name, add))


async def show_budgets(screen: Screen) -> None:
    """Read the shared budgets and print them, with the deliveries that have something reserved or wait, as tables or
    JSON.

    Amounts are those of today (UTC), also when nobody has spent since midnight. Raises BadInput when no budgets are
    shared, and NoWorker when no worker answers.
    """
    table, now = await read_budget_table((await connect_client(screen)).client), datetime.now(UTC)
    note = table.note
    if BudgetAllocator(table).begin_day(now) and note == ENDED:  # nobody may have spoken to it since midnight
        table.note = note
    if screen.json:
        screen.print_json(budgets_json(table))
        return
    screen.print_lines(budget_rows(table, screen.table_width))
    if table.note:
        screen.print_lines(["", f"! {table.note}"])
    if holders := holder_rows(table, now, screen.table_width):
        screen.print_lines(["", *holders])


def check_amount(name: str, usd: float) -> None:
    """Raise BadInput for an amount in dollars that cannot be added at once, before any request is sent."""
    fix = f"perdure budget --shared {shell_word(name)} --add 5"
    if not usd > 0:
        raise BadInput(f"{usd:g} is nothing more: a budget is only ever raised", where="--add", fix=fix)
    if not 0.01 <= usd <= ADDED_MOST_USD:
        wrong = "much" if usd > ADDED_MOST_USD else "little"
        raise BadInput(f"{usd:,.15g} is too {wrong}: 0.01 to {ADDED_MOST_USD:,} at once", where="--add", fix=fix)


async def add_for_today(screen: Screen, name: str, usd: float) -> None:
    """Add dollars to a shared budget for today (UTC) and print the result, or that no worker has received it yet.

    Deliveries that wait for it go on at once, in the order in which they began to wait. Raises BadInput for an unknown
    budget.
    """
    table = await _add_and_read((await connect_client(screen)).client, name, usd)
    if screen.json:
        screen.print_json({"added": {"budget": name, "usd": usd}, "read": table is not None})
    elif table is None:
        screen.print_line(f"! {not_received_message()}")
    else:
        screen.print_lines(
            [f"✓ added {format_money(usd)} to {name} for today", *budget_rows(table, screen.table_width)]
        )


async def _add_and_read(client: Client, name: str, usd: float) -> TreasuryTable | None:
    """Add dollars to a shared budget and return the table of all budgets after that; None when no worker answers.

    In that case they are added all the same, without a check of the name. Raises BadInput for an unknown name, and when
    no budgets are shared.
    """
    try:
        table = await read_budget_table(client)
    except BadInput:
        raise
    except PerdureError:
        await add_to(client, name, usd)
        return None
    if name not in table.rules:
        raise BadInput(f"there is no budget {name}", where="NAME", fix=nearest_name_hint(name, list(table.rules)))
    await add_to(client, name, usd)
    try:
        return await read_budget_table(client)
    except PerdureError:
        return None


def budgets_json(table: TreasuryTable) -> dict[str, object]:
    """Return what `--json` prints of the shared budgets: dollars, the day in UTC, and each delivery that has or waits
    for some."""
    return {
        "day": table.day,
        "note": table.note or None,
        "budgets": [
            {
                "name": name,
                "usd_per_day": budget.usd_per_day,
                "added": budget.added,
                "spent": budget.spent,
                "reserved": round(table.reserved(name), 6),
                "left": round(max(0.0, table.free_usd(name)), 6),
            }
            for name, budget in sorted(table.rules.items())
        ],
        "deliveries": [
            {
                "delivery_id": id,
                "budgets": list(lease.rules),
                "reserved": round(lease.reserved_usd, 6),
                "until": lease.until.isoformat(),
                "waits": lease.waits > 0,
            }
            for id, lease in table.leases.items()
            if lease.reserved_usd or lease.waits
        ],
    }


def budget_rows(table: TreasuryTable, width: int | None) -> list[str]:
    """Return the shared budgets as the lines of a table: limit of the day, spent, reserved and left. `width`: of the
    terminal, None: unlimited."""
    rows = [
        (
            name,
            format_money(budget.limit) + (f" ({format_money(budget.added)} added)" if budget.added else ""),
            format_money(budget.spent),
            format_money(table.reserved(name)),
            format_money(max(0.0, table.free_usd(name))),
        )
        for name, budget in sorted(table.rules.items())
    ]
    return align_columns([("budget", f"on {table.day} UTC", "spent", "reserved", "left"), *rows], width)


def holder_rows(table: TreasuryTable, now: datetime, width: int | None) -> list[str]:
    """Return the deliveries that have dollars reserved or wait for some as the lines of a table; empty where none
    does."""
    leases = {id: lease for id, lease in table.leases.items() if lease.reserved_usd or lease.waits}
    rows = [
        (
            id,
            format_money(lease.reserved_usd),
            "waits" if lease.waits else f"until {lease.until:%H:%M} UTC" if lease.until > now else "silent",
            ", ".join(lease.rules),
        )
        for id, lease in leases.items()
    ]
    return align_columns([("delivery", "reserved", "", "budgets"), *rows], width) if rows else []


def nearest_name_hint(name: str, names: list[str]) -> str:
    """Return a hint for an unknown name of a budget: the name that was probably meant, or which there are."""
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    return f"did you mean {matches[0]}?" if matches else f"there are {', '.join(sorted(names)[:10]) or 'none yet'}"
