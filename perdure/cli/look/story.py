"""Words of `deliver`, `watch` and `show`: header, running story, closing block; pure functions and one pure fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perdure.cli.decide.asking import decided, held, waits_for_you
from perdure.cli.look.chapters import GOOD, RUNS, STOPS, TOLD, WIDTH, Chapter, StoryLine, chapters, line_of, row
from perdure.cli.words import money
from perdure.models.decisions import Gate
from perdure.models.result import DecisionMade, StepRecord
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.client import Pending
    from perdure.models.state import Progress

AGAIN = "↻"
NEXT_TRY = "; next try at "
"""The end of a wait's words that differs with each attempt: an outage of a day is one line, not hundreds."""
REWOUND = f"{AGAIN} the delivery was rewound: it goes on from here"


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

    def hear(self, progress: Progress | None, pending: Sequence[Pending] = (), *, silent: str = "") -> list[str]:
        """New lines for good. `silent`: why no worker has answered for a while; `progress` is the last known."""
        lines = []
        if progress is not None:
            lines += self._tell(self._settled(progress), _limits(progress))
            lines += [f"{GOOD} decided    {words}" for made in progress.decisions if (words := self._decided(made))]
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
            lines.append(no_worker(silent))
        self._silent = bool(silent)
        return lines + [line for p in pending if (line := self.again(p))]

    def end(self, steps: Sequence[StepRecord], progress: Progress | None = None) -> list[str]:
        """The rest, once nothing will be added."""
        return self._tell(chapters(steps), _limits(progress))

    def _decided(self, made: DecisionMade) -> str:
        """A decision, once."""
        key = ("decided", made.gate, made.of, made.verdict)
        if key in self._said:
            return ""
        self._said.add(key)
        return decided(made)

    def now(self, progress: Progress | None, pending: Sequence[Pending], at: float) -> StoryLine | None:
        """Return what goes on at this moment; `at` is any clock in seconds."""
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
        return StoryLine(line.mark, line.name, text, duration_s=at - self._since[1])

    def _settled(self, progress: Progress) -> list[Chapter]:
        """Chapters to which nothing will be added: while a whole plan or change waits for a person, all of them."""
        told = chapters(progress.steps)
        shown = (Gate.PLAN, Gate.ITEMS, Gate.TESTS, Gate.PULL_REQUEST)
        whole = progress.asked is not None and progress.asked.gate in shown
        return told if whole or told == self._told else told[:-1]

    def _tell(self, closed: list[Chapter], limits: tuple[int | None, int | None]) -> list[str]:
        same = next((n for n, (a, b) in enumerate(zip(self._told, closed, strict=False)) if a != b), None)
        common = min(len(self._told), len(closed)) if same is None else same
        lines = [REWOUND] if common < len(self._told) else []
        lines += [row(line_of(chapter, limits), self.width) for chapter in closed[common:]]
        self._told = closed
        return lines

    def again(self, pending: Pending) -> str:
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
            line = f"{AGAIN} {where}: {one_line(in_one(pending.failure))}; trying again"
        if key in self._said:
            return ""
        self._said.add(key)
        return line


def standing(progress: Progress, pending: Sequence[Pending]) -> list[StoryLine]:
    """The whole story of one that runs, with what it does at this moment, for whoever looks once."""
    lines = [line_of(chapter, _limits(progress), ended=False) for chapter in chapters(progress.steps)]
    now = Teller().now(progress, pending, 0.0)
    if now is not None and now.mark == RUNS:
        known = bool(lines) and (lines[-1].mark, lines[-1].name) == (RUNS, now.name)
        before = lines[:-1] if known else lines
        lines = [*before, replace(now, duration_s=None)]
    return lines


def in_one(failure: str) -> str:
    """An error's lines (what, where, fix) as parts of one."""
    return "; ".join(line.strip().rstrip(".;") for line in failure.splitlines() if line.strip())


def no_worker(why: str, then: str = "the work goes on then") -> str:
    return f"{STOPS} {why}; {then}"


def again(pending: Sequence[Pending]) -> list[str]:
    """A line for each step that is being tried again just now, with the reason."""
    teller = Teller()
    return [line for one in pending if (line := teller.again(one))]


def waiting(progress: Progress) -> list[str]:
    """Return what it waits for, and what to type where that ends it; empty when it waits for nothing."""
    if progress.asked is not None:
        asks = waits_for_you(progress.asked, progress.delivery_id)
        return asks + (held(progress.held, progress.delivery_id) if progress.held else [])
    if progress.held and progress.waiting == progress.held:
        return held(progress.held, progress.delivery_id)
    return [f"{STOPS} waiting    {one_line(progress.waiting)}"] if progress.waiting else []


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
        *([one_line(pending.failure, 60)] if pending.attempt > 1 and not pending.died and pending.failure else []),
    ]
