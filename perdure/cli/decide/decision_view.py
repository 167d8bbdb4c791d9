"""The view of a person before deciding: the plan, the change, tests, and what is spent."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perdure.cli.formatting import format_tokens, money, pluralise, span
from perdure.cli.screen import Screen
from perdure.models.errors import PerdureError
from perdure.models.limits import STAT_FILES, STAT_PAGES
from perdure.models.phases import Step
from perdure.text import one_line, visible

if TYPE_CHECKING:
    from perdure.client import Delivery
    from perdure.models.decisions import PendingDecision
    from perdure.models.decomposition import Decomposition
    from perdure.models.state import Progress


async def show_pending(delivery: Delivery, pending_decision: PendingDecision, screen: Screen) -> None:
    """Print what a delivery waits for, and what is to be decided."""
    from perdure.cli.decide.pending_text import pending_summary

    screen.print_line(f"{delivery.id}  {pending_summary(pending_decision)}")
    screen.print_lines(await pending_details(delivery, pending_decision))


async def pending_details(delivery: Delivery, pending_decision: PendingDecision) -> list[str]:
    """Fetch what is to be decided and return its lines by gate: the plan or items, the tests that fail, or the results
    and files of the change. Empty for other gates.

    Where the delivery's host does not answer, a line says so.
    """
    from perdure.models.decisions import Gate

    lines: list[str] = []
    try:
        if pending_decision.gate in (Gate.PLAN, Gate.ITEMS):
            plan = (await delivery.artifact((await delivery.progress()).plan)).decode(errors="replace")
            lines += plan_lines(plan)
        elif pending_decision.gate is Gate.TESTS:
            lines += verdict_lines(await delivery.progress())
            lines += ["", *(f"  {line}" for line in await test_report_lines(delivery)), ""]
        elif pending_decision.gate is Gate.PULL_REQUEST:
            lines += verdict_lines(await delivery.progress())
            lines += await _promise_lines(delivery)
            lines += await _change_lines(delivery)
    except PerdureError as error:
        lines.append(f"! it cannot be shown just now: {one_line(error.what)}")
    return lines


def verdict_lines(progress: Progress) -> list[str]:
    """Return the last results of tests and review, and the cost so far, as lines."""
    summaries = {record.step: record.summary for record in progress.steps if record.summary}
    limit = f" of {money(progress.budget_usd)}" if progress.budget_usd is not None else ""
    rows = [
        ("tests", summaries.get(Step.RUN_TESTS, "not run")),
        ("review", summaries.get(Step.REVIEW, "not done")),
        ("cost", f"{money(progress.spend.usd)}{limit}"),
    ]
    return ["", *(f"  {name:<8} {one_line(text, 300)}" for name, text in rows)]


def plan_lines(written: str) -> list[str]:
    """Return the title and tasks of a stored plan or items as lines; a plan in somebody's own words as it is."""
    from perdure.models.decomposition import Decomposition
    from perdure.models.plan import Plan

    with suppress(ValueError):
        return item_lines(Decomposition.model_validate_json(written))
    try:
        plan = Plan.model_validate_json(written)
    except ValueError:
        return [f"  {line}" for line in visible(written).splitlines()]
    tasks = [
        f"  {number}. {one_line(task.title)}{task.title_suffix}"
        + (f"  ({', '.join(map(one_line, task.files))})" if task.files else "")
        for number, task in enumerate(plan.tasks, 1)
    ]
    return ["", f"  {one_line(plan.title)}", "", *tasks, ""]


def item_lines(items: Decomposition) -> list[str]:
    """Return the items that a request was decomposed into as lines: what is wanted of each, what it touches, its checks
    and role."""
    lines = [""]
    for part in items.items:
        extras = [f"touches {', '.join(map(one_line, part.touches))}"] if part.touches else []
        extras += [f"check {one_line(check)}" for check in part.check]
        extras += [part.role] if part.role else []
        lines += [f"  {part.id}{part.id_suffix}" + (f"  ({'; '.join(extras)})" if extras else "")]
        lines += [*(f"    {line}" for line in visible(part.request).splitlines()), ""]
    return lines


