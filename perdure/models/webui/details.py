"""A delivery's current details: the Markdown that the Web UI shows beside its workflow. Text that other people or a
model wrote stays plain text there. Also the escaping, which a backlog's details and the texts with which a workflow is
started share.

The Web UI's renderer joins three dialects (tables, formulas between dollar signs, definition lists, addresses made
links, quotes and fractions made pretty), and accepts raw HTML: whatever could begin any of that is escaped. It leaves
code alone, so code is where JSON stands that people copy: not in a table, where a bar in it would end the cell.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote, urlsplit

from perdure.models.delivery.decisions import DecisionRecord, Gate, PendingDecision, Question, QuestionKind
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import PullRequest, StepRecord
from perdure.models.delivery.result_text import outcome_text, spent_line, step_name
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.summary import local_repository
from perdure.models.delivery.work import TestVerdict
from perdure.models.limits import PLAN_SHOWN_BYTES
from perdure.models.phases import Step
from perdure.models.rules import allowance
from perdure.models.webui.markdown import escape_line
from perdure.text import format_money, shorten, span, visible

_BACKTICK = "\\u0060"
"""A backtick in JSON; the character itself would end the code."""


def code_span(name: str, limit: int = 300) -> str:
    """Return a name as a Markdown code span, without characters that could end it (Git allows a backtick in a branch),
    cut to `limit` characters."""
    cleaned = re.sub(r"[`|\n\t]", "", visible(name)).strip()
    return f"`{shorten(cleaned, limit)}`"


def page_link(page: str, kind: str, id: str) -> list[str]:
    """Return the line that links to a delivery or backlog on Perdure's page; no line when no page is known, or its
    address is no plain web address.

    kind  `deliveries` or `backlogs`
    """
    if not page or any(mark in page for mark in " ()<>[]`|\\") or not page.startswith(("http://", "https://")):
        return []
    suffix = " (on its host alone)" if urlsplit(page).hostname in ("127.0.0.1", "localhost", "::1") else ""
    return [f"- [on the page]({page}/{kind}/{quote(id, safe='')}){suffix}"]


def copyable_lines(json_text: str) -> list[str]:
    """Return JSON as a paragraph of code, in Markdown lines, so that it wraps when it is long, and three clicks select
    it."""
    return ["", f"`{json_text.replace('`', _BACKTICK)}`", ""]


def compact_json(value: dict[str, object]) -> str:
    """Return a value as JSON on one line, readable in any language; when a character in it is not printable, all
    non-ASCII is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


DETAILS_BYTES = 20_000
"""Of a delivery's current details: what Temporal documents as their limit. The Web UI carries them in an address."""


__all__ = ["escape_line", "render_delivery_details"]

_MARKS = {"done": "✓", "failed": "✗", "running": "…", "cancelled": "–"}
_STEPS = 12
"""The newest, in the table: what a screen shows. The timeline has them all."""
_NOTES = 3
"""The newest of what people wrote or decided, or agents assumed."""
_GAP = "\u00a0\u00a0"
"""The Web UI puts no space between the columns of a table."""


