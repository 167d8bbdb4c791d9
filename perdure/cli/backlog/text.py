"""A backlog's standing in lines for a person: what waits for you first, then the rest by state; pure functions."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from perdure.cli.decide.asking import commands
from perdure.cli.look.chapters import BAD, GOOD, LEFT, RUNS, STOPS
from perdure.cli.words import money, short
from perdure.models.backlog_messages import BacklogProgress, ItemView
from perdure.models.decisions import Asked
from perdure.models.limits import END_CHARS
from perdure.text import one_line, span

SHOWN = 40
"""Items of one state in `status`: what a screen shows; `--json` has all of them."""

_OVER = ("skipped", "cancelled", "decomposed")
ORDER = ("waits", "landing", "landed", "building", "blocked", "failed", "ready", "after", *_OVER)
"""In the order in which they are shown; what waits for a person has a table of its own."""

_COUNTED = ("landed", "building", "landing", "waits", "blocked", "failed", "ready", "after", *_OVER)
_WORDS = {"waits": ("waits for you", "wait for you"), "after": ("after others", "after others")}
_MARKS = {"landed": GOOD, "failed": BAD, "blocked": BAD, "waits": STOPS, **dict.fromkeys(_OVER, LEFT)}
_WIDE = 88


def headline(progress: BacklogProgress) -> str:
    """`night  8 items · 3 landed · 2 building        $6.20 of $40.00`."""
    counts = Counter(view.phase for view in progress.items)
    parts = [f"{len(progress.items)} item{'' if len(progress.items) == 1 else 's'}"]
    for phase in _COUNTED:
        if number := counts[phase]:
            one, many = _WORDS.get(phase, (phase, phase))
            parts.append(f"{number} {one if number == 1 else many}")
    left = f"{progress.backlog_id}  {' · '.join(parts)}"
    limit = f" of {money(progress.budget_usd)}" if progress.budget_usd is not None else ""
    right = f"{money(progress.usd)}{limit}"
    return f"{left}{' ' * max(2, _WIDE - len(left) - len(right))}{right}"


def status_lines(
    progress: BacklogProgress, asked: Mapping[str, Asked] | None = None, now: datetime | None = None
) -> list[str]:
    """The whole of it. `asked`: by item, what its delivery waits for, as far as that is known more exactly."""
    lines = [headline(progress)]
    lines += _held(progress) if progress.held else []
    lines += [f"{STOPS} {one_line(words, 300)}" for words in (_waits(progress),) if words]
    if progress.status != "running":
        said = f": {one_line(progress.message, 400)}" if progress.message else ""
        lines.append(f"{progress.status.replace('_', ' ')}{said}")
    lines += [f"note          {one_line(note, 300)}" for note in progress.notes]
    if progress.pull_request:
        lines.append(f"pull request  {one_line(progress.pull_request, 400)}")
    if progress.branch:
        at = f" at {short(progress.head)}" if progress.head else ""
        lines.append(f"branch        {one_line(progress.branch, 200)}{at}")
    lines.append("")
    waiting = waiting_rows(progress, asked or {}, now)
    if waiting or progress.asks:
        lines += ["waits for you", *waiting, *_asks(progress)]
    for phase in ORDER[1:]:
        found = [view for view in progress.items if view.phase == phase]
        if found:
            lines += _group(phase, found)
    return lines


def _held(progress: BacklogProgress) -> list[str]:
    """Its reason and, while it runs, the commands with which it goes on; the item that could not land goes first."""
    lines, id = _stops(progress.held), shlex.quote(progress.backlog_id)
    if progress.status != "running":
        return lines
    resume = f"perdure backlog resume {id}"
    if len(lines) == 1:
        return [f"{lines[0]}    {resume}"]
    failed = [view.id for view in progress.items if view.phase == "failed"]
    stopped = [item for item in failed if progress.held.startswith(f"held: {item} could not land: ")]
    retries = [f"perdure backlog retry {id} {shlex.quote(item)}" for item in stopped]
    return [*lines, *(f"    {typed}" for typed in (*retries, resume))]


def _stops(words: str) -> list[str]:
    """The first line as a sentence, any others below it as they are: a command among them must not be cut."""
    first, *others = [line for line in words.splitlines() if line.strip()] or [""]
    return [f"{STOPS} {one_line(first, 300)}", *(f"    {one_line(line, END_CHARS)}" for line in others)]


def waiting_rows(progress: BacklogProgress, asked: Mapping[str, Asked], now: datetime | None = None) -> list[str]:
    """One line an item that waits: for what, how many wait for it, since when, and the command that decides it."""
    now = now or datetime.now(UTC)
    views = sorted((view for view in progress.items if view.phase == "waits"), key=lambda view: -view.unblocks)
    rows = [
        (
            view.id,
            one_line(view.because or view.caption or f"{view.gate.replace('_', ' ')}: decide", 60),
            f"unblocks {view.unblocks}",
            span(max(0.0, (now - view.since).total_seconds())) if view.since is not None else "",
            decides(progress.backlog_id, view, asked.get(view.id)),
        )
        for view in views
    ]
    widths = [max((len(row[n]) for row in rows), default=0) for n in range(4)]
    return [
        "  " + "  ".join([*(cell.ljust(size) for cell, size in zip(row, widths, strict=False)), row[4]]) for row in rows
    ]


def _asks(progress: BacklogProgress) -> list[str]:
    """The branch does not follow its base: why, and both ways on."""
    if not progress.asks:
        return []
    again = f"perdure backlog follow {shlex.quote(progress.backlog_id)}"
    base = one_line(progress.base, 60)
    return [
        f"  {base}  {one_line(progress.asks, 600)}",
        f"  {' ' * len(base)}  once that is out of the way: {again}   as it is: {again} --leave",
    ]


def decides(backlog: str, view: ItemView, asked: Asked | None = None) -> str:
    """The command that decides what an item waits for: of its delivery, whose id is `<backlog>/<item>`."""
    id = view.delivery or f"{backlog}/{view.id}"
    if asked is not None and (known := commands(asked, id)):
        return known[0]
    typed = shlex.quote(id)
    match view.gate:
        case "question":
            return f'perdure answer {typed} "…"'
        case "budget":
            return f"perdure budget {typed} --add 5"
        case "" | "held":
            return f"perdure show {typed}"
        case _:
            return f"perdure approve {typed}"


def changes(before: BacklogProgress | None, after: BacklogProgress) -> list[str]:
    """Lines for good of what is different: one for each item that is in another state, one for what stops all."""
    known = {view.id: view for view in before.items} if before is not None else {}
    lines = []
    for view in after.items:
        was = known.get(view.id)
        if was is None and view.phase in ("ready", "after"):
            if before is not None:
                lines.append(f"{RUNS} {view.id} was added")
            continue
        if was is not None and (was.phase, was.of if was.phase == "waits" else "") == (
            view.phase,
            view.of if view.phase == "waits" else "",
        ):
            continue
        lines.append(_changed(after.backlog_id, view))
    for words in (after.held, _waits(after)):
        if words and (before is None or words not in (before.held, _waits(before))):
            lines += _stops(words)
    if after.asks and (before is None or after.asks != before.asks):
        lines += [f"{STOPS} waits for you:", *_asks(after)]
    return lines


def _waits(progress: BacklogProgress) -> str:
    return f"waits {progress.waiting}" if progress.waiting.startswith("for ") else progress.waiting


def reason(view: ItemView) -> str:
    """The reason for an item's state, without the state once more: `by schema (tests red)` of one that is blocked."""
    said = one_line(view.because.strip().partition("\n")[0], 160)
    if view.phase == "blocked":
        return said.removeprefix("blocked ") or (f"by {view.blocked_by}" if view.blocked_by else "")
    return "" if said == view.phase else said


