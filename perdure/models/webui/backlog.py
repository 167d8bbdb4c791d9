"""A backlog's current details: the Markdown that the Web UI shows beside it, and the table in its pull request."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from datetime import datetime

from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_messages import ItemView
from perdure.models.backlog_state import BacklogState, ItemPhase
from perdure.models.decisions import Gate
from perdure.models.limits import END_CHARS
from perdure.models.rules.scheduling import left_usd, views
from perdure.models.webui.details import DETAILS_BYTES, price
from perdure.models.webui.markdown import cell, code, copied, on_page

SHOWN = (
    *("waits", "landing", "building", "failed", "blocked", "ready", "after", "landed"),
    *("decomposed", "skipped", "cancelled"),
)
"""Phases in the order in which a person wants to see them."""

_WAITING = 10
"""Items that wait for a person, each with its question: whoever has more opens the next when one is answered."""

_ABOUT_BYTES = 5_000
"""Of what is to be decided, together: a quarter of the details. The delivery's own have more of it."""

_TABLE_BYTES = 40_000
"""Of the table in a pull request: forges take 64 KiB for a body."""

_GAP = "\u00a0\u00a0"
"""The Web UI puts no space between the columns of a table."""

_UPDATES: dict[str, tuple[str, dict[str, object], str]] = {
    Gate.QUESTION: ("answer", {"answer": "your answer"}, 'perdure answer {} "…"'),
    Gate.BUDGET: ("add_budget", {"usd": 5}, "perdure budget {} --add 5"),
}


def details(request: BacklogRequest, state: BacklogState, now: datetime, id: str = "") -> str:
    """First what waits for a person, then all items, those that move before those that ended; at most DETAILS_BYTES."""
    items = _ordered(views(request, state, now))
    waiting = [item for item in items if item.phase == "waits"]
    lines = [
        f"### {_headline(state, items)}",
        *_words(state),
        *_goes_on(state, id),
        *_asks(state),
        *_waiting(waiting, state),
        *_facts(request, state),
        *(on_page(state.opened.page, "backlogs", id) if state.opened is not None and id else []),
    ]
    room = DETAILS_BYTES - len("\n".join(lines).encode()) - 200
    head = (f"| item{_GAP} | {_GAP} | why{_GAP} | unblocks{_GAP} | paid |", "|:--|:--|:--|--:|--:|")
    return "\n".join([*lines, "", *head, *_rows((_row(item, _GAP) for item in items), len(items), room)])


def table(request: BacklogRequest, state: BacklogState) -> str:
    """The items as the pull request of their branch lists them, what landed before the rest."""
    at = {id: (one.phase is not ItemPhase.LANDED, one.order, id) for id, one in state.items.items()}
    rows = (_landed(state, id) for id in sorted(state.items, key=lambda id: at[id]))
    head = ("| item | what | came of it | commit | paid |", "|:--|:--|:--|:--|--:|")
    return "\n".join([*head, *_rows(rows, len(at), _TABLE_BYTES)])


def counted(items: Iterable[ItemView]) -> str:
    """`3 landed · 2 building · 1 waits for you`, in the order of SHOWN."""
    phases = [item.phase for item in items]
    known = [(phase, phases.count(phase)) for phase in SHOWN]
    words = {"waits": "waits for you", "after": "after others"}
    return " · ".join(f"{number} {words.get(phase, phase)}" for phase, number in known if number)


def _ordered(items: Iterable[ItemView]) -> list[ItemView]:
    """As in SHOWN; of one phase, first what unblocks most."""
    place = {phase: at for at, phase in enumerate(SHOWN)}
    return sorted(items, key=lambda item: (place.get(item.phase, len(SHOWN)), -item.unblocks))


def _headline(state: BacklogState, items: list[ItemView]) -> str:
    waits = bool(state.asks) or any(item.phase == "waits" for item in items)
    standing = "Waiting for you" if waits else state.status.capitalize()
    return f"{standing}: {len(items)} item{'s' if len(items) != 1 else ''} · {counted(items)}"


def _words(state: BacklogState) -> list[str]:
    found = (("Message", state.message, 300), ("Held", state.held, END_CHARS), ("Waiting", state.waiting, 300))
    return [f"**{name}:** {cell(words, most)}  " for name, words, most in found if words]


_DONE_WITH = (ItemPhase.LANDED, ItemPhase.SKIPPED, ItemPhase.CANCELLED, ItemPhase.DECOMPOSED)


