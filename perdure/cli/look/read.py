"""Looking at deliveries: `watch`, `show`, `list`, `diff`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.ids import BACKLOG, DeliveryId, Json
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out, connected, with_delivery
from perdure.cli.table import delivery_rows, listed_json, waiting_rows
from perdure.cli.words import count, money, short
from perdure.models.errors import PerdureError
from perdure.text import one_line, visible

if TYPE_CHECKING:
    from perdure.client import Delivery, Listed
    from perdure.models.state import Progress


def watch(
    id: DeliveryId = "@last",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Leave with exit code 4 when it has to wait.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON at the end.")] = False,
) -> None:
    """Follow a delivery until it ends. Ctrl-C leaves, the work goes on."""
    from perdure.cli.look.watch import detached, follow

    screen, found = Screen(json=json), []

    async def work(delivery: Delivery) -> int:
        found.append(delivery.id)
        return await follow(delivery, screen, wait=not no_wait)

    try:
        raise typer.Exit(with_delivery(screen, id, work))
    except KeyboardInterrupt:
        if not found:
            raise
        raise detached(screen, found[0]) from None


def show(id: DeliveryId = "@last", json: Json = False) -> None:
    """Show where a delivery stands, or how it ended."""
    from perdure.cli.look.chapters import chapters, line_of, row
    from perdure.cli.look.closing import closing
    from perdure.cli.look.story import again, no_worker, standing, waiting

    screen = Screen(json=json)

    async def work(delivery: Delivery) -> None:
        described = await delivery.describe()
        if described.running:
            try:
                progress, ended = await delivery.progress(), list[str]()
            except PerdureError:
                if json:
                    raise
                from perdure.cli.host.workers import absent
                from perdure.cli.look.report.from_history import progress_from

                progress = progress_from(await delivery.past(), delivery.id, described.run_id)
                if (asked := described.asked) is not None:
                    progress = progress.model_copy(update={"asked": asked, "waiting": asked.words})
                ended = [no_worker(absent())]
                if unread := await delivery.not_read():
                    ended = [f"! recorded, not yet read: {', '.join(unread)}", *ended]
            if json:
                screen.data(progress.model_dump_json(indent=2))
                return
            told = [row(line, screen.width) for line in standing(progress, described.pending)]
            screen.lines([*_facts(progress), *told, *again(described.pending)])
            screen.lines([*waiting(progress), *ended])
            return
        result = await delivery.result()
        if json:
            screen.data(result.model_dump_json(indent=2))
            return
        elapsed = (described.closed - described.started).total_seconds() if described.closed else None
        told = [row(line_of(chapter), screen.width) for chapter in chapters(result.steps)]
        screen.lines([f"{delivery.id}  {one_line(result.repository)}", *told, "", *closing(result, elapsed)])

    with_delivery(screen, id, work)


def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many of each at most.")] = 20,
    waiting: Annotated[
        bool, typer.Option("--waiting", "-w", help="Only those that wait for you, and for what; the longest first.")
    ] = False,
    json: Json = False,
) -> None:
    """Those that wait for you, the longest first, and below them the newest by start."""

    screen = Screen(json=json)

    async def work() -> tuple[list[Listed], list[Listed], list[Listed]]:
        perdure = await connected(screen)
        if waiting:
            return await perdure.waiting(), [], []
        backlogs = await perdure.list(limit=limit, workflow=BACKLOG)
        return await perdure.waiting(), await perdure.list(limit=limit), backlogs

    asking, found, backlogs = carry_out(work())
    if json:
        deliveries = [listed_json(one) for one in (asking[:limit] if waiting else found)]
        screen.data([*deliveries, *(listed_json(one, "backlog") for one in backlogs)])
        return
    if asking:
        screen.lines(waiting_rows(asking[:limit], screen.room))
        more = f"; {len(asking) - limit} more wait" if len(asking) > limit else ""
        screen.line(f"perdure show ID says what to type{more}")
    waits = {one.delivery_id for one in asking}
    if others := [one for one in found if one.delivery_id not in waits]:
        screen.lines(["", *delivery_rows(others, screen.room)] if asking else delivery_rows(others, screen.room))
    elif not asking:
        screen.line("nothing waits for you" if waiting else 'no delivery yet: perdure deliver "what you want"')
    if backlogs:
        screen.lines(["", *delivery_rows(backlogs, screen.room, what="backlog")])


def diff(id: DeliveryId = "@last") -> None:
    """Show what the delivery has changed so far, against its base."""
    screen = Screen()

    async def work(delivery: Delivery) -> None:
        # Whole before it is shown: a page may end inside a line, which then would have no colour.
        patch = visible("".join([text async for text in pages(delivery, "diff")]))
        if patch:
            screen.diff(patch)
        else:
            print(f"{delivery.id} has changed nothing yet", file=sys.stderr)

    with_delivery(screen, id, work)


async def pages(delivery: Delivery, what: str) -> AsyncIterator[str]:
    """All pages. HostSilent, HostRefused."""
    queue = (await delivery.progress()).queue
    offset: int | None = 0
    while offset is not None:
        page = await delivery.read(what, offset, queue)
        yield page.text
        offset = page.next


def _facts(progress: Progress) -> list[str]:
    from perdure.cli.decide.asking import decided

    base = f"{progress.base} at {short(progress.base_sha)}" if progress.base and progress.base_sha else ""
    status = "waiting" if progress.waiting and progress.status == "running" else progress.status
    facts = [
        f"{progress.delivery_id}  {status}" + (f", {progress.phase}" if progress.phase else ""),
        f"  repository    {one_line(progress.repository)}" + (f" ({base})" if base else ""),
    ]
    if progress.branch:
        facts.append(f"  branch        {one_line(progress.branch)}")
    budget = f" of {money(progress.budget_usd)}" if progress.budget_usd is not None else ""
    facts.append(f"  spent         {money(progress.spend.usd)}{budget}")
    facts += [f"  {'decided' if n == 0 else '':<13} {decided(made)}" for n, made in enumerate(progress.decisions)]
    if progress.unread:
        facts.append(f"  said          {count(progress.unread, 'message')} for the next turn")
    return [*facts, ""]
