"""The lines that `deliver`, `watch` and `show` print of a delivery: its header, its progress line by line, and the last
block of one that has ended. Used by the commands that follow or show a delivery, and by the demo; nothing is printed
here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perdure.models.delivery.decisions import Gate
from perdure.models.delivery.result import DecisionMade, DeliveryResult, ReviewStatus, Status, StepRecord
from perdure.models.delivery.result_text import cost_line, reason_text, receipt_line, review_line, tests_line
from perdure.models.phases import Phase
from perdure.render.decision_lines import decision_line, hold_lines, pending_lines
from perdure.render.step_lines import (
    GOOD,
    NAME_CHARS,
    NEUTRAL,
    RUNNING,
    SHOWN_ACTIVITIES,
    WARN,
    WIDTH,
    StepGroup,
    StepLine,
    format_row,
    group_steps,
    line_of,
)
from perdure.text import format_count, format_money, one_line, shell_word, short_sha, span

if TYPE_CHECKING:
    from perdure.client import PendingActivity
    from perdure.models.delivery.state import Progress


RETRY = "↻"
NEXT_TRY_AT = "; next try at "
"""Before the part of a wait's reason that differs with each attempt: an outage of a day is one line, not hundreds."""
REWOUND = f"{RETRY} the delivery was rewound: it goes on from here"


@dataclass(frozen=True)
class Header:
    """The first lines about a delivery: what is delivered, and where. Empty facts are left out; `base` is like `main at
    4be1c02`."""

    version: str
    delivery_id: str
    checkout: str
    target: str
    base: str
    not_included: Sequence[str] = ()
    settings: Sequence[str] = ()
    watching: Sequence[str] = ()
    issue: str = ""

    def lines(self) -> list[str]:
        """Return the lines: version and id, then a line for each fact that is known."""
        target = f"{self.checkout} → {self.target}" if self.checkout else self.target
        rows = [
            ("repository", f"{target} ({self.base})" if self.base else target),
            ("issue", self.issue),
            ("not included", ", ".join(self.not_included)),
            ("settings", " · ".join(self.settings)),
            ("watching", " · ".join(self.watching)),
        ]
        return [
            f"perdure {self.version} · {self.delivery_id}",
            *(f"  {name:<13} {one_line(text, 400)}" for name, text in rows if text),
        ]


