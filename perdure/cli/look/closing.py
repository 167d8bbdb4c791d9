"""The last block of a delivery that has ended: what exists now, verdicts, cost, time, receipt; pure functions."""

from __future__ import annotations

import shlex

from perdure.cli.decide.pending_text import decision_line
from perdure.cli.formatting import pluralise, short_sha, span
from perdure.cli.look.report.view import cost_line, receipt_line, review_line, tests_line
from perdure.cli.look.step_lines import NEUTRAL, group_steps, line_of
from perdure.models.phases import Phase
from perdure.models.result import DeliveryResult, ReviewStatus, Status
from perdure.text import one_line

_HEADLINES = {
    Status.DELIVERED: "Delivered",
    Status.DRAFT: "Draft",
    Status.COMPLETED: "Completed",
    Status.NOT_DELIVERED: "Not delivered",
    Status.NO_CHANGES: "No changes",
    Status.CANCELLED: "Cancelled",
}


def closing_lines(result: DeliveryResult, elapsed_s: float | None = None) -> list[str]:
    """Return the last block of a delivery: what exists now, tests and review, cost, time, receipt, decisions, what to
    type next.

    `elapsed_s` None: no time is shown. Rows without a text are left out.
    """
    rows = [
        ("tests", tests_line(result.tests), "review", review_line(result.review)),
        ("", result.tests.experiment, "", ""),
        ("", _changed_promises_text(result), "", ""),
        ("cost", cost_line(result.usage), "time", span(elapsed_s) if elapsed_s is not None else ""),
        ("receipt", receipt_line(result.receipt, result.tests), "", ""),
        *(
            ("decided" if n == 0 else "", decision_line(decision), "", "")
            for n, decision in enumerate(result.decisions)
        ),
        ("unread", _unread_text(result), "", ""),
        *(("next" if n == 0 else "", one_line(command, 400), "", "") for n, command in enumerate(result.next)),
    ]
    lines = [f"{_HEADLINES[result.status]}  {_outcome_text(result)}".rstrip()]
    message, details = _split_message(result.message)
    if (
        message and result.status == Status.DELIVERED
    ):  # What the forge did not accept, and the like: the delivery is delivered all the same.
        lines.append(f"  {'note':<8} {one_line(message, 400)}")
    lines += [f"  {name:<8} {one_line(text, 400)}" for name, text in details]
    for name, text, second_name, second_text in rows:
        if not text and second_text:
            name, text, second_name, second_text = second_name, second_text, "", ""
        if text:
            lines.append(
                f"  {name:<8} {text:<40}  {second_name:<8}{second_text}".rstrip()
                if second_text
                else f"  {name:<8} {text}"
            )
    return lines


def _split_message(message: str) -> tuple[str, list[tuple[str, str]]]:
    """Split a message into its first line and (name, text) of the others: an error's `where` and `fix`, output under an
    empty name."""
    first, *rest = message.splitlines() or [""]
    parts = []
    for line in rest:
        name, colon, text = line.strip().partition(": ")
        parts.append((name, text) if colon and name in ("where", "fix") else ("", line.strip()))
    return first, [(name, text) for name, text in parts if text]


def _outcome_text(result: DeliveryResult) -> str:
    """Return what the headline says after the status: the pull request, or what a cancelled delivery keeps, or why it
    ended.

    Of a completed one, the phases that were carried out and its branch.
    """
    message = one_line(_split_message(result.message)[0], 300)
    if result.pull_request is not None:
        url = one_line(result.pull_request.url, 500)
        return f"{url} {NEUTRAL} {message}" if message and result.status == Status.DRAFT else url
    if result.status == Status.CANCELLED:
        branch = f"branch {result.branch}" if result.branch else ""
        checkpoint = f"checkpoint {short_sha(result.checkpoint)}" if result.checkpoint else ""
        kept = " and ".join(part for part in (branch, checkpoint) if part)
        return f"{kept} kept" if kept else "before there was anything to keep"
    if result.reason is not None:
        reason = result.reason.replace("_", " ")
        says_reason = message.startswith(reason) or message.replace("tests are red", "tests red").startswith(reason)
        return message if says_reason else f"{reason}: {message}" if message else reason
    if result.status == Status.COMPLETED:
        names = dict.fromkeys(line_of(chapter).name for chapter in group_steps(result.steps))
        phases = ", ".join(name for name in names if name in tuple(Phase))
        branch = f"branch {result.branch}" if result.branch and result.branch not in message else ""
        return " · ".join(part for part in (phases, branch, message) if part)
    return message or (f"branch {result.branch}" if result.branch else "")


def _changed_promises_text(result: DeliveryResult) -> str:
    """Return how many tests of the base fail on the change, if that is justified, and the command that shows them;
    empty: all hold."""
    if not result.tests.promises:
        return ""
    remark = "justified by the request" if result.review.status == ReviewStatus.CLEAN else "see the review"
    return (
        f"{pluralise(result.tests.promises, 'changed promise')}, {remark}: perdure report "
        f"{shlex.quote(result.delivery_id)}"
    )


def _unread_text(result: DeliveryResult) -> str:
    """Return how many messages of people came too late to be read, and the first of them, so that nobody thinks they
    were heeded; empty: none."""
    messages = result.unread
    if not messages:
        return ""
    return (
        f"{pluralise(len(messages), 'message')} {'was' if len(messages) == 1 else 'were'} not read: "
        f"{one_line(messages[0], 100)}"
    )
