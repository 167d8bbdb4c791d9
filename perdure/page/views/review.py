"""The review: what a delivery waits for, with the evidence above it, plan or change in the middle and the decision in a
bar that stays in sight. Decisions are posted to the view `decide`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from markupsafe import Markup, escape

from perdure.client.yaml_files import to_editable
from perdure.models.delivery.decisions import Gate
from perdure.models.delivery.turn import PAGE_CHARS_MOST
from perdure.page.highlight import Piece, color_sources
from perdure.page.render import delivery_of, render
from perdure.page.views.delivery_cache import watched_delivery
from perdure.render.change import ChangeByFile, ChangedFile, ChangeLine, review_change
from perdure.render.decision_lines import decision_subject, earlier_rejection, plan_lines
from perdure.render.report.facts import DeliveryReport
from perdure.render.report.page import template_values
from perdure.text import name_hidden_characters

_CHANGES_MOST = 16
"""Changes that are kept with their colours until their delivery goes on: some MB each at most."""

REVIEW_PARTS = frozenset({"plan", "tests", "review", "change"})
"""The parts of the report that a review reads from the delivery's host: all but the turns."""

_SHOWS_CHANGE = (Gate.PULL_REQUEST, Gate.TESTS, Gate.LANDING)


@dataclass(frozen=True)
class ShownChange:
    """A change with the HTML of its lines: `code[n]` has those of file n, in order."""

    change: ChangeByFile
    code: tuple[tuple[Markup, ...], ...]


CHANGES: web.AppKey[dict[str, tuple[str, ShownChange]]] = web.AppKey("changes")


def routes() -> list[web.RouteDef]:
    """Return the routes of this view."""
    return [
        web.get("/deliveries/{id}/decide", show_review),
        web.get("/deliveries/{id}/change.txt", serve_change_text),
    ]


async def show_review(request: web.Request) -> web.Response:
    """Render all of what a delivery waits for, with every way to decide.

    No workflow is asked, and what cannot be read is named: a decision does not need it. Raises NotCounted when nothing
    waits, and BadInput when the delivery has ended or does not exist.
    """
    delivery = delivery_of(request)
    pending_decision = await delivery.waits_for()
    watched = watched_delivery(request)
    seen = await watched.read_description(fresh=True)
    report = await watched.read_report(seen, REVIEW_PARTS)
    values: dict[str, Any] = template_values(report, {})
    if pending_decision.gate in _SHOWS_CHANGE and report.diff:
        values["shown"] = await color_change(request, report)
    elif pending_decision.gate in (Gate.PLAN, Gate.ITEMS) and report.plan is None and report.written_plan:
        values["lines"] = plan_lines(report.written_plan)
    is_editable = "edit_plan" in pending_decision.options and bool(report.written_plan)
    return render(
        request,
        "review.html",
        id=delivery.id,
        seen=seen,
        asked=pending_decision,
        subject=decision_subject(pending_decision),
        rejected=earlier_rejection(report.decisions, pending_decision),
        edit=to_editable(report.written_plan, delivery.id)[0] if is_editable else "",
        **values,
    )


async def serve_change_text(request: web.Request) -> web.StreamResponse:
    """Answer with the whole change against the base as text, page by page as it is read from the host; characters that
    nobody sees are named in it.

    Raises PerdureError when the host does not answer, or nothing is known of one.
    """
    delivery = delivery_of(request)
    watched = watched_delivery(request)
    report = await watched.read_report(await watched.read_description(), REVIEW_PARTS)
    queue = (await delivery.progress()).queue
    page = await delivery.read_page("diff", 0, queue, chars=PAGE_CHARS_MOST)
    answer = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    await answer.prepare(request)
    await answer.write(f"{report.delivery_id}, commit {report.head_sha}\n\n".encode())
    while True:
        await answer.write(name_hidden_characters(page.text.replace("\r\n", "\n")).encode())
        if page.next is None:
            break
        page = await delivery.read_page("diff", page.next, queue, chars=PAGE_CHARS_MOST)
    await answer.write_eof()
    return answer


async def color_change(request: web.Request, report: DeliveryReport) -> ShownChange:
    """Return the change of a report with its colours, made once for each commit and verdict.

    The cache keeps those of the _CHANGES_MOST deliveries that were looked at last.
    """
    cache = request.app[CHANGES]
    key = f"{report.run_id} {report.head_sha} {report.tests.tree_sha} {len(report.diff)} {len(report.steps)}"
    cached = cache.pop(report.delivery_id, None)
    if cached is None or cached[0] != key:
        change = review_change(report)
        code, is_complete = await color_lines(change.files)
        cached = key if is_complete else "", ShownChange(change, code)
    cache[report.delivery_id] = cached
    while len(cache) > _CHANGES_MOST:
        del cache[next(iter(cache))]
    return cached[1]


async def color_lines(files: Sequence[ChangedFile]) -> tuple[tuple[tuple[Markup, ...], ...], bool]:
    """Return the HTML of the lines of each file, escaped, coloured where Pygments knows the file's language; and False
    where there was no time for colours.

    Each side of each hunk is coloured as one text: those of the file after the change, and those before it.
    """
    texts, owners = list[tuple[str, str]](), list[list[tuple[int, int]]]()
    for file_number, file in enumerate(files):
        for lines in _hunk_sides(file.lines):
            texts.append((file.path, "\n".join(file.lines[number].text for number in lines)))
            owners.append([(file_number, number) for number in lines])
    html = [[escape(line.text) for line in file.lines] for file in files]
    colored_texts = await color_sources(texts)
    for (_, text), places, colored in zip(texts, owners, colored_texts or [[] for _ in texts], strict=True):
        if len(colored) != len(places) or "\n".join(map(_plain_text, colored)) != text:
            continue
        for (file_number, number), pieces in zip(places, colored, strict=True):
            html[file_number][number] = _pieces_html(pieces)
    return tuple(map(tuple, html)), colored_texts is not None


def _hunk_sides(lines: Sequence[ChangeLine]) -> list[list[int]]:
    """Return the indices of the lines of each hunk's two sides: after the change, and those that are gone."""
    sides: list[list[int]] = []
    after, gone = list[int](), list[int]()
    for number, line in enumerate(lines):
        if line.kind == "place":
            sides += [after, gone]
            after, gone = [], []
        elif line.kind == "gone":
            gone.append(number)
        else:
            after.append(number)
    return [side for side in (*sides, after, gone) if side]


def _plain_text(pieces: Sequence[Piece]) -> str:
    return "".join(text for _, text in pieces)


def _pieces_html(pieces: Sequence[Piece]) -> Markup:
    """Return pieces as HTML: their text escaped, their classes by our own table."""
    parts = (f'<span class="code-{css}">{escape(text)}</span>' if css else escape(text) for css, text in pieces)
    return Markup("".join(parts))  # noqa: S704  # every text in it is escaped, and classes are ours