@dataclass
class ProgressReporter:
    """Reports a delivery while it runs: each line once, in order, whenever and however often it is asked.

    Given all states that a delivery goes through, any of them, or only the last one, it ends with the same groups of
    steps.
    """

    width: int = WIDTH
    _reported_groups: list[StepGroup] = field(default_factory=list)
    _reported_keys: set[tuple[str, ...]] = field(default_factory=set)
    _wait_cause: str = ""
    decision_key: str = ""
    _retried_cause: str = ""
    _was_silent: bool = False
    _was_without_slot: bool = False
    _step_since: tuple[str, float] = ("", 0.0)

    def new_lines(
        self, progress: Progress | None, pending: Sequence[PendingActivity] = (), *, silent: str = ""
    ) -> list[str]:
        """Return the lines that are new since the last call, and remember them as reported: finished steps, decisions,
        what it waits for, that no worker answers, attempts made again.

        `progress` is the last known, None before any. `silent`: why no worker has answered for a while, empty when one
        has; it is reported once. That it waits for a slot is reported the first time: on a full host each step does.
        """
        lines = []
        if progress is not None:
            lines += self._new_group_lines(self._finished_groups(progress), _fix_limits(progress))
            lines += [
                f"{GOOD} decided    {text}"
                for decision in progress.decisions
                if (text := self._new_decision_text(decision))
            ]
            cause, next_try, _ = progress.waiting.partition(NEXT_TRY_AT)
            if (
                pending_decision := progress.pending_decision
            ) is not None and pending_decision.key != self.decision_key:
                lines += pending_lines(pending_decision, progress.delivery_id)
            elif pending_decision is None and cause and cause not in (self._wait_cause, self._retried_cause):
                lines += waiting_lines(progress)
            self.decision_key = pending_decision.key if pending_decision is not None else ""
            self._wait_cause = cause
            if next_try:  # between two attempts it waits for nothing
                self._retried_cause = cause
        if silent and not self._was_silent:
            lines.append(no_worker_line(silent))
        self._was_silent = bool(silent)
        queue_wait = next((activity.queue_wait for activity in pending if activity.queue_wait), "")
        if queue_wait and not self._was_without_slot:
            lines.append(f"{WARN} {'waiting':<{NAME_CHARS}} {queue_wait}")
        self._was_without_slot = self._was_without_slot or bool(queue_wait)
        return lines + [line for activity in pending if (line := self.new_retry_line(activity))]

    def last_lines(self, steps: Sequence[StepRecord], progress: Progress | None = None) -> list[str]:
        """Return the lines of step groups not reported yet, once no step will be added, and note them as reported."""
        return self._new_group_lines(group_steps(steps), _fix_limits(progress))

    def _new_decision_text(self, decision: DecisionMade) -> str:
        """Return a decision in words the first time it is seen, and note it; empty later."""
        key = ("decided", decision.gate, decision.target, decision.verdict)
        if key in self._reported_keys:
            return ""
        self._reported_keys.add(key)
        return decision_line(decision)

    def current_line(
        self, progress: Progress | None, pending: Sequence[PendingActivity], clock_s: float
    ) -> StepLine | None:
        """Return the line about what goes on at this moment, or about the last steps when they ended and are not
        reported yet.

        None when nothing was begun, or all of it is reported already. `clock_s`: any clock in seconds, by which the
        duration of the current step is counted from the first call that saw it, which is remembered.
        """
        steps = list(progress.steps) if progress else []
        current = next((activity for activity in pending if activity.activity in SHOWN_ACTIVITIES), None)
        if current and not (steps and steps[-1].status == "running" and steps[-1].step == current.activity):
            attempt = 1 + sum(record.step == current.activity for record in steps)
            steps.append(StepRecord(step=current.activity, attempt=attempt))
        if not steps:
            return None
        group = group_steps(steps)[-1]
        line = line_of(group, _fix_limits(progress), ended=False)
        if line.mark != RUNNING:
            return line if group not in self._reported_groups else None
        key = f"{len(steps)}:{group.steps[-1].step}"
        if self._step_since[0] != key:
            self._step_since = (key, clock_s)
        earlier = [text for text in (line_of(StepGroup(group.steps[:-1])).text if group.steps[1:] else "",) if text]
        text = " · ".join([*earlier, *_activity_parts(current)]) or line.text
        return StepLine(line.mark, line.name, text, duration_s=clock_s - self._step_since[1])

    def _finished_groups(self, progress: Progress) -> list[StepGroup]:
        """Return the groups of steps to which nothing will be added: all but the last, which can still grow.

        All of them while a whole plan or change waits for a person, and where all of them were reported before.
        """
        groups = group_steps(progress.steps)
        gates = (Gate.PLAN, Gate.ITEMS, Gate.TESTS, Gate.PULL_REQUEST)
        waits_at_gate = progress.pending_decision is not None and progress.pending_decision.gate in gates
        return groups if waits_at_gate or groups == self._reported_groups else groups[:-1]

    def _new_group_lines(self, groups: list[StepGroup], limits: tuple[int | None, int | None]) -> list[str]:
        """Return the lines of the groups that were not reported yet, and note all of them as reported.

        Where groups that were reported are not among them, the delivery was rewound, which the first line says.
        """
        first_difference = next(
            (index for index, (a, b) in enumerate(zip(self._reported_groups, groups, strict=False)) if a != b), None
        )
        common = min(len(self._reported_groups), len(groups)) if first_difference is None else first_difference
        lines = [REWOUND] if common < len(self._reported_groups) else []
        lines += [format_row(line_of(group, limits), self.width) for group in groups[common:]]
        self._reported_groups = groups
        return lines

    def new_retry_line(self, pending: PendingActivity) -> str:
        """Return a line about an attempt that is not the first, and note it as reported.

        Empty for a first attempt, one whose predecessor has left no reason, and what is reported already. A worker's
        death is reported at each attempt, an error once.
        """
        if pending.attempt < 2 or not (pending.failure or pending.died):
            return ""
        turn = str(pending.details.get("turn", ""))
        where = f"{pending.activity}, turn {turn}" if turn else pending.activity
        if pending.died:
            key: tuple[str, ...] = (pending.activity, turn, str(pending.attempt))
            cause = "no sign of the worker (dead, asleep or cut off)" if pending.silent else "worker died"
            line = f"{RETRY} {cause} in {where}; doing it again"
        else:
            key = (pending.activity, turn, pending.failure)
            line = f"{RETRY} {where}: {one_line(join_error_lines(pending.failure))}; trying again"
        if key in self._reported_keys:
            return ""
        self._reported_keys.add(key)
        return line