def render_delivery_details(state: DeliveryState, request: DeliveryRequest, delivery: str = "", id: str = "") -> str:
    """Return the current details in Markdown: status and facts, a row for each step, the plan, then what a person might
    do.

    At most DETAILS_BYTES: plan and older steps are cut. `delivery`: its key, to read its plan and diff; `id`: the
    workflow's, for the link to its page.
    """
    above = [f"### {_status_line(state)}", *_message_lines(state), *_fact_lines(state, request, id)]
    below = waiting_section(state, delivery)
    remaining_bytes = (
        DETAILS_BYTES - len("\n".join([*above, *below]).encode()) - 200
    )  # the table's head, and lines between
    plan = _plan_lines(state.planning.plan_text or request.plan or "", remaining_bytes // 2)
    table = _steps_table(state.steps, remaining_bytes - len("\n".join(plan).encode()))
    return "\n".join([*above, *table, *plan, *([""] if below else []), *below])


def _plan_lines(text: str, remaining_bytes: int) -> list[str]:
    """Return the section with the plan, as many lines as fit into so many bytes and "…" for the others; its text is
    escaped, whoever wrote it. Empty when no line has any text."""
    lines: list[str] = []
    remaining_bytes -= 100
    for line in text[:PLAN_SHOWN_BYTES].splitlines():
        shown = f"{escape_line(line, 1000)}  "
        remaining_bytes -= len(shown.encode()) + 1
        if remaining_bytes < 0:
            lines.append("…")
            break
        if shown.strip():
            lines.append(shown)
    return ["", "### Plan", *lines] if any(line.strip(" …") for line in lines) else []


def render_refused(message: str) -> str:
    """Return the details of a request that was refused because it is wrong."""
    return f"### Refused\n\n**Message:** {escape_line(message, 400)}\n\nSend it again, corrected, under another id."


def _status_line(state: DeliveryState) -> str:
    """Return the first line: how it ended and why; or else what waits for a person, that it is held, or its phase."""
    if state.status is None:
        running = f"Running: {state.phase}" if state.phase else "Preparing"
        return waiting_headline(state) or running
    return outcome_text(state.status, state.reason).capitalize()


def _message_lines(state: DeliveryState) -> list[str]:
    """Return lines for the message and for what the delivery waits for; the latter only when the first line does not
    say it. Empty when there is neither."""
    lines = [f"**Message:** {escape_line(state.message, 400)}"] if state.message else []
    if state.waiting and not waiting_headline(state):
        lines.append(f"**Waiting:** {escape_line(state.waiting, 200)}")
    if state.host_wait and state.status is None:
        lines.append(f"**Host:** {escape_line(state.host_wait, 200)}")
    return [*lines, ""] if lines else []


def _fact_lines(state: DeliveryState, request: DeliveryRequest, id: str) -> list[str]:
    """Return the list of facts, as far as there are such: issue, request, repository, branch, changed promises, money,
    decisions, assumptions, unread messages, hold, notes, links to page and pull request."""
    lines = []
    if number := request.issue_number:
        title = escape_line(state.prepared.request.title, 200) if state.prepared else ""
        lines.append(f"- issue #{number}" + (f": {title}" if title else ""))
    if request.request.strip():
        lines.append(f"- request: {escape_line(request.request, 200)}")
    if (prepared := state.prepared) is not None:
        lines.append(
            f"- repository {code_span(request.repository)}, base {code_span(prepared.base_commit.branch)} at "
            f"`{prepared.base_commit.sha[:7]}`"
        )
        lines.append(
            f"- branch {code_span(prepared.branch)}"
            + (f" at `{state.building.head[:7]}`" if state.building.head else "")
        )
    if state.testing.verdict is not None and state.testing.verdict.promises:
        lines.append(f"- changed promises: {_changed_promises(state.testing.verdict)}")
    spend, budget_usd = state.spending.spend, None
    if prepared is not None:
        budget_usd = allowance.budget_usd(state, prepared)
    lines.append(f"- spent {escape_money(spent_line(spend.usd, spend.at_risk_usd, budget_usd))}")
    lines += [f"- {_decision_text(key, decision)}" for key, decision in list(state.gates.decided.items())[-_NOTES:]]
    lines += [f"- assumed: {escape_line(assumption, 200)}" for assumption in state.turns.assumptions[-_NOTES:]]
    if state.messages.pending:
        lines.append(f"- words that no turn has read yet: {len(state.messages.pending)}")
    if state.gates.hold_reason and state.gates.pending_decision is not None and state.status is None:
        lines.append(f"- {escape_line(state.gates.hold_reason, 200)}")
    lines += [f"- {escape_line(note, 200)}" for note in state.notes[-_NOTES:]]
    if id and state.prepared is not None:
        lines += page_link(state.prepared.visibility.page, "deliveries", id)
    if state.publishing.pull_request:
        lines.append(_pull_request_line(state.publishing.pull_request))
    return lines


def _changed_promises(tests: TestVerdict) -> str:
    """Return how many tests of the base fail on the change, and the names of the first ones."""
    more = tests.promises - len(tests.promised)
    names = [code_span(label) for label in tests.promised] + ([f"{more} more"] if more > 0 else [])
    return ", ".join(names)


def _decision_text(key: str, decision: DecisionRecord) -> str:
    """Return a decision on one line: `plan 1a2b3c4d: approved by Ada: as we said`."""
    verdict = decision.verdict + (f" by {escape_line(decision.by, 60)}" if decision.by else "")
    note = escape_line(decision.note, 160)
    return f"{escape_line(key.replace('_', ' ').replace(':', ' ', 1), 80)}: {verdict}" + (f": {note}" if note else "")


def _steps_table(steps: list[StepRecord], remaining_bytes: int) -> list[str]:
    """Return the Markdown table of steps: the newest that fit into so many bytes, at most _STEPS, and how many came
    before. Empty when there is no row."""
    rows: list[str] = []
    for record in reversed(steps[-_STEPS:]):
        row = _step_row(record)
        remaining_bytes -= len(row.encode()) + 1
        if remaining_bytes < 0:
            break
        rows.insert(0, row)
    if not rows:
        return []
    before = len(steps) - len(rows)
    head = f"| | step{_GAP} | result{_GAP} | took |"
    return ["", head, "|:--|:--|:--|:--|", *([f"| | {before} before{_GAP} | | |"] if before else []), *rows]


def _step_row(record: StepRecord) -> str:
    """Return a step's row in the table: a mark for its status, name, result, and how long it took and what it cost, as
    far as known."""
    name = step_name(record.step, record.attempt)
    result = " · ".join(
        part
        for part in (
            f"{record.turns} turns" if record.turns > 1 else "",
            escape_line(record.summary, 300 if record.step == Step.RUN_TESTS else 120),
            f"`{record.commit[:7]}`" if record.commit else "",
        )
        if part
    )
    time = span(record.duration_s).replace(" ", _GAP[0]) if record.duration_s is not None else ""
    cost = f",{_GAP[0]}".join(part for part in (time, format_price(record.cost_usd) if record.turns else "") if part)
    return f"| {_MARKS.get(record.status, '')}{_GAP[0]} | {name}{_GAP} | {result}{_GAP} | {cost} |"


def _pull_request_line(pull: PullRequest) -> str:
    """Return the line that links to the pull request; for one in a local forge, which no browser can open, with the
    command that shows it."""
    if kept_in := local_repository(pull):  # nothing that a browser could open
        return f"- pull request #{pull.number} in {code_span(kept_in)}: `perdure pulls {pull.number}` there"
    return f"- pull request [#{pull.number}]({pull.url})"


def format_price(amount: float | None, of: float | None = None) -> str:
    """Return an amount for Markdown, `\\$0.43 of \\$5.00`."""
    return escape_money(format_money(amount, of, unknown="unknown"))


def escape_money(text: str) -> str:
    """Escape dollar signs and `<` for Markdown: two bare dollar signs on a line would make a formula of what is
    between."""
    return text.replace("<", "\\<").replace("$", "\\$")


_UPDATE = "Copy the JSON, then More Actions, Send an Update, choose the name, paste:"
_HOW = {
    Gate.PLAN: "To read the plan",
    Gate.ITEMS: "To read the items",
    Gate.TESTS: "To read what the tests said",
    Gate.PULL_REQUEST: "To read the change",
}


def waiting_headline(state: DeliveryState) -> str:
    """Return the line that says what the delivery waits for a person to decide, or that it is held; empty when neither
    is so."""
    if (pending_decision := state.gates.pending_decision) is not None:
        question = "an agent asks" if pending_decision.question is not None else pending_decision.summary
        return f"Waiting for you: {escape_line(question, 200)}"
    return (
        escape_line(state.gates.hold_reason[:1].upper() + state.gates.hold_reason[1:], 200)
        if state.gates.hold_reason
        else ""
    )


def waiting_section(state: DeliveryState, delivery: str = "") -> list[str]:
    """Return the last section, in Markdown lines: how to decide, or how to let it go on after a hold.

    Empty when nothing is asked and nothing is held, or the delivery has ended.
    """
    if state.status is not None:
        return []
    if (pending_decision := state.gates.pending_decision) is not None:
        return [
            "### Waiting for you",
            *_question_lines(pending_decision),
            *_reading_instructions(pending_decision, state, delivery),
            "",
            *_decision_updates(pending_decision),
        ]
    if state.gates.hold_reason:
        return ["### Waiting for you", "More Actions, Send a Signal, `resume` lets it go on:", *copyable_lines("{}")]
    return []


def _question_lines(pending_decision: PendingDecision) -> list[str]:
    """Return lines for what is to be decided, since when it waits, and when it ends undecided, if it does."""
    lines = (
        _agent_question(pending_decision.question)
        if pending_decision.question is not None
        else [f"**Decide:** {escape_line(pending_decision.summary, 300)}"]
    )
    lines.append(f"**Since:** {pending_decision.since:%Y-%m-%d %H\\:%M} UTC")
    if pending_decision.expires is not None:
        lines.append(f"**Ends by itself:** {pending_decision.expires:%Y-%m-%d %H\\:%M} UTC, undecided")
    return lines


def _agent_question(question: Question) -> list[str]:
    """Return lines for an agent's question and why it matters."""
    why = [f"**It matters:** {escape_line(question.why, 500)}"] if question.why else []
    return [f"**Question:** {escape_line(question.text, 1000)}", *why]


def _reading_instructions(pending_decision: PendingDecision, state: DeliveryState, delivery: str) -> list[str]:
    """Return how to read in the Web UI what is decided (plan, items, test report or diff), which is in the vault and in
    no history.

    Empty for a gate about nothing that can be read, and when the delivery's key is not known.
    """
    if not delivery or state.prepared is None or pending_decision.gate not in _HOW:
        return []
    how = (
        f"**{_HOW[pending_decision.gate]}:** Standalone Activities, Start, type `read`, queue "
        f"{code_span(state.prepared.queue)}, data"
    )
    read_input: dict[str, object] = {"delivery": delivery, "what": "diff"}
    if pending_decision.gate is Gate.TESTS:
        report = state.testing.verdict.report if state.testing.verdict else ""
        read_input = {"delivery": delivery, "what": "artifact", "checkpoint": report}
    elif pending_decision.gate in (Gate.PLAN, Gate.ITEMS):
        read_input = {"delivery": delivery, "what": "artifact", "checkpoint": state.planning.plan}
    return ["", how, *copyable_lines(compact_json(read_input))]


def _decision_updates(pending_decision: PendingDecision) -> list[str]:
    """Return each update that decides it, with its JSON to copy, one for each possible answer; `edit_plan` only as a
    command for a terminal."""
    lines = [_UPDATE]
    for name, payload in pending_decision.example_updates():
        if name == "edit_plan":
            lines.append("`edit_plan` needs a terminal: `perdure approve --edit`")
            continue
        lines.append(f"`{name}`")
        for choice in _answer_payloads(pending_decision, payload) if name == "answer" else [payload]:
            lines += copyable_lines(choice)
    return lines


def _answer_payloads(pending_decision: PendingDecision, example: str) -> list[str]:
    """Return the JSON of update `answer` for each possible answer; for an answer in free text, the example alone."""
    question = pending_decision.question
    if question is None or question.kind is QuestionKind.TEXT:
        return [example]
    answers = ("yes", "no") if question.kind is QuestionKind.YES_NO else question.choices
    return [compact_json({**json.loads(example), "answer": answer}) for answer in answers]
