"""`perdure compare`: two deliveries side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.ids import Json, resolve_id
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out, connected
from perdure.cli.words import count, money, short
from perdure.models.errors import BadInput
from perdure.text import one_line, span, visible

if TYPE_CHECKING:
    from perdure.cli.look.report.facts import Report
    from perdure.client import Delivery
    from perdure.models.comparing import ComparedFile, Comparison, FileChanged, Side

_LABEL = 8
_FILES_SHOWN = 40
"""In a terminal; --json has all."""


def compare(
    one: Annotated[str, typer.Argument(metavar="ID1", help="A delivery: its id, the beginning of it, or @last.")],
    other: Annotated[str, typer.Argument(metavar="ID2", help="Another one: a fork, an attempt, any.")],
    json: Json = False,
) -> None:
    """Show two deliveries side by side: what each changed, tests, review, cost, turns."""

    screen = Screen(json=json)

    async def work() -> Comparison:
        perdure = await connected(screen)
        ids = [await resolve_id(perdure, typed) for typed in (one, other)]
        if ids[0] == ids[1]:
            raise BadInput(f"{ids[0]} is one delivery", where=f"{one} and {other}", fix="name two")
        return await comparison(*(perdure.delivery(id) for id in ids))

    found = carry_out(work())
    if json:
        screen.data(found.model_dump_json(indent=2))
    else:
        screen.lines(side_by_side(found, screen.width))


async def comparison(one: Delivery, other: Delivery) -> Comparison:
    """Both as they are now, from history and their hosts; no workflow is asked. BadInput when there is none."""
    from perdure.models.comparing import compared

    return compared(await _side(one), await _side(other))


async def _side(delivery: Delivery) -> Side:
    from perdure.cli.look.report.gather import gather

    return side_of(await gather(delivery, seen=True), await delivery.request())


def side_of(report: Report, request: dict[str, object]) -> Side:
    """The part of a report that is compared. `request`: as it was sent."""
    from perdure.models.comparing import Side, changes_of
    from perdure.models.forking import ForkedFrom

    usage = report.usage
    files = changes_of(report.diff)
    forked = ForkedFrom.model_validate(request["forked"]) if request.get("forked") else None
    forked = None if forked is not None and forked.attempt else forked
    return Side(
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
        added=sum(one.added for one in files.values()),
        deleted=sum(one.deleted for one in files.values()),
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


def side_by_side(found: Comparison, width: int) -> list[str]:
    """The lines for a terminal: two columns beside the labels, each cell wrapped; readable from 60 columns on."""
    size = max((width - _LABEL - 4) // 2, 16)
    lines = [
        line for name, *cells in rows_of(found) if any(cells) for line in _wrapped(name, (cells[0], cells[1]), size)
    ]
    notes = [found.related, *found.differ, "they change the same in the same way" if found.same else ""]
    lines += ["", *(note for note in notes if note), f"together {money(found.cost_usd)}"]
    if found.files:
        lines += ["", *(line for one in found.files[:_FILES_SHOWN] for line in _file(one, size))]
    if (more := len(found.files) - _FILES_SHOWN) > 0:
        lines.append(f"… {more} more files: --json has all")
    return lines


def rows_of(found: Comparison) -> list[tuple[str, str, str]]:
    """All that is said of both, by its name; the first row is who they are."""
    both = zip(_cells(found.left), _cells(found.right), strict=True)
    return [(name, left, right) for (name, left), (_, right) in both]


def _cells(side: Side) -> Iterator[tuple[str, str]]:
    from perdure.cli.look.report.view import review_line, tests_line

    inherited = "unknown" if side.inherited_usd is None else money(side.inherited_usd)
    yield "", side.delivery_id
    yield "status", f"{side.status.replace('_', ' ')}{f': {why}' if (why := side.reason.replace('_', ' ')) else ''}"
    yield "pull", side.pull_request.url if side.pull_request else ""
    yield "head", short(side.head_sha) if side.head_sha else ""
    files = count(len(side.files), "file")
    yield "change", f"{files}, +{side.added} −{side.deleted}{' and more' if side.cut else ''}"
    yield "tests", tests_line(side.tests)
    yield "review", review_line(side.review)
    yield "cost", money(side.cost_usd) + (f", beside {inherited} inherited" if side.forked_from else "")
    yield "turns", str(side.turns) + (f", after {side.inherited_turns} inherited" if side.forked_from else "")
    yield "time", span(side.seconds)
    yield "deaths", str(side.worker_deaths) if side.worker_deaths else ""


def _wrapped(name: str, cells: tuple[str, str], size: int) -> Iterator[str]:
    left, right = (textwrap.wrap(one_line(cell, 400), size) or ["–"] for cell in cells)
    for number, (one, other) in enumerate(zip_longest(left, right, fillvalue="")):
        yield f"{name if not number else '':<{_LABEL}}  {one:<{size}}  {other}".rstrip()


def _file(one: ComparedFile, size: int) -> Iterator[str]:
    yield one_line(visible(one.path), 200)
    yield f"{'':<{_LABEL}}  {_lines(one.left):<{size}}  {'the same' if one.same else _lines(one.right)}"


def _lines(changed: FileChanged | None) -> str:
    return f"+{changed.added} −{changed.deleted}" if changed is not None else "–"
