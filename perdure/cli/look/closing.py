"""The last block of a delivery that has ended: what exists now, verdicts, cost, time, receipt; pure functions."""

from __future__ import annotations

import shlex

from perdure.cli.decide.asking import decided
from perdure.cli.look.chapters import LEFT, chapters, line_of
from perdure.cli.look.report.view import cost_line, receipt_line, review_line, tests_line
from perdure.cli.words import count, short, span
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


def closing(result: DeliveryResult, elapsed_s: float | None = None) -> list[str]:
    """The last block: what exists now, its tests and review, cost, time, receipt, what to type next."""
    rows = [
        ("tests", tests_line(result.tests), "review", review_line(result.review)),
        ("", result.tests.experiment, "", ""),
        ("", _promises(result), "", ""),
        ("cost", cost_line(result.usage), "time", span(elapsed_s) if elapsed_s is not None else ""),
        ("receipt", receipt_line(result.receipt, result.tests), "", ""),
        *(("decided" if n == 0 else "", decided(made), "", "") for n, made in enumerate(result.decisions)),
        ("unread", _unread(result), "", ""),
        *(("next" if n == 0 else "", one_line(command, 400), "", "") for n, command in enumerate(result.next)),
    ]
    lines = [f"{_HEADLINES[result.status]}  {_outcome(result)}".rstrip()]
    said, more = _parts_of(result.message)
    if said and result.status == Status.DELIVERED:  # what the forge did not take, and the like: it changes nothing
        lines.append(f"  {'note':<8} {one_line(said, 400)}")
    lines += [f"  {name:<8} {one_line(text, 400)}" for name, text in more]
    for name, text, second, also in rows:
        if not text and also:
            name, text, second, also = second, also, "", ""
        if text:
            lines.append(f"  {name:<8} {text:<40}  {second:<8}{also}".rstrip() if also else f"  {name:<8} {text}")
    return lines


def _parts_of(message: str) -> tuple[str, list[tuple[str, str]]]:
    """A message and what follows it: an error's `where` and `fix`, or its last lines of output."""
    first, *rest = message.splitlines() or [""]
    told = []
    for line in rest:
        name, colon, text = line.strip().partition(": ")
        told.append((name, text) if colon and name in ("where", "fix") else ("", line.strip()))
    return first, [(name, text) for name, text in told if text]


def _outcome(result: DeliveryResult) -> str:
    message = one_line(_parts_of(result.message)[0], 300)
    if result.pull_request is not None:
        url = one_line(result.pull_request.url, 500)
        return f"{url} {LEFT} {message}" if message and result.status == Status.DRAFT else url
    if result.status == Status.CANCELLED:
        branch = f"branch {result.branch}" if result.branch else ""
        checkpoint = f"checkpoint {short(result.checkpoint)}" if result.checkpoint else ""
        kept = " and ".join(part for part in (branch, checkpoint) if part)
        return f"{kept} kept" if kept else "before there was anything to keep"
    if result.reason is not None:
        reason = result.reason.replace("_", " ")
        said = message.startswith(reason) or message.replace("tests are red", "tests red").startswith(reason)
        return message if said else f"{reason}: {message}" if message else reason
    if result.status == Status.COMPLETED:
        told = dict.fromkeys(line_of(chapter).name for chapter in chapters(result.steps))
        done = ", ".join(name for name in told if name in tuple(Phase))
        branch = f"branch {result.branch}" if result.branch and result.branch not in message else ""
        return " · ".join(part for part in (done, branch, message) if part)
    return message or (f"branch {result.branch}" if result.branch else "")


def _promises(result: DeliveryResult) -> str:
    """That the change does not keep all that the base's tests demand, and where to read of it."""
    if not result.tests.promises:
        return ""
    said = "justified by the request" if result.review.status == ReviewStatus.CLEAN else "see the review"
    return (
        f"{count(result.tests.promises, 'changed promise')}, {said}: perdure report {shlex.quote(result.delivery_id)}"
    )


def _unread(result: DeliveryResult) -> str:
    """The messages that people sent too late: nobody may think that they were heeded."""
    said = result.unread
    if not said:
        return ""
    return f"{count(len(said), 'message')} {'was' if len(said) == 1 else 'were'} not read: {one_line(said[0], 100)}"