def _changed(backlog: str, view: ItemView) -> str:
    said = reason(view) or one_line(view.caption, 160)
    match view.phase:
        case "landed":
            words = f"landed as {short(view.commit)}" if view.commit else "landed"
            words += f": {one_line(view.pull_request, 200)}" if view.pull_request else ""
        case "waits":
            words = f"waits for you: {said}  {decides(backlog, view)}"
        case "building" | "landing" | "ready" | "after":
            words = {"after": "waits for others", "ready": "is ready"}.get(view.phase, view.phase)
            words += f": {said}" if said and view.phase in ("after", "ready") else ""
        case "blocked":
            words = f"blocked {said}".rstrip()
        case _:
            words = f"{view.phase}: {said}" if said else view.phase
    return f"{_MARKS.get(view.phase, RUNS)} {view.id} {words}"


def _group(phase: str, views: Sequence[ItemView]) -> list[str]:
    """`landed    api 9c1d2ab · parser 77ab01c`, with further lines below it; reasons in brackets."""
    shown = [_item(view) for view in views[:SHOWN]]
    if len(views) > SHOWN:
        shown.append(f"… {len(views) - SHOWN} more")
    rows = _wrapped(shown, _WIDE - 10)
    return [f"{phase if n == 0 else '':<9} {row}" for n, row in enumerate(rows)]


def _item(view: ItemView) -> str:
    match view.phase:
        case "landed":
            at = f"#{number}" if (number := view.pull_request.rpartition("/")[2]) else view.commit[:4]
            return f"{view.id} {at}".rstrip()
        case "building" | "landing":
            return " ".join(filter(None, (view.id, one_line(view.caption, 40)))) + _reason(view)
        case "blocked":
            return f"{view.id} {reason(view)}".rstrip()
        case _:
            return view.id + _reason(view)


def _reason(view: ItemView) -> str:
    return f" ({said})" if (said := reason(view)) else ""


def _wrapped(parts: Iterable[str], width: int) -> list[str]:
    rows: list[str] = []
    for part in parts:
        if rows and len(rows[-1]) + 3 + len(part) <= width:
            rows[-1] += f" · {part}"
        else:
            rows.append(part)
    return rows
