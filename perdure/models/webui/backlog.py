"""A backlog's current details, the Markdown that the Web UI shows beside its workflow. The counts of items by phase are
shared with notices, the page and the terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import BacklogState, ItemPhase, ItemView
from perdure.models.delivery.decisions import Gate
from perdure.models.limits import END_MESSAGE_CHARS
from perdure.models.rules.scheduling import item_views, unreserved_usd
from perdure.models.webui.details import DETAILS_BYTES, code_span, copyable_lines, format_price, page_link
from perdure.models.webui.markdown import escape_line
from perdure.text import format_count, shell_word

SHOWN = (
    *("waits", "landing", "building", "failed", "blocked", "ready", "after", "landed"),
    *("decomposed", "skipped", "cancelled"),
)
"""Phases in the order in which a person wants to see them."""

_WAITING = 10
"""Items that wait for a person, each with its question: whoever has more opens the next when one is answered."""

_ABOUT_BYTES = 5_000
"""Of what is to be decided, together: a quarter of the details. The delivery's own have more of it."""

_GAP = "\u00a0\u00a0"
"""The Web UI puts no space between the columns of a table."""

_UPDATES: dict[str, tuple[str, dict[str, object], str]] = {
    Gate.QUESTION: ("answer", {"answer": "your answer"}, 'perdure answer {} "…"'),
    Gate.BUDGET: ("add_budget", {"usd": 5}, "perdure budget {} --add 5"),
}


def render_backlog_details(request: BacklogRequest, state: BacklogState, now: datetime, id: str = "") -> str:
    """Return the current details in Markdown: first what waits for a person, then the facts, then all items in the
    order of SHOWN.

    At most DETAILS_BYTES; items that do not fit are counted. `id`: the workflow's, for commands and the link to its
    page.
    """
    items = _sort_items(item_views(request, state, now))
    waiting_items = [item for item in items if item.phase == "waits"]
    lines = [
        f"### {_status_line(state, items)}",
        *_message_lines(state),
        *_resume_lines(state, id),
        *_base_question_lines(state),
        *_waiting_section(waiting_items, state),
        *_fact_lines(request, state),
        *(page_link(state.opened.page, "backlogs", id) if state.opened is not None and id else []),
    ]
    remaining_bytes = DETAILS_BYTES - len("\n".join(lines).encode()) - 200
    head = (f"| item{_GAP} | {_GAP} | why{_GAP} | unblocks{_GAP} | paid |", "|:--|:--|:--|--:|--:|")
    return "\n".join(
        [*lines, "", *head, *_fit_rows((_item_row(item, _GAP) for item in items), len(items), remaining_bytes)]
    )


_PHASE_LABELS = {"waits": ("waits for you", "wait for you"), "after": ("after others", "after others")}


def count_phases(items: Iterable[ItemView], order: Sequence[str] = SHOWN) -> str:
    """Return how many items are in each phase, in this order and without empty phases: `3 landed · 2 building · 1 waits
    for you`."""
    counts = Counter(item.phase for item in items)
    return " · ".join(
        format_count(counts[phase], *_PHASE_LABELS.get(phase, (phase, phase))) for phase in order if counts[phase]
    )


def _sort_items(items: Iterable[ItemView]) -> list[ItemView]:
    """Return the items in the order of SHOWN; within a phase, first those that most others wait for."""
    rank = {phase: position for position, phase in enumerate(SHOWN)}
    return sorted(items, key=lambda item: (rank.get(item.phase, len(SHOWN)), -item.unblocks))


def _status_line(state: BacklogState, items: list[ItemView]) -> str:
    """Return the first line: `Waiting for you` when a person has to decide something, else the backlog's status; and
    its items counted."""
    needs_person = bool(state.base.question) or any(item.phase == "waits" for item in items)
    status = "Waiting for you" if needs_person else state.status.capitalize()
    return f"{status}: {format_count(len(items), 'item')} · {count_phases(items)}"


def _message_lines(state: BacklogState) -> list[str]:
    """Return a line each for the message, the reason of a hold, and what the backlog waits for, as far as there are
    such."""
    texts = (
        ("Message", state.message, 300),
        ("Held", state.hold_reason, END_MESSAGE_CHARS),
        ("Waiting", state.waiting, 300),
    )
    return [f"**{name}:** {escape_line(text, most)}  " for name, text, most in texts if text]


_DONE_WITH = (ItemPhase.LANDED, ItemPhase.SKIPPED, ItemPhase.CANCELLED, ItemPhase.DECOMPOSED)


def _resume_lines(state: BacklogState, id: str) -> list[str]:
    """Return a line for Temporal's Web UI on how to go on with a backlog that is held, or that ended with items that
    neither landed nor were skipped, cancelled or decomposed; else no line.

    There is none for a cancelled backlog, nor for a plan's tasks: their delivery says how.
    """
    if not id or state.parent_delivery is not None:  # tasks: their delivery says so
        return []
    quoted_id = shell_word(id)
    if state.status == "running":
        how = f"{code_span(f'perdure backlog resume {quoted_id}')}, or More Actions, Send a Signal `resume`"
        return [f"**To go on:** {how}  "] if state.hold_reason else []
    unfinished = state.status != "cancelled" and any(item.phase not in _DONE_WITH for item in state.items.values())
    return (
        [f"**To go on with what did not land:** {code_span(f'perdure backlog retry {quoted_id}')}  "]
        if unfinished
        else []
    )


