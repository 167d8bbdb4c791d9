"""The state of a backlog in lines for a person: what waits for a person first, then the rest by phase; what changed
from one state to the next; and the command that decides an item. Pure functions, used by the command line, the page,
the demo and the backlog's report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from perdure.models.backlog.state import BacklogProgress, ItemView
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.limits import END_MESSAGE_CHARS
from perdure.models.webui.backlog import count_phases
from perdure.render.decision_lines import commands_for_decision
from perdure.render.step_lines import BAD, GOOD, NEUTRAL, RUNNING, WARN
from perdure.text import format_count, format_money, one_line, shell_word, short_sha, span

SHOWN_ITEMS = 40
"""Items of one phase that `status` shows: what fits on a screen; `--json` has all of them."""

_CLOSED_PHASES = ("skipped", "cancelled", "decomposed")
PHASE_ORDER = ("waits", "landing", "landed", "building", "blocked", "failed", "ready", "after", *_CLOSED_PHASES)
"""The phases in the order in which `status` shows them; what waits for a person has a table of its own."""

_HEADLINE_PHASES = ("landed", "building", "landing", "waits", "blocked", "failed", "ready", "after", *_CLOSED_PHASES)
PHASE_MARKS = {
    "landed": GOOD,
    "failed": BAD,
    "blocked": BAD,
    "waits": WARN,
    "building": RUNNING,
    "landing": RUNNING,
    **dict.fromkeys(_CLOSED_PHASES, NEUTRAL),
}
_LINE_WIDTH = 88


def headline(progress: BacklogProgress) -> str:
    """Return the backlog in one line: `night  8 items · 3 landed · 2 building        $6.20 of $40.00`."""
    parts = (format_count(len(progress.items), "item"), count_phases(progress.items, _HEADLINE_PHASES))
    left_text = f"{progress.backlog_id}  {' · '.join(filter(None, parts))}"
    right_text = format_money(progress.usd, progress.budget_usd)
    return f"{left_text}{' ' * max(2, _LINE_WIDTH - len(left_text) - len(right_text))}{right_text}"


def status_lines(
    progress: BacklogProgress,
    pending_decisions: Mapping[str, PendingDecision] | None = None,
    now: datetime | None = None,
) -> list[str]:
    """Return the whole state of a backlog as lines: headline, hold, what it waits for, how it ended, notes, pull
    request, branch, then what waits for a person, then the other items by phase.

    pending_decisions  by item, the decision that its delivery waits for; without it the command that decides is derived
    from the item's gate
    now                for how long items wait; None: the present time
    """
    lines = [headline(progress)]
    lines += _hold_lines(progress) if progress.held else []
    lines += [f"{WARN} {one_line(waiting_text, 300)}" for waiting_text in (_waiting_text(progress),) if waiting_text]
    if progress.status != "running":
        message_text = f": {one_line(progress.message, 400)}" if progress.message else ""
        lines.append(f"{progress.status.replace('_', ' ')}{message_text}")
    lines += [f"note          {one_line(note, 300)}" for note in progress.notes]
    if progress.pull_request:
        lines.append(f"pull request  {one_line(progress.pull_request, 400)}")
    if progress.branch:
        commit_text = f" at {short_sha(progress.head)}" if progress.head else ""
        lines.append(f"branch        {one_line(progress.branch, 200)}{commit_text}")
    lines.append("")
    waiting = waiting_item_rows(progress, pending_decisions or {}, now)
    if waiting or progress.asks:
        lines += ["waits for you", *waiting, *_follow_question_lines(progress)]
    for phase in PHASE_ORDER[1:]:
        views = [view for view in progress.items if view.phase == phase]
        if views:
            lines += _phase_lines(phase, views)
    return lines


def _hold_lines(progress: BacklogProgress) -> list[str]:
    """Return the reason for which the backlog is held and, while it runs, the commands that let it go on.

    Behind a reason of one line stands `perdure backlog resume`; below a longer one the retry of the item that could not
    land, then the resume.
    """
    lines, id = _stop_lines(progress.held), shell_word(progress.backlog_id)
    if progress.status != "running":
        return lines
    resume = f"perdure backlog resume {id}"
    if len(lines) == 1:
        return [f"{lines[0]}    {resume}"]
    failed = [view.id for view in progress.items if view.phase == "failed"]
    stopped = [item for item in failed if progress.held.startswith(f"held: {item} could not land: ")]
    retries = [f"perdure backlog retry {id} {shell_word(item)}" for item in stopped]
    return [*lines, *(f"    {typed}" for typed in (*retries, resume))]


def _stop_lines(message: str) -> list[str]:
    """Return the message with its first line as a sentence, the others as they are: a command among them must not be
    cut."""
    first, *others = [line for line in message.splitlines() if line.strip()] or [""]
    return [f"{WARN} {one_line(first, 300)}", *(f"    {one_line(line, END_MESSAGE_CHARS)}" for line in others)]


def waiting_item_rows(
    progress: BacklogProgress, pending_decisions: Mapping[str, PendingDecision], now: datetime | None = None
) -> list[str]:
    """Return one line for each item that waits for a person, first the one for which most items wait.

    A line says for what it waits, how many items it unblocks, since when it waits, and the command that decides it.
    """
    now = now or datetime.now(UTC)
    views = sorted((view for view in progress.items if view.phase == "waits"), key=lambda view: -view.unblocks)
    rows = [
        (
            view.id,
            one_line(view.because or view.caption or f"{view.gate.replace('_', ' ')}: decide", 60),
            f"unblocks {view.unblocks}",
            span(max(0.0, (now - view.since).total_seconds())) if view.since is not None else "",
            deciding_command(progress.backlog_id, view, pending_decisions.get(view.id)),
        )
        for view in views
    ]
    widths = [max((len(row[n]) for row in rows), default=0) for n in range(4)]
    return [
        "  " + "  ".join([*(cell.ljust(size) for cell, size in zip(row, widths, strict=False)), row[4]]) for row in rows
    ]


def _follow_question_lines(progress: BacklogProgress) -> list[str]:
    """Return the lines about a backlog that asks whether its branch is to follow its base: why, and the two commands
    that go on. Empty when it asks nothing."""
    if not progress.asks:
        return []
    follow_command = f"perdure backlog follow {shell_word(progress.backlog_id)}"
    base = one_line(progress.base, 60)
    return [
        f"  {base}  {one_line(progress.asks, 600)}",
        f"  {' ' * len(base)}  once that is out of the way: {follow_command}   as it is: {follow_command} --leave",
    ]


def deciding_command(backlog: str, view: ItemView, pending_decision: PendingDecision | None = None) -> str:
    """Return the command that decides what an item waits for; the delivery's id is `<backlog>/<item>` if the item has
    none.

    It is the first command that `pending_decision` has. Without one the item's gate tells: `perdure answer` for a
    question, `perdure budget` for a budget, `perdure show` when it is held or has no gate, else `perdure approve`.
    """
    id = view.delivery or f"{backlog}/{view.id}"
    if pending_decision is not None and (decision_commands := commands_for_decision(pending_decision, id)):
        return decision_commands[0]
    typed = shell_word(id)
    match view.gate:
        case "question":
            return f'perdure answer {typed} "…"'
        case "budget":
            return f"perdure budget {typed} --add 5"
        case "" | "held":
            return f"perdure show {typed}"
        case _:
            return f"perdure approve {typed}"


def change_lines(before: BacklogProgress | None, after: BacklogProgress) -> list[str]:
    """Return a line for each item that is in another phase than in `before` or waits for another decision, then the
    lines of a hold, a wait or a question about the base that are new.

    A new item gets a line, too. `before` None: everything is new, and items that only wait for their turn are not
    named.
    """
    previous_views = {view.id: view for view in before.items} if before is not None else {}
    lines = []
    for view in after.items:
        previous = previous_views.get(view.id)
        if previous is None and view.phase in ("ready", "after"):
            if before is not None:
                lines.append(f"{RUNNING} {view.id} was added")
            continue
        if previous is not None and (previous.phase, previous.target if previous.phase == "waits" else "") == (
            view.phase,
            view.target if view.phase == "waits" else "",
        ):
            continue
        lines.append(_changed_item_line(after.backlog_id, view))
    for message in (after.held, _waiting_text(after)):
        if message and (before is None or message not in (before.held, _waiting_text(before))):
            lines += _stop_lines(message)
    if after.asks and (before is None or after.asks != before.asks):
        lines += [f"{WARN} waits for you:", *_follow_question_lines(after)]
    return lines


def _waiting_text(progress: BacklogProgress) -> str:
    return f"waits {progress.waiting}" if progress.waiting.startswith("for ") else progress.waiting


def phase_reason(view: ItemView) -> str:
    """Return the reason for an item's phase without the phase itself: `by schema (tests red)` for one that is blocked.

    Empty where there is none.
    """
    text = one_line(view.because.strip().partition("\n")[0], 160)
    if view.phase == "blocked":
        return text.removeprefix("blocked ") or (f"by {view.blocked_by}" if view.blocked_by else "")
    return "" if text == view.phase else text


def _changed_item_line(backlog: str, view: ItemView) -> str:
    """Return the line about an item that is in a new phase: `✓ api landed as 9c1d2ab`, `! db waits for you: … perdure
    approve …`."""
    reason_text = phase_reason(view) or one_line(view.caption, 160)
    match view.phase:
        case "landed":
            description = f"landed as {short_sha(view.commit)}" if view.commit else "landed"
            description += f": {one_line(view.pull_request, 200)}" if view.pull_request else ""
        case "waits":
            description = f"waits for you: {reason_text}  {deciding_command(backlog, view)}"
        case "building" | "landing" | "ready" | "after":
            description = {"after": "waits for others", "ready": "queued"}.get(view.phase, view.phase)
            description += f": {reason_text}" if reason_text and view.phase in ("after", "ready") else ""
        case "blocked":
            description = f"blocked {reason_text}".rstrip()
        case _:
            description = f"{view.phase}: {reason_text}" if reason_text else view.phase
    return f"{PHASE_MARKS.get(view.phase, RUNNING)} {view.id} {description}"


def _phase_lines(phase: str, views: Sequence[ItemView]) -> list[str]:
    """Return the items of one phase as lines: `landed    api #12 · parser 77ab`, wrapped, reasons in brackets.

    At most SHOWN_ITEMS are named; the rest is counted.
    """
    shown = [_item_text(view) for view in views[:SHOWN_ITEMS]]
    if len(views) > SHOWN_ITEMS:
        shown.append(f"… {len(views) - SHOWN_ITEMS} more")
    rows = _join_into_rows(shown, _LINE_WIDTH - 10)
    return [f"{phase if n == 0 else '':<9} {row}" for n, row in enumerate(rows)]


def _item_text(view: ItemView) -> str:
    """Return one item within its phase: its id, then pull request or commit when it landed, caption and reason when it
    is worked on, else the reason, if any."""
    match view.phase:
        case "landed":
            landed_as = f"#{number}" if (number := view.pull_request.rpartition("/")[2]) else view.commit[:4]
            return f"{view.id} {landed_as}".rstrip()
        case "building" | "landing":
            return " ".join(filter(None, (view.id, one_line(view.caption, 40)))) + _reason_in_brackets(view)
        case "blocked":
            return f"{view.id} {phase_reason(view)}".rstrip()
        case _:
            return view.id + _reason_in_brackets(view)


def _reason_in_brackets(view: ItemView) -> str:
    return f" ({reason_text})" if (reason_text := phase_reason(view)) else ""


def _join_into_rows(parts: Iterable[str], width: int) -> list[str]:
    """Join the texts with ` · ` into rows of at most `width` characters; a longer text has a row of its own."""
    rows: list[str] = []
    for part in parts:
        if rows and len(rows[-1]) + 3 + len(part) <= width:
            rows[-1] += f" · {part}"
        else:
            rows.append(part)
    return rows
