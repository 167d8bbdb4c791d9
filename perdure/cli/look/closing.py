"""The last block of a delivery that has ended: what exists now, verdicts, cost, time, receipt; pure functions."""

from __future__ import annotations

import shlex

from perdure.cli.decide.asking import decided
from perdure.cli.look.chapters import LEFT, chapters, line_of
from perdure.cli.words import count, money, short, span, tokens
from perdure.models.phases import Phase
from perdure.models.result import DeliveryResult, ReviewStatus, Status, TestsStatus
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
        ("tests", _tests(result), "review", _review(result)),
        ("", result.tests.experiment, "", ""),
        ("", _promises(result), "", ""),
        ("cost", _cost(result), "time", span(elapsed_s) if elapsed_s is not None else ""),
        ("receipt", _receipt(result), "", ""),
        *(("decided" if n == 0 else "", decided(made), "", "") for n, made in enumerate(result.decisions)),
        ("unread", _unread(result), "", ""),
        *(("next" if n == 0 else "", one_line(command, 400), "", "") for n, command in enumerate(result.next)),
    ]
    lines = [f"{_HEADLINES[result.status]}  {_outcome(result)}".rstrip()]
    said, more = _told(result.message)
    if said and result.status == Status.DELIVERED:  # what the forge did not take, and the like: it changes nothing
        lines.append(f"  {'note':<8} {one_line(said, 400)}")
    lines += [f"  {name:<8} {one_line(text, 400)}" for name, text in more]
    for name, text, second, also in rows:
        if not text and also:
            name, text, second, also = second, also, "", ""
        if text:
            lines.append(f"  {name:<8} {text:<40}  {second:<8}{also}".rstrip() if also else f"  {name:<8} {text}")
    return lines


def _told(message: str) -> tuple[str, list[tuple[str, str]]]:
    """A message and what follows it: an error's `where` and `fix`, or its last lines of output."""
    first, *rest = message.splitlines() or [""]
    told = []
    for line in rest:
        name, colon, text = line.strip().partition(": ")
        told.append((name, text) if colon and name in ("where", "fix") else ("", line.strip()))
    return first, [(name, text) for name, text in told if text]


def _outcome(result: DeliveryResult) -> str:
    message = one_line(_told(result.message)[0], 300)
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


def _tests(result: DeliveryResult) -> str:
    tests = result.tests
    if tests.status == TestsStatus.NONE:
        return "none: no test command exists"
    if tests.status == TestsStatus.SKIPPED:
        return "skipped"
    parts = [f"{tests.passed} passed"] if tests.passed is not None else [str(tests.status)]
    if tests.failed:
        parts.append(f"{tests.failed} failed")
    if tests.new_failures is not None:
        parts.append(count(tests.new_failures, "new failure"))
    if tests.known_failures:
        parts.append(f"{tests.known_failures} before too")
    if tests.tampered:
        parts.append(f"{count(tests.tampered, 'place')} tampered with")
    if tests.flaky:
        parts.append(f"{tests.flaky} flaky")
    return ", ".join(parts)


def _promises(result: DeliveryResult) -> str:
    """That the change does not keep all that the base's tests demand, and where to read of it."""
    if not result.tests.promises:
        return ""
    said = "justified by the request" if result.review.status == ReviewStatus.CLEAN else "see the review"
    return (
        f"{count(result.tests.promises, 'changed promise')}, {said}: perdure report {shlex.quote(result.delivery_id)}"
    )


def _review(result: DeliveryResult) -> str:
    review = result.review
    if review.status == ReviewStatus.SKIPPED:
        return "skipped"
    parts = [count(review.blockers, "blocker")]
    if review.tech_debt:
        parts.append(f"{review.tech_debt} tech debt noted")
    if review.skippable:
        parts.append(f"{review.skippable} skippable")
    return ", ".join(parts)


def _cost(result: DeliveryResult) -> str:
    usage = result.usage
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    text = money(usage.cost_usd)
    if total := prompt + usage.output_tokens:
        text += f" · {tokens(total)} tokens"
        if prompt:
            text += f", {100 * usage.cache_read_tokens // prompt} % from cache"
    if usage.at_risk_usd:
        text += f" · up to {money(usage.at_risk_usd)} more for replies cut off"
    return text


def _unread(result: DeliveryResult) -> str:
    """The messages that people sent too late: nobody may think that they were heeded."""
    said = result.unread
    if not said:
        return ""
    return f"{count(len(said), 'message')} {'was' if len(said) == 1 else 'were'} not read: {one_line(said[0], 100)}"


def _receipt(result: DeliveryResult) -> str:
    receipt = result.receipt
    parts = [
        count(receipt.worker_deaths, "worker death"),
        f"{count(receipt.turns_redone, 'turn')} redone",
        f"{count(receipt.replies_paid_twice, 'reply', 'replies')} paid twice",
    ]
    if receipt.replies_cut:
        parts.append(f"{count(receipt.replies_cut, 'reply', 'replies')} cut off by a death")
    if result.tests.tree_sha and result.tests.status in (TestsStatus.GREEN, TestsStatus.RED):
        parts.append(f"{result.tests.status} on tree {short(result.tests.tree_sha)}")
    return " · ".join(parts)
