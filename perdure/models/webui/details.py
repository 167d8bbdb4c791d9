"""A delivery's current details: the Markdown that the Web UI shows beside it."""

from __future__ import annotations

import json

from perdure.models.decisions import Asked, Decided, Gate, Question, QuestionKind
from perdure.models.limits import PLAN_SHOWN_BYTES
from perdure.models.phases import Step
from perdure.models.request import DeliveryRequest
from perdure.models.result import PullRequest, StepRecord
from perdure.models.state import DeliveryState
from perdure.models.summary import local_repository
from perdure.models.webui.markdown import cell, code, compact, copied, on_page
from perdure.models.work import TestVerdict

DETAILS_BYTES = 20_000
"""Of a delivery's current details: what Temporal documents as their limit. The Web UI carries them in an address."""


__all__ = ["cell", "details", "dollars"]

_MARKS = {"done": "✓", "failed": "✗", "running": "…", "cancelled": "–"}
_STEPS = 12
"""The newest, in the table: what a screen shows. The timeline has them all."""
_NOTES = 3
"""The newest of what people wrote or decided, or agents assumed."""
_GAP = "\u00a0\u00a0"
"""The Web UI puts no space between the columns of a table."""


def details(state: DeliveryState, request: DeliveryRequest, delivery: str = "", id: str = "") -> str:
    """Status first, then what it is about, then one row a step, then what a person might do: at most DETAILS_BYTES.

    `delivery`: its key, for what reads its plan and diff; `id`: the workflow's, for what leads to its page.
    """
    above = [f"### {_headline(state)}", *_words(state), *_facts(state, request, id)]
    below = waiting_for_you(state, delivery)
    room = DETAILS_BYTES - len("\n".join([*above, *below]).encode()) - 200  # the table's head, and lines between
    plan = _plan(state.plan_words or request.plan or "", room // 2)
    table = _table(state.steps, room - len("\n".join(plan).encode()))
    return "\n".join([*above, *table, *plan, *([""] if below else []), *below])


def _plan(words: str, room: int) -> list[str]:
    """The lines of what is to be built, as far as they fit into `room` bytes; whoever wrote it, it stays words."""
    lines: list[str] = []
    room -= 100
    for line in words[:PLAN_SHOWN_BYTES].splitlines():
        shown = f"{cell(line, 1000)}  "
        room -= len(shown.encode()) + 1
        if room < 0:
            lines.append("…")
            break
        if shown.strip():
            lines.append(shown)
    return ["", "### Plan", *lines] if any(line.strip(" …") for line in lines) else []


def refused(words: str) -> str:
    """Of a request that is not delivered because it is wrong."""
    return f"### Refused\n\n**Message:** {cell(words, 400)}\n\nSend it again, corrected, under another id."


def _headline(state: DeliveryState) -> str:
    if state.status is None:
        running = f"Running: {state.phase}" if state.phase else "Preparing"
        return headline(state) or running
    words = state.status.replace("_", " ").capitalize()
    return f"{words}: {state.reason.replace('_', ' ')}" if state.reason else words


def _words(state: DeliveryState) -> list[str]:
    lines = [f"**Message:** {cell(state.message, 400)}"] if state.message else []
    if state.waiting and not headline(state):
        lines.append(f"**Waiting:** {cell(state.waiting, 200)}")
    return [*lines, ""] if lines else []


def _facts(state: DeliveryState, request: DeliveryRequest, id: str) -> list[str]:
    lines = []
    if number := request.issue_number:
        title = cell(state.prepared.title, 200) if state.prepared else ""
        lines.append(f"- issue #{number}" + (f": {title}" if title else ""))
    if request.request.strip():
        lines.append(f"- request: {cell(request.request, 200)}")
    if (prepared := state.prepared) is not None:
        lines.append(
            f"- repository {code(request.repository)}, base {code(prepared.base)} at `{prepared.base_sha[:7]}`"
        )
        lines.append(f"- branch {code(prepared.branch)}" + (f" at `{state.head[:7]}`" if state.head else ""))
    if state.tests is not None and state.tests.promises:
        lines.append(f"- changed promises: {_promises(state.tests)}")
    lines.append(f"- spent {_spent(state)}")
    lines += [f"- {_decision(key, made)}" for key, made in list(state.decided.items())[-_NOTES:]]
    lines += [f"- assumed: {cell(words, 200)}" for words in state.assumptions[-_NOTES:]]
    if state.said:
        lines.append(f"- words that no turn has read yet: {len(state.said)}")
    if state.held and state.asked is not None and state.status is None:
        lines.append(f"- {cell(state.held, 200)}")
    lines += [f"- {cell(note, 200)}" for note in state.notes[-_NOTES:]]
    if id and state.prepared is not None:
        lines += on_page(state.prepared.page, "deliveries", id)
    if state.pull_request:
        lines.append(_pull_request(state.pull_request))
    return lines


def _promises(tests: TestVerdict) -> str:
    """Tests of the base that fail on the change: how many, and the first ones."""
    more = tests.promises - len(tests.promised)
    names = [code(label) for label in tests.promised] + ([f"{more} more"] if more > 0 else [])
    return ", ".join(names)


def _decision(key: str, made: Decided) -> str:
    """`plan 1a2b3c4d: approved by Ada: as we said`."""
    words = made.verdict + (f" by {cell(made.by, 60)}" if made.by else "")
    said = cell(made.note, 160)
    return f"{cell(key.replace('_', ' ').replace(':', ' ', 1), 80)}: {words}" + (f": {said}" if said else "")


def _spent(state: DeliveryState) -> str:
    words = price(state.spend.usd)
    if state.prepared is not None:
        words += f" of {price(state.prepared.budget_usd + state.extra_usd)}"
    if at_risk := state.spend.at_risk_usd:
        words += f", and at most {price(at_risk)} for replies that were cut off"
    return words


def _table(steps: list[StepRecord], room: int) -> list[str]:
    """One row a step: the newest that fit into `room` bytes, and how many came before them."""
    rows: list[str] = []
    for record in reversed(steps[-_STEPS:]):
        row = _row(record)
        room -= len(row.encode()) + 1
        if room < 0:
            break
        rows.insert(0, row)
    if not rows:
        return []
    before = len(steps) - len(rows)
    head = f"| | step{_GAP} | result{_GAP} | took |"
    return ["", head, "|:--|:--|:--|:--|", *([f"| | {before} before{_GAP} | | |"] if before else []), *rows]


def _row(record: StepRecord) -> str:
    name = record.step.replace("_", " ") + (f" {record.attempt}" if record.attempt > 1 else "")
    result = " · ".join(
        part
        for part in (
            f"{record.turns} turns" if record.turns > 1 else "",
            cell(record.summary, 300 if record.step == Step.RUN_TESTS else 120),
            f"`{record.commit[:7]}`" if record.commit else "",
        )
        if part
    )
    time = _span(record.duration_s) if record.duration_s is not None else ""
    took = f",{_GAP[0]}".join(part for part in (time, price(record.cost_usd) if record.turns else "") if part)
    return f"| {_MARKS.get(record.status, '')}{_GAP[0]} | {name}{_GAP} | {result}{_GAP} | {took} |"


def _span(seconds: float) -> str:
    """In one word for a narrow column that would be broken at every space."""
    whole = round(seconds)
    return "<1\u00a0s" if whole < 1 else f"{whole}\u00a0s" if whole < 120 else f"{whole // 60}\u00a0min"


def _pull_request(pull: PullRequest) -> str:
    if kept_in := local_repository(pull):  # nothing that a browser could open
        return f"- pull request #{pull.number} in {code(kept_in)}: `perdure pulls {pull.number}` there"
    return f"- pull request [#{pull.number}]({pull.url})"


def price(amount: float | None) -> str:
    """Two bare dollar signs on one line would make a formula of what is between them."""
    return dollars(amount).replace("$", "\\$")


def dollars(amount: float | None) -> str:
    """`$0.43`; a price nobody knows is "unknown", never zero."""
    if amount is None:
        return "unknown"
    return "under $0.01" if 0 < amount < 0.005 else f"${amount:.2f}"


_UPDATE = "Copy the JSON, then More Actions, Send an Update, choose the name, paste:"
_HOW = {
    Gate.PLAN: "To read the plan",
    Gate.ITEMS: "To read the items",
    Gate.TESTS: "To read what the tests said",
    Gate.PULL_REQUEST: "To read the change",
}


def headline(state: DeliveryState) -> str:
    """Return what a person sees first of one that waits for somebody; empty when it waits for nobody."""
    if (asked := state.asked) is not None:
        words = "an agent asks" if asked.question is not None else asked.words
        return f"Waiting for you: {cell(words, 200)}"
    return cell(state.held[:1].upper() + state.held[1:], 200) if state.held else ""


def waiting_for_you(state: DeliveryState, delivery: str = "") -> list[str]:
    """The last section, in Markdown lines; none when nothing is asked and nothing is held, or it has ended."""
    if state.status is not None:
        return []
    if (asked := state.asked) is not None:
        return ["### Waiting for you", *_asked(asked), *_material(asked, state, delivery), "", *_decisions(asked)]
    if state.held:
        return ["### Waiting for you", "More Actions, Send a Signal, `resume` lets it go on:", *copied("{}")]
    return []


def _asked(asked: Asked) -> list[str]:
    lines = _question(asked.question) if asked.question is not None else [f"**Decide:** {cell(asked.words, 300)}"]
    lines.append(f"**Since:** {asked.since:%Y-%m-%d %H\\:%M} UTC")
    if asked.expires is not None:
        lines.append(f"**Ends by itself:** {asked.expires:%Y-%m-%d %H\\:%M} UTC, undecided")
    return lines


def _question(question: Question) -> list[str]:
    why = [f"**It matters:** {cell(question.why, 500)}"] if question.why else []
    return [f"**Question:** {cell(question.text, 1000)}", *why]


def _material(asked: Asked, state: DeliveryState, delivery: str) -> list[str]:
    """Say how to read in the Web UI what is decided: it is in the vault, and no history holds it."""
    if not delivery or state.prepared is None or asked.gate not in _HOW:
        return []
    how = f"**{_HOW[asked.gate]}:** Standalone Activities, Start, type `read`, queue {code(state.prepared.queue)}, data"
    what: dict[str, object] = {"delivery": delivery, "what": "diff"}
    if asked.gate is Gate.TESTS:
        report = state.tests.report if state.tests else ""
        what = {"delivery": delivery, "what": "artifact", "checkpoint": report}
    elif asked.gate in (Gate.PLAN, Gate.ITEMS):
        what = {"delivery": delivery, "what": "artifact", "checkpoint": state.plan}
    return ["", how, *copied(compact(what))]


def _decisions(asked: Asked) -> list[str]:
    lines = [_UPDATE]
    for name, said in asked.examples():
        if name == "edit_plan":
            lines.append("`edit_plan` needs a terminal: `perdure approve --edit`")
            continue
        lines.append(f"`{name}`")
        for choice in _choices(asked, said) if name == "answer" else [said]:
            lines += copied(choice)
    return lines


def _choices(asked: Asked, example: str) -> list[str]:
    """A line for each answer there is; for a free one the example."""
    question = asked.question
    if question is None or question.kind is QuestionKind.TEXT:
        return [example]
    answers = ("yes", "no") if question.kind is QuestionKind.YES_NO else question.choices
    return [compact({**json.loads(example), "answer": answer}) for answer in answers]
