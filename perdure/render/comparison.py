"""Two deliveries side by side: reads what is compared of each, and makes the rows and lines of the comparison, for
`perdure compare` and the page. The comparison itself is made by `compare_deliveries` in `perdure.models`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import zip_longest

from perdure.client import Delivery
from perdure.models.base import read_as
from perdure.models.delivery.comparison import (
    ComparedDelivery,
    ComparedFile,
    Comparison,
    FileChange,
    compare_deliveries,
    parse_patch,
)
from perdure.models.delivery.request import ForkedFrom
from perdure.models.delivery.result_text import change_line, outcome_text, review_line, tests_line
from perdure.render.report.facts import DeliveryReport
from perdure.render.report.gather import gather_report
from perdure.text import format_money, one_line, short_sha, span, visible

_LABEL = 8
_FILES_SHOWN = 40
"""Changed files shown in a terminal; --json has all."""


async def load_comparison(first: Delivery, second: Delivery) -> Comparison:
    """Read two deliveries as they are now, from their histories and hosts, and compare them; no workflow is asked.

    Raises BadInput when one of them does not exist, and RPCError when the server does not give a history.
    """
    return compare_deliveries(await _load_compared_delivery(first), await _load_compared_delivery(second))


async def _load_compared_delivery(delivery: Delivery) -> ComparedDelivery:
    """Read the facts of a delivery that are compared."""
    return compared_delivery_of(await gather_report(delivery, passive=True), await delivery.request())


def compared_delivery_of(report: DeliveryReport, request: dict[str, object]) -> ComparedDelivery:
    """Return the part of a report that is compared. `request`: as it was sent; it says of what the delivery is a fork.

    An attempt of another delivery is not counted as a fork.
    """
    usage = report.usage
    files = parse_patch(report.diff)
    forked = read_as(ForkedFrom, request.get("forked"))
    forked = None if forked is not None and forked.attempt else forked
    return ComparedDelivery(
        delivery_id=report.delivery_id,
        status=report.status,
        reason=report.reason,
        message=report.message,
        repository=report.repository,
        base_sha=report.base_sha,
        branch=report.branch,
        head_sha=report.head_sha,
        pull_request=report.pull_request,
        files=files,
        added=sum(change.added for change in files.values()),
        deleted=sum(change.deleted for change in files.values()),
        cut=any("perdure diff shows all of it" in line for line in report.diff.splitlines()[-2:]),
        tests=report.tests,
        review=report.review,
        cost_usd=usage.cost_usd,
        tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens + usage.output_tokens,
        turns=len(report.turns),
        seconds=round(report.seconds, 1),
        worker_deaths=report.receipt.worker_deaths,
        forked_from=f"{forked.delivery} at {forked.at}" if forked else "",
        inherited_turns=forked.turns if forked else 0,
        inherited_usd=forked.usd if forked else 0.0,
    )


def comparison_lines(comparison: Comparison, width: int) -> list[str]:
    """Return a comparison as lines for a terminal: two columns beside the labels, then notes on how the two are related
    and differ, the cost of both together, the changed files.

    Rows without a text on either side are left out. Each cell is wrapped, so that it can be read from 60 columns on. At
    most _FILES_SHOWN files; a line says how many more there are.
    """
    cell_width = max((width - _LABEL - 4) // 2, 16)
    lines = [
        line
        for name, *cells in comparison_rows(comparison)
        if any(cells)
        for line in _wrap_row(name, (cells[0], cells[1]), cell_width)
    ]
    notes = [comparison.related, *comparison.differ, "they change the same in the same way" if comparison.same else ""]
    lines += ["", *(note for note in notes if note), f"together {format_money(comparison.cost_usd)}"]
    if comparison.files:
        lines += ["", *(line for file in comparison.files[:_FILES_SHOWN] for line in _file_lines(file, cell_width))]
    if (hidden_count := len(comparison.files) - _FILES_SHOWN) > 0:
        lines.append(f"… {hidden_count} more files: --json has all")
    return lines


def comparison_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Return the rows of a comparison, each its label and the texts of both deliveries; the first row, without a label,
    has their ids."""
    both = zip(_cells_of(comparison.left_delivery), _cells_of(comparison.right_delivery), strict=True)
    return [(name, left_text, right_text) for (name, left_text), (_, right_text) in both]


def _cells_of(delivery: ComparedDelivery) -> Iterator[tuple[str, str]]:
    """Yield label and text of each row about one of the deliveries, always the same labels; the text is empty where
    there is nothing to say."""
    inherited = format_money(delivery.inherited_usd, unknown="unknown")
    yield "", delivery.delivery_id
    yield "status", outcome_text(delivery.status, delivery.reason)
    yield "pull", delivery.pull_request.url if delivery.pull_request else ""
    yield "head", short_sha(delivery.head_sha) if delivery.head_sha else ""
    change = change_line(len(delivery.files), delivery.added, delivery.deleted)
    yield "change", change + (" and more" if delivery.cut else "")
    yield "tests", tests_line(delivery.tests)
    yield "review", review_line(delivery.review)
    yield "cost", format_money(delivery.cost_usd) + (f", beside {inherited} inherited" if delivery.forked_from else "")
    yield (
        "turns",
        str(delivery.turns) + (f", after {delivery.inherited_turns} inherited" if delivery.forked_from else ""),
    )
    yield "time", span(delivery.seconds)
    yield "deaths", str(delivery.worker_deaths) if delivery.worker_deaths else ""


def _wrap_row(name: str, cells: tuple[str, str], cell_width: int) -> Iterator[str]:
    """Yield the lines of a row, each cell wrapped to `cell_width` characters; an empty cell is `–`."""
    left_lines, right_lines = (textwrap.wrap(one_line(cell, 400), cell_width) or ["–"] for cell in cells)
    for number, (left_line, right_line) in enumerate(zip_longest(left_lines, right_lines, fillvalue="")):
        yield f"{name if not number else '':<{_LABEL}}  {left_line:<{cell_width}}  {right_line}".rstrip()


def _file_lines(file: ComparedFile, cell_width: int) -> Iterator[str]:
    """Yield the path of a file, then how many lines of it each delivery changes; the second one's are `the same` when
    both change it in the same way."""
    yield one_line(visible(file.path), 200)
    yield (
        f"{'':<{_LABEL}}  {_line_counts(file.left_change):<{cell_width}}  "
        f"{'the same' if file.same else _line_counts(file.right_change)}"
    )


def _line_counts(change: FileChange | None) -> str:
    """Return how many lines a change adds and deletes, `–` where there is no change."""
    return f"+{change.added} −{change.deleted}" if change is not None else "–"