def _base_question_lines(state: BacklogState) -> list[str]:
    """Return the section with the question about the branch's base, or about checks that fail, and the update that
    decides it; empty when nothing is asked."""
    if not state.base.question:
        return []
    lines = [
        "",
        f"### Waiting for you: {escape_line(state.opened.base if state.opened else '', 60)}",
        escape_line(state.base.question, 600),
        "",
    ]
    lines += ["Once that is out of the way, More Actions, Send an Update `follow`:", *copyable_lines("{}")]
    return [*lines, "or to leave the branch where it stands:", *copyable_lines(json.dumps({"leave": True})), ""]


def _waiting_section(items: list[ItemView], state: BacklogState) -> list[str]:
    """Return the section with the question, command, update and JSON of each waiting item; of the first _WAITING items,
    the others are counted. Empty when none waits."""
    if not items:
        return []
    lines = ["", "### Waiting for you", "In a terminal; or here: More Actions, Send an Update, choose the name, paste:"]
    remaining_bytes = _ABOUT_BYTES
    for item in items[:_WAITING]:
        update, payload, command = _UPDATES.get(item.gate, ("approve", {}, "perdure approve {}"))
        unblocks = f"{format_count(item.unblocks, 'item waits', 'items wait')} for it"
        since = f", since {item.since:%Y-%m-%d %H\\:%M} UTC" if item.since else ""
        lines.append(f"- **{escape_line(item.id, 40)}**: {escape_line(item.because, 200)} ({unblocks}{since})")
        about = [f"  - {escape_line(line, 300)}" for line in state.items[item.id].waiting.about.splitlines()]
        while about and len("\n".join(about).encode()) > remaining_bytes:
            about = [*about[:-2], "  - …"] if len(about) > 1 else []
        remaining_bytes -= len("\n".join(about).encode())
        lines += ["", *about]
        lines += ["", code_span(command.format(shell_word(item.delivery))), f"or `{update}`"]
        lines += copyable_lines(json.dumps({"item": item.id, "of": item.target, **payload}, ensure_ascii=False))
    return [*lines, *([f"- {len(items) - _WAITING} more"] if len(items) > _WAITING else []), ""]


def _fact_lines(request: BacklogRequest, state: BacklogState) -> list[str]:
    """Return the list of facts: repository, branch, money, how many run at once and in which window, pull request and
    the newest three notes."""
    lines = [f"- repository {code_span(request.repository)}"]
    if state.opened is not None:
        position = f" at `{state.landing.head[:7]}`" if state.landing.head else ""
        lines.append(f"- branch {code_span(state.opened.branch)}{position}, base {code_span(state.opened.base)}")
    free_usd = unreserved_usd(request, state)
    lines.append(
        f"- paid {format_price(state.paid_usd, request.budget_usd)}"
        + (f", free {format_price(free_usd)}" if free_usd is not None else "")
    )
    lines.append(
        f"- at most {request.parallel} at once" + (f", {escape_line(request.window, 60)}" if request.window else "")
    )
    if state.pull_request:
        lines.append(f"- pull request {_link_or_code(state.pull_request)}")
    return lines + [f"- {escape_line(note, 200)}" for note in state.notes[-3:]]


def _item_row(item: ItemView, gap: str) -> str:
    """Return an item's row of the Markdown table in the details: its id, bold when critical; phase; the reason for it
    or the short commit; how many items it unblocks; cost. `gap` is put behind each cell but the last, because the Web
    UI leaves no space there."""
    why = escape_line(item.because, 120) or (f"`{item.commit[:7]}`" if item.commit else "")
    mark = "**" if item.critical else ""
    name = f"{mark}{escape_line(item.id, 40)}{mark}"
    paid = format_price(item.usd) if item.usd else ""
    return f"| {name}{gap} | {item.phase}{gap} | {why}{gap} | {item.unblocks or ''}{gap} | {paid} |"


def _fit_rows(rows: Iterable[str], total: int, remaining_bytes: int) -> list[str]:
    """Return the first rows that fit into so many bytes and, when there are more, a last one that counts the others.

    `total` is the number of rows: of a thousand most are not even made.
    """
    fitting = list[str]()
    for row in rows:
        remaining_bytes -= len(row.encode()) + 1
        if remaining_bytes < 0:
            return [*fitting, f"| … {total - len(fitting)} more | | | | |"]
        fitting.append(row)
    return fitting


def _link_or_code(address: str) -> str:
    """Return an address as a Markdown link; as code when it is no web address, or has characters that would break the
    link."""
    plain = address.startswith(("https://", "http://")) and not any(c in " ()<>[]`|\\" for c in address)
    return f"[{escape_line(address, 200)}]({address})" if plain and address.isprintable() else code_span(address)
