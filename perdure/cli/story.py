"""What `deliver`, `watch` and `show` say: header, running story, closing block; pure functions and one pure fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure.cli.asking import held, waits_for_you
from perdure.cli.chapters import LEFT, RUNS, STOPS, TOLD, WIDTH, Chapter, Line, chapters, line_of, row
from perdure.cli.words import count, money, one_line, short, span, tokens
from perdure.models.decisions import Gate
from perdure.models.phases import Phase
from perdure.models.result import DeliveryResult, ReviewStatus, Status, StepRecord, TestsStatus

if TYPE_CHECKING:
    from perdure.client import Pending
    from perdure.models.state import Progress

AGAIN = "↻"
NO_WORKER = f"{STOPS} no worker is running: perdure up --detach starts one; the work goes on then"
NEXT_TRY = "; next try at "
"""What follows in words of waiting is another with each attempt: an outage of a day is one line, not hundreds."""
REWOUND = f"{AGAIN} the delivery was rewound: it goes on from here"

_HEADLINES = {
    Status.DELIVERED: "Delivered",
    Status.DRAFT: "Draft",
    Status.COMPLETED: "Completed",
    Status.NOT_DELIVERED: "Not delivered",
    Status.NO_CHANGES: "No changes",
    Status.CANCELLED: "Cancelled",
}


@dataclass(frozen=True)
class Header:
    """The first lines. Empty facts are left out; `base` is `main at 4be1c02`."""

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
class Teller:
    """Tells a delivery as it goes: each line once, in order, whenever and however often it is asked.

    Feeding every state that a delivery goes through, any of them, or only the last one leads to the same chapters.
    """

    width: int = WIDTH
    _told: list[Chapter] = field(default_factory=list)
    _said: set[tuple[str, ...]] = field(default_factory=set)
    _waiting: str = ""
    asked: str = ""
    _tried: str = ""
    _silent: bool = False
    _since: tuple[str, float] = ("", 0.0)

    def hear(self, progress: Progress | None, pending: Sequence[Pending] = (), *, silent: bool = False) -> list[str]:
        """New lines for good. `silent`: no worker has answered for a while, `progress` is the last that is known."""
        lines = []
        if progress is not None:
            lines += self._tell(self._settled(progress), _limits(progress))
            cause, tries, _ = progress.waiting.partition(NEXT_TRY)
            if (asked := progress.asked) is not None and asked.key != self.asked:
                lines += waits_for_you(asked, progress.delivery_id)
            elif asked is None and cause and cause not in (self._waiting, self._tried):
                lines += waiting(progress)
            self.asked = asked.key if asked is not None else ""
            self._waiting = cause
            if tries:  # between two attempts it waits for nothing
                self._tried = cause
        if silent and not self._silent:
            lines.append(NO_WORKER)
        self._silent = silent
        return lines + [line for p in pending if (line := self._again(p))]

    def end(self, steps: Sequence[StepRecord], progress: Progress | None = None) -> list[str]:
        """The rest, once nothing will be added."""
        return self._tell(chapters(steps), _limits(progress))

    def now(self, progress: Progress | None, pending: Sequence[Pending], at: float) -> Line | None:
        """What goes on at this moment; `at` is any clock in seconds."""
        steps = list(progress.steps) if progress else []
        doing = next((p for p in pending if p.activity in TOLD), None)
        if doing and not (steps and steps[-1].status == "running" and steps[-1].step == doing.activity):
            attempt = 1 + sum(record.step == doing.activity for record in steps)
            steps.append(StepRecord(step=doing.activity, attempt=attempt))
        if not steps:
            return None
        chapter = chapters(steps)[-1]
        line = line_of(chapter, _limits(progress), ended=False)
        if line.mark != RUNS:
            return line if chapter not in self._told else None
        key = f"{len(steps)}:{chapter.steps[-1].step}"
        if self._since[0] != key:
            self._since = (key, at)
        past = [text for text in (line_of(Chapter(chapter.steps[:-1])).text if chapter.steps[1:] else "",) if text]
        text = " · ".join([*past, *_doing(doing)]) or line.text
        return Line(line.mark, line.name, text, duration_s=at - self._since[1])

    def _settled(self, progress: Progress) -> list[Chapter]:
        """Chapters to which nothing will be added: while a whole plan or change waits for a person, all of them."""
        told = chapters(progress.steps)
        whole = progress.asked is not None and progress.asked.gate in (Gate.PLAN, Gate.TESTS, Gate.PULL_REQUEST)
        return told if whole or told == self._told else told[:-1]

    def _tell(self, closed: list[Chapter], limits: tuple[int | None, int | None]) -> list[str]:
        same = next((n for n, (a, b) in enumerate(zip(self._told, closed, strict=False)) if a != b), None)
        common = min(len(self._told), len(closed)) if same is None else same
        lines = [REWOUND] if common < len(self._told) else []
        lines += [row(line_of(chapter, limits), self.width) for chapter in closed[common:]]
        self._told = closed
        return lines

    def _again(self, pending: Pending) -> str:
        """A line for an attempt that is not the first: a death is told each time, a passing error once."""
        if pending.attempt < 2 or not (pending.failure or pending.died):
            return ""
        turn = str(pending.details.get("turn", ""))
        where = f"{pending.activity}, turn {turn}" if turn else pending.activity
        if pending.died:
            key: tuple[str, ...] = (pending.activity, turn, str(pending.attempt))
            line = f"{AGAIN} worker died in {where}; doing it again"
        else:
            key = (pending.activity, turn, pending.failure)
            line = f"{AGAIN} {where}: {one_line(pending.failure)}; trying again"
        if key in self._said:
            return ""
        self._said.add(key)
        return line


def waiting(progress: Progress) -> list[str]:
    """What it waits for just now, and what to type where that ends it; empty when it waits for nothing."""
    if progress.asked is not None:
        asks = waits_for_you(progress.asked, progress.delivery_id)
        return asks + (held(progress.held, progress.delivery_id) if progress.held else [])
    if progress.held and progress.waiting == progress.held:
        return held(progress.held, progress.delivery_id)
    return [f"{STOPS} waiting    {one_line(progress.waiting)}"] if progress.waiting else []


def closing(result: DeliveryResult, elapsed_s: float | None = None) -> list[str]:
    """The last block: what exists now, its tests and review, cost, time, receipt, what to type next."""
    rows = [
        ("tests", _tests(result), "review", _review(result)),
        ("cost", _cost(result), "time", span(elapsed_s) if elapsed_s is not None else ""),
        ("receipt", _receipt(result), "", ""),
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


def _limits(progress: Progress | None) -> tuple[int | None, int | None]:
    return (progress.test_fixes, progress.review_fixes) if progress else (None, None)


def _doing(pending: Pending | None) -> list[str]:
    if pending is None:
        return []
    turn, doing, cost = (pending.details.get(name) for name in ("turn", "doing", "cost_usd"))
    return [
        *([f"turn {turn}"] if turn else []),
        *([one_line(str(doing), 60)] if doing else []),
        *([money(float(cost))] if isinstance(cost, int | float) and cost else []),
        *([f"attempt {pending.attempt}"] if pending.attempt > 1 else []),
    ]


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
    """What people said too late: nobody may think that it was heeded."""
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