def current_lines(progress: Progress, pending: Sequence[PendingActivity]) -> list[StepLine]:
    """Return the lines of a running delivery and of what it does at this moment, for who looks once."""
    lines = [line_of(group, _fix_limits(progress), ended=False) for group in group_steps(progress.steps)]
    current = ProgressReporter().current_line(progress, pending, 0.0)
    if current is not None and current.mark == RUNNING:
        is_last = bool(lines) and (lines[-1].mark, lines[-1].name) == (RUNNING, current.name)
        earlier = lines[:-1] if is_last else lines
        lines = [*earlier, replace(current, duration_s=None)]
    return lines


def join_error_lines(failure: str) -> str:
    """Return the lines of an error (what, where, fix) as parts of one."""
    return "; ".join(line.strip().rstrip(".;") for line in failure.splitlines() if line.strip())


def no_worker_line(reason: str, consequence: str = "the work goes on then") -> str:
    """Return the line that says why no worker answers, and what happens when one does."""
    return f"{WARN} {reason}; {consequence}"


def retry_lines(pending: Sequence[PendingActivity]) -> list[str]:
    """Return a line for each activity that is being tried again now, with the reason."""
    reporter = ProgressReporter()
    return [line for activity in pending if (line := reporter.new_retry_line(activity))]


def waiting_lines(progress: Progress) -> list[str]:
    """Return what the delivery waits for, and what to type where that ends it; empty when it waits for nothing."""
    if progress.pending_decision is not None:
        lines = pending_lines(progress.pending_decision, progress.delivery_id)
        return lines + (hold_lines(progress.held, progress.delivery_id) if progress.held else [])
    if progress.held and progress.waiting == progress.held:
        return hold_lines(progress.held, progress.delivery_id)
    return [f"{WARN} {'waiting':<{NAME_CHARS}} {one_line(progress.waiting)}"] if progress.waiting else []


def _fix_limits(progress: Progress | None) -> tuple[int | None, int | None]:
    """Return how many fixes of tests and of review there may be, each None where that is not known."""
    return (progress.test_fixes, progress.review_fixes) if progress else (None, None)


def _activity_parts(pending: PendingActivity | None) -> list[str]:
    """Return what an activity in flight does, in parts: turn, action or that it waits for a slot, cost so far, attempt
    and why the last one failed."""
    if pending is None:
        return []
    turn, action, cost = (pending.details.get(name) for name in ("turn", "doing", "cost_usd"))
    return [
        *([f"turn {turn}"] if turn else []),
        *([pending.queue_wait] if pending.queue_wait else [one_line(str(action), 60)] if action else []),
        *([format_money(float(cost))] if isinstance(cost, int | float) and cost else []),
        *([f"attempt {pending.attempt}"] if pending.attempt > 1 else []),
        *([one_line(pending.failure, 60)] if pending.attempt > 1 and not pending.died and pending.failure else []),
    ]


_HEADLINES = {
    Status.DELIVERED: "Delivered",
    Status.DRAFT: "Draft",
    Status.COMPLETED: "Completed",
    Status.NOT_DELIVERED: "Not delivered",
    Status.NO_CHANGES: "No changes",
    Status.CANCELLED: "Cancelled",
}


def closing_lines(result: DeliveryResult, elapsed_s: float | None = None) -> list[str]:
    """Return the last block of a delivery: a headline with status and pull request or reason, the message's other
    lines, tests and review, cost, time, receipt, decisions, unread messages, what to type next.

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
        return reason_text(result.reason, message)
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
        f"{format_count(result.tests.promises, 'changed promise')}, {remark}: perdure report "
        f"{shell_word(result.delivery_id)}"
    )


def _unread_text(result: DeliveryResult) -> str:
    """Return how many messages of people came too late to be read, and the first of them, so that nobody thinks they
    were heeded; empty: none."""
    messages = result.unread
    if not messages:
        return ""
    return (
        f"{format_count(len(messages), 'message')} {'was' if len(messages) == 1 else 'were'} not read: "
        f"{one_line(messages[0], 100)}"
    )
