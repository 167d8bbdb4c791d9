"""The commands that look at deliveries: `watch`, `show`, `list`, `diff`, `verify`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from perdure.cli.event_loop import run_coroutine
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, read_pages, resolve_id, run_with_delivery
from perdure.client.history.state import progress_from
from perdure.local.connect import no_worker_reason
from perdure.models.delivery.verify import Claim, ClaimStatus
from perdure.models.errors import PerdureError
from perdure.render.decision_lines import decision_line
from perdure.render.progress_lines import closing_lines, current_lines, no_worker_line, retry_lines, waiting_lines
from perdure.render.step_lines import format_row, group_steps, line_of
from perdure.text import format_count, format_money, one_line, short_sha

if TYPE_CHECKING:
    from perdure.client import Delivery
    from perdure.models.delivery.state import Progress


def watch(id: str, no_wait: bool, json: bool) -> None:
    """Follow a delivery until it ends, and raise typer.Exit: code 0 when what was asked for exists, 1 when not, 5 when
    it was cancelled.

    With `no_wait`, leaves with code 4 when it waits. After Ctrl-C it says how to come back and exits with 130. Raises
    BadInput when `id` names no single delivery, TemporalUnreachable when the server goes away for good.
    """
    # Imported only now: `list` and `show` would load it for nothing.
    from perdure.cli.look.watch import follow_delivery, print_detached

    screen, delivery_ids = Screen(json=json), []

    async def work(delivery: Delivery) -> int:
        delivery_ids.append(delivery.id)
        return await follow_delivery(delivery, screen, wait=not no_wait)

    try:
        raise typer.Exit(run_with_delivery(screen, id, work))
    except KeyboardInterrupt:
        if not delivery_ids:
            raise
        raise print_detached(screen, delivery_ids[0]) from None


def show(id: str, json: bool) -> None:
    """Print where a delivery stands, or how it ended: as lines, or as JSON of its progress or result.

    When no worker answers, its state is folded from history and a line says so; with `json` NoWorker is raised. Raises
    BadInput when `id` names no single delivery, PerdureError when it ended without a result.
    """
    screen = Screen(json=json)

    async def work(delivery: Delivery) -> None:
        described = await delivery.describe()
        if described.running:
            try:
                progress, last_lines = await delivery.progress(), list[str]()
            except PerdureError:
                if json or described.begins is not None:
                    raise

                progress = progress_from(await delivery.past(), delivery.id, described.run_id)
                if (pending_decision := described.pending_decision) is not None:
                    progress = progress.model_copy(
                        update={"pending_decision": pending_decision, "waiting": pending_decision.summary}
                    )
                last_lines = [no_worker_line(no_worker_reason())]
                if unread := await delivery.unread_messages():
                    last_lines = [f"! recorded, not yet read: {', '.join(unread)}", *last_lines]
            if json:
                screen.print_json(progress.model_dump_json(indent=2))
                return
            step_rows = [format_row(line, screen.width) for line in current_lines(progress, described.pending)]
            screen.print_lines([*_fact_lines(progress, described.title), *step_rows, *retry_lines(described.pending)])
            screen.print_lines([*waiting_lines(progress), *last_lines])
            return
        result = await delivery.result()
        if json:
            screen.print_json(result.model_dump_json(indent=2))
            return
        elapsed = (described.closed - described.started).total_seconds() if described.closed else None
        step_rows = [format_row(line_of(chapter), screen.width) for chapter in group_steps(result.steps)]
        head = [f"{delivery.id}  {one_line(result.repository)}", one_line(described.title)]
        screen.print_lines([*filter(None, head), *step_rows, "", *closing_lines(result, elapsed)])

    run_with_delivery(screen, id, work)


def diff(id: str) -> None:
    """Print what a delivery has changed so far, against its base, coloured on a terminal; on standard error that it is
    nothing.

    Read from the delivery's host. Raises BadInput when `id` names no single delivery, NoWorker or HostSilent when
    nobody answers.
    """
    screen = Screen()

    async def work(delivery: Delivery) -> None:
        # Read whole before it is shown: a page may end inside a line, which then would have no colour.
        patch = "".join([text async for text in read_pages(delivery, "diff")])
        if patch:
            screen.print_diff(patch)
        else:
            print(f"{delivery.id} has changed nothing yet", file=sys.stderr)

    run_with_delivery(screen, id, work)


def _fact_lines(progress: Progress, title: str) -> list[str]:
    """Return the head of `show` for a running delivery: id, status, title, repository, branch, spending, decisions,
    unread messages.

    It ends with an empty line.
    """
    base = f"{progress.base} at {short_sha(progress.base_sha)}" if progress.base and progress.base_sha else ""
    facts = [
        f"{progress.delivery_id}  {progress.status}" + (f", {progress.phase}" if progress.phase else ""),
        *([f"  title         {one_line(title)}"] if title else []),
        f"  repository    {one_line(progress.repository)}" + (f" ({base})" if base else ""),
    ]
    if progress.branch:
        facts.append(f"  branch        {one_line(progress.branch)}")
    facts.append(f"  spent         {format_money(progress.spend.usd, progress.budget_usd)}")
    facts += [
        f"  {'decided' if n == 0 else '':<13} {decision_line(decision)}"
        for n, decision in enumerate(progress.decisions)
    ]
    if progress.unread:
        facts.append(f"  said          {format_count(progress.unread, 'message')} for the next turn")
    return [*facts, ""]


MARKS = {"verified": "✓", "contradicted": "✗", "unknown": "?"}


def verify(id: str, no_tests: bool, json: bool) -> None:
    """Check every line of a delivery's receipt again."""

    raise typer.Exit(run_coroutine(_check_and_print(Screen(json=json), id, tests=not no_tests)))


async def _check_and_print(screen: Screen, id: str, *, tests: bool) -> int:
    """Check the claims of a delivery's receipt and print each as it is judged; return the exit code, 1 when one is
    contradicted.

    `tests`: run the tests again, too. With --json all claims are printed at the end. Raises BadInput when the delivery
    still runs or `id` names no single one.
    """
    # Imported only now: it loads what replays histories.
    from perdure.cli.look.verifying import check_receipt

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
    marks = [claim.mark for claim in claims]
    parts = [f"{format_count(marks.count(ClaimStatus.VERIFIED), 'claim')} of {len(marks)} verified"]
    if contradicted := marks.count(ClaimStatus.CONTRADICTED):
        parts.append(f"{contradicted} contradicted")
    if unchecked := marks.count(ClaimStatus.UNKNOWN):
        parts.append(f"{unchecked} could not be checked")
    return ", ".join(parts)
