"""A delivery's current details: the Markdown that the Web UI shows beside it."""

from __future__ import annotations

from perdure.models.decisions import Asked
from perdure.models.request import DeliveryRequest
from perdure.models.result import PullRequest, StepRecord
from perdure.models.state import DeliveryState
from perdure.models.summary import local_repository

_MARKS = {"done": "✓", "failed": "✗", "running": "…", "cancelled": "–"}
_SHOWN = 40
"""Steps in the table; the Web UI refuses details over 20 KB."""


def details(state: DeliveryState, request: DeliveryRequest) -> str:
    """Status first, then what a person might do, then one row a step."""
    lines = [f"### {_headline(state)}", ""]
    if state.message:
        lines += [f"{cell(state.message, 400)}", ""]
    if state.asked is None and state.waiting:
        lines += [f"**Waiting:** {cell(state.waiting, 200)}", ""]
    if number := request.issue_number:
        title = cell(state.prepared.title, 200) if state.prepared else ""
        lines.append(f"- issue #{number}" + (f": {title}" if title else ""))
    if state.prepared:
        prepared = state.prepared
        lines.append(
            f"- repository `{_code(request.repository)}`, base `{_code(prepared.base)}` at `{prepared.base_sha[:7]}`"
        )
        lines.append(f"- branch `{_code(prepared.branch)}`" + (f" at `{state.head[:7]}`" if state.head else ""))
    lines.append(f"- spent {dollars(state.spend.usd)}" + _risk(state))
    lines += [f"- {cell(note, 200)}" for note in state.notes]
    if state.pull_request:
        lines.append(_pull_request(state.pull_request))
    if state.steps:
        lines += ["", "| | step | result | took |", "|---|---|---|---|"]
        lines += [_row(record) for record in state.steps[-_SHOWN:]]
    if state.asked is not None:
        lines += ["", *_waiting_for_you(state.asked)]
    return "\n".join(lines)


def _headline(state: DeliveryState) -> str:
    if state.status is None:
        return f"Running: {state.phase}" if state.phase else "Preparing"
    words = state.status.replace("_", " ").capitalize()
    return f"{words}: {state.reason.replace('_', ' ')}" if state.reason else words


def _row(record: StepRecord) -> str:
    name = record.step.replace("_", " ") + (f" {record.attempt}" if record.attempt > 1 else "")
    result = " · ".join(
        part
        for part in (
            f"{record.turns} turns" if record.turns > 1 else "",
            cell(record.summary, 120),
            f"`{record.commit[:7]}`" if record.commit else "",
        )
        if part
    )
    time = _span(record.duration_s) if record.duration_s is not None else ""
    took = ",\u00a0".join(part for part in (time, dollars(record.cost_usd) if record.turns else "") if part)
    return f"| {_MARKS.get(record.status, '')} | {name} | {result} | {took} |"


def _span(seconds: float) -> str:
    """In one word for a narrow column that would be broken at every space."""
    whole = round(seconds)
    return "<1\u00a0s" if whole < 1 else f"{whole}\u00a0s" if whole < 120 else f"{whole // 60}\u00a0min"


def _pull_request(pull: PullRequest) -> str:
    if kept_in := local_repository(pull):  # nothing that a browser could open
        return f"- pull request #{pull.number} in `{_code(kept_in)}`: `perdure pulls show {pull.number}` there"
    return f"- pull request [#{pull.number}]({pull.url})"


def _risk(state: DeliveryState) -> str:
    at_risk = state.spend.at_risk_usd
    return f", and at most {dollars(at_risk)} for replies that were cut off" if at_risk else ""


def dollars(amount: float | None) -> str:
    """`$0.43`; a price nobody knows is "unknown", never zero."""
    if amount is None:
        return "unknown"
    return "under $0.01" if 0 < amount < 0.005 else f"${amount:.2f}"


def _code(name: str) -> str:
    """A name that cannot end its code span: Git allows a backtick in a branch."""
    return "".join(c for c in name if c.isprintable() and c != "`")


def cell(text: str, limit: int) -> str:
    """Text that other people or a model wrote, made harmless for a Markdown table: one line, no markup."""
    line = " ".join(text.split())
    line = "".join(c for c in line if c.isprintable())
    safe = "".join("\\" + c if c in "\\`*_[]<>|" else c for c in line[:limit])
    return safe + ("…" if len(line) > limit else "")


def _waiting_for_you(asked: Asked) -> list[str]:
    """What a person is asked, and the update that answers it: its name and its JSON, to be copied."""
    lines = [f"### Waiting for you: {cell(asked.words, 300)}", ""]
    if (question := asked.question) is not None:
        lines += [cell(question.text, 1000), ""]
        lines += [f"- {cell(choice, 200)}" for choice in question.choices]
        lines += [f"It matters because: {cell(question.why, 500)}", ""] if question.why else []
    if asked.expires is not None:
        lines += [f"Without a decision it ends at {asked.expires:%Y-%m-%d %H:%M} UTC.", ""]
    lines += ["Send one of these updates (More Actions, Update), or use the command line:", ""]
    return [*lines, "| update | JSON |", "|---|---|", *(f"| `{name}` | `{said}` |" for name, said in asked.examples())]