async def test_report_lines(delivery: Delivery) -> list[str]:
    """Fetch the newest test report and return its lines. Raises PerdureError where nothing was tested, or nobody can
    show the report."""
    from perdure.cli.look.findings_text import report_lines
    from perdure.models.report import TestReport

    progress = await delivery.progress()
    if not progress.report:
        raise PerdureError("nothing was tested")
    return report_lines(TestReport.model_validate_json(await delivery.artifact(progress.report, progress.queue)))


def budget_lines(progress: Progress) -> list[str]:
    """Return what a delivery has spent of what it may spend, a line for each limit: dollars, tokens, time; and messages
    it has not read."""
    from perdure.models.rules.allowance import used_tokens

    spend = progress.spend
    limit = money(progress.budget_usd) if progress.budget_usd is not None else "no limit yet"
    risk = f", and up to {money(spend.at_risk_usd)} for replies cut off" if spend.at_risk_usd else ""
    most = f" of {format_tokens(progress.budget_tokens)}" if progress.budget_tokens else ", no limit"
    at_risk = (
        f", up to {format_tokens(spend.at_risk_tokens)} of them for replies cut off" if spend.at_risk_tokens else ""
    )
    lines = [
        progress.delivery_id,
        f"  dollars  {money(spend.usd)} of {limit}{risk}",
        f"  tokens   {format_tokens(used_tokens(progress.usage, spend))}{most}{at_risk}",
    ]
    if progress.time_s is not None:
        spent = span(progress.used_s) if progress.used_s is not None else "unknown"
        lines.append(f"  time     {spent} of {span(progress.time_s)}")
    if progress.unread:
        lines.append(f"  unread   {pluralise(progress.unread, 'message')} for the next turn")
    return lines


def budget_json(progress: Progress) -> dict[str, Any]:
    """Return what a delivery has spent and may spend for `--json`. `usd` spent None: a price is not known; a limit
    None: there is none."""
    from perdure.models.rules.allowance import used_tokens

    usage, spend = progress.usage, progress.spend
    limit = round(progress.budget_usd, 6) if progress.budget_usd is not None else None
    return {
        "delivery_id": progress.delivery_id,
        "usd": {"spent": spend.usd, "at_risk": spend.at_risk_usd, "limit": limit},
        "tokens": {"used": used_tokens(usage, spend), "limit": progress.budget_tokens or None},
        "time_s": {"used": progress.used_s, "limit": progress.time_s},
    }


async def _promise_lines(delivery: Delivery) -> list[str]:
    """Fetch the newest report and review, and return lines about the tests of the base that the change does not keep,
    with the words of the request that ask for it. Empty without any."""
    from perdure.cli.look.findings_text import promise_lines
    from perdure.models.report import Review, TestReport

    progress = await delivery.progress()
    if not progress.report:
        return []
    report = TestReport.model_validate_json(await delivery.artifact(progress.report, progress.queue))
    if report.experiment is None or not report.experiment.changed_promises:
        return []
    written = await delivery.artifact(progress.review, progress.queue) if progress.review else b""
    lines = promise_lines(report, Review.model_validate_json(written) if written else None)
    return ["", *(f"  {line}" for line in lines)]


async def _change_lines(delivery: Delivery) -> list[str]:
    """Fetch the delivery's diff page by page and return the number of lines changed in each file. A diff of more than
    STAT_PAGES pages is counted as far as it was read, and a line says so."""
    from perdure.cli.decide.pending_text import diffstat_lines

    queue = (await delivery.progress()).queue
    patch, offset = "", 0
    for _ in range(STAT_PAGES):
        page = await delivery.read_page("diff", offset, queue)
        patch += visible(page.text)
        if page.next is None:
            return ["", *diffstat_lines(patch, STAT_FILES), ""]
        offset = page.next
    return ["", *diffstat_lines(patch, STAT_FILES), "  … and more: the change is too long to be counted here", ""]