def _goes_on(state: BacklogState, id: str) -> list[str]:
    """The way on for whoever reads that it is held, or has ended without all of it."""
    if not id or (state.opened is not None and state.opened.within is not None):  # tasks: their delivery says so
        return []
    typed = shlex.quote(id)
    if state.status == "running":
        on = f"{code(f'perdure backlog resume {typed}')}, or More Actions, Send a Signal `resume`"
        return [f"**To go on:** {on}  "] if state.held else []
    left = state.status != "cancelled" and any(at.phase not in _DONE_WITH for at in state.items.values())
    return [f"**To go on with what did not land:** {code(f'perdure backlog retry {typed}')}  "] if left else []


def _asks(state: BacklogState) -> list[str]:
    if not state.asks:
        return []
    lines = [
        "",
        f"### Waiting for you: {cell(state.opened.base if state.opened else '', 60)}",
        cell(state.asks, 600),
        "",
    ]
    lines += ["Once that is out of the way, More Actions, Send an Update `follow`:", *copied("{}")]
    return [*lines, "or to leave the branch where it stands:", *copied(json.dumps({"leave": True})), ""]


def _waiting(items: list[ItemView], state: BacklogState) -> list[str]:
    if not items:
        return []
    lines = ["", "### Waiting for you", "In a terminal; or here: More Actions, Send an Update, choose the name, paste:"]
    room = _ABOUT_BYTES
    for item in items[:_WAITING]:
        update, said, typed = _UPDATES.get(item.gate, ("approve", {}, "perdure approve {}"))
        unblocks = f"{item.unblocks} item{'s wait' if item.unblocks != 1 else ' waits'} for it"
        since = f", since {item.since:%Y-%m-%d %H\\:%M} UTC" if item.since else ""
        lines.append(f"- **{cell(item.id, 40)}**: {cell(item.because, 200)} ({unblocks}{since})")
        about = [f"  - {cell(line, 300)}" for line in state.items[item.id].about.splitlines()]
        while about and len("\n".join(about).encode()) > room:
            about = [*about[:-2], "  - …"] if len(about) > 1 else []
        room -= len("\n".join(about).encode())
        lines += ["", *about]
        lines += ["", code(typed.format(shlex.quote(item.delivery))), f"or `{update}`"]
        lines += copied(json.dumps({"item": item.id, "of": item.of, **said}, ensure_ascii=False))
    return [*lines, *([f"- {len(items) - _WAITING} more"] if len(items) > _WAITING else []), ""]


def _facts(request: BacklogRequest, state: BacklogState) -> list[str]:
    lines = [f"- repository {code(request.repository)}"]
    if state.opened is not None:
        at = f" at `{state.head[:7]}`" if state.head else ""
        lines.append(f"- branch {code(state.opened.branch)}{at}, base {code(state.opened.base)}")
    paid = price(round(sum(at.usd for at in state.items.values()), 6))
    left = left_usd(request, state)
    lines.append(
        f"- paid {paid}" + (f" of {price(request.budget_usd)}, free {price(left)}" if left is not None else "")
    )
    lines.append(f"- at most {request.parallel} at once" + (f", {cell(request.window, 60)}" if request.window else ""))
    if state.pull_request:
        lines.append(f"- pull request {_link(state.pull_request)}")
    return lines + [f"- {cell(note, 200)}" for note in state.notes[-3:]]


def _row(item: ItemView, gap: str) -> str:
    why = cell(item.because, 120) or (f"`{item.commit[:7]}`" if item.commit else "")
    mark = "**" if item.critical else ""
    name = f"{mark}{cell(item.id, 40)}{mark}"
    paid = price(item.usd) if item.usd else ""
    return f"| {name}{gap} | {item.phase}{gap} | {why}{gap} | {item.unblocks or ''}{gap} | {paid} |"


def _landed(state: BacklogState, id: str) -> str:
    at = state.items[id]
    why = "" if at.phase is ItemPhase.LANDED else at.words or at.reason
    came = at.phase.value if at.phase is not ItemPhase.WAITING else "not begun"
    commit = f"`{at.commit[:12]}`" if at.commit else ""
    return (
        f"| {cell(id, 40)} | {cell(at.item.caption, 80)} | {came}{': ' if why else ''}{cell(why, 120)} "
        f"| {commit} | {price(at.usd) if at.usd else ''} |"
    )


def _rows(rows: Iterable[str], there: int, room: int) -> list[str]:
    """As many as fit into `room` bytes, and how many more there are: of a thousand most are not even made."""
    found = list[str]()
    for row in rows:
        room -= len(row.encode()) + 1
        if room < 0:
            return [*found, f"| … {there - len(found)} more | | | | |"]
        found.append(row)
    return found


def _link(address: str) -> str:
    plain = address.startswith(("https://", "http://")) and not any(c in " ()<>[]`|\\" for c in address)
    return f"[{cell(address, 200)}]({address})" if plain and address.isprintable() else code(address)
