"""The steps of a delivery folded into the lines a person reads: one for each thing that happened; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.cli.words import count, money, short
from perdure.models.phases import Step
from perdure.models.result import StepRecord
from perdure.models.steps import AGENTIC, FIXES, STEPS, WRITERS
from perdure.text import one_line, span

GOOD, BAD, STOPS, RUNS, LEFT = "✓", "✗", "!", "▸", "–"

_MARKS = {"done": GOOD, "running": RUNS, "failed": BAD, "cancelled": LEFT}
_NAMES: dict[str, str] = {str(step): about.shown for step, about in STEPS.items()} | {
    "capture_pages": "screenshots",
    "push_branch": "push",
    "take_tasks": "tasks",
    "take_attempt": "attempts",
}
_NO_END = (Step.REVIEW, "capture_pages")
"""Steps after whose no the work goes on: blockers are fixed, missing pictures are only noted."""

TOLD = frozenset(_NAMES)
"""Activities that are told as they run."""

WIDTH = 88
"""Of a whole row, on any screen that is wide enough."""

_VERDICT = 300
"""Characters of a verdict: tests, then what the experiments have shown."""

_RIGHT = 18
"""Of the columns for time and money."""


@dataclass(frozen=True)
class Chapter:
    """Steps that a person sees as one thing, such as a fix, its commit and the tests that follow."""

    steps: tuple[StepRecord, ...]

    @property
    def first(self) -> StepRecord:
        return self.steps[0]

    def has(self, *steps: Step) -> bool:
        return any(record.step in steps for record in self.steps)

    def takes(self, record: StepRecord) -> bool:
        """True where a step that follows belongs here: a commit to what made it, tests to the fix they judge."""
        match record.step:
            case Step.PLAN:
                return self.steps[-1].step == Step.CLASSIFY
            case Step.COMMIT:
                return self.steps[-1].step in WRITERS
            case Step.RUN_TESTS:
                return self.first.step in FIXES and not self.has(Step.RUN_TESTS)
            case _:
                return False


@dataclass(frozen=True)
class StoryLine:
    """One line of the story. `cost_usd` None: unknown; `priced` False: no model was asked, nothing to show."""

    mark: str
    name: str
    text: str
    duration_s: float | None = None
    cost_usd: float | None = 0.0
    priced: bool = False


def chapters(steps: Iterable[StepRecord]) -> list[Chapter]:
    """Fold. Only the last chapter can still grow: all before it are told for good."""
    told: list[Chapter] = []
    for record in steps:
        if told and told[-1].takes(record):
            told[-1] = Chapter((*told[-1].steps, record))
        else:
            told.append(Chapter((record,)))
    return told


def line_of(chapter: Chapter, limits: tuple[int | None, int | None] = (None, None), ended: bool = True) -> StoryLine:
    """Write a chapter's line. `limits`: how many fixes of tests and of review there may be.

    `ended`: nothing will be added; a step that still runs then was left where it was.
    """
    costs = [record.cost_usd for record in chapter.steps]
    durations = [record.duration_s for record in chapter.steps if record.duration_s is not None]
    mark = _mark(chapter)
    return StoryLine(
        mark=LEFT if ended and mark == RUNS else mark,
        name=_name(chapter, limits),
        text=_text(chapter),
        duration_s=sum(durations) if durations else None,
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        priced=chapter.has(Step.PREPARE, *AGENTIC),
    )


def row(line: StoryLine, width: int = WIDTH) -> str:
    """A line in columns: mark, name, text, time, money. On a narrow screen the text gives way."""
    right = ""
    if line.duration_s is not None:
        right = f"{span(line.duration_s):<8} {money(line.cost_usd) if line.priced else ''}".rstrip()
    left = f"{line.mark} {line.name:<10} {line.text}"
    room = max(min(width, WIDTH) - _RIGHT, 24)
    if width < WIDTH and len(left) > room - 2:
        left = left[: room - 3] + "…"
    return f"{left:<{room - 2}}  {right}".rstrip()


_PHASES = ("plan", "build", "test", "review", "ship")
_REACHED, _AHEAD = "▰", "▱"


def phase_bar(phase: str, *, over: bool = False) -> str:
    """`▰▰▱▱▱ build`: how far a delivery has come among the phases; `land` stands in the place of `ship`."""
    at = len(_PHASES) if over or phase == "land" else _PHASES.index(phase) + 1 if phase in _PHASES else 0
    return f"{_REACHED * at}{_AHEAD * (len(_PHASES) - at)} {phase}".rstrip()


def _mark(chapter: Chapter) -> str:
    marks = [_MARKS.get(record.status, GOOD) for record in chapter.steps]
    mark = next((mark for mark in (RUNS, LEFT, BAD) if mark in marks), GOOD)
    return STOPS if mark == BAD and chapter.first.step in _NO_END else mark


def _name(chapter: Chapter, limits: tuple[int | None, int | None]) -> str:
    if chapter.first.step not in FIXES:
        return "plan" if chapter.has(Step.PLAN) else _NAMES.get(chapter.first.step, chapter.first.step)
    limit = limits[0] if chapter.first.step == Step.FIX_TESTS else limits[1]
    return f"fix {chapter.first.attempt}" + (f"/{limit}" if limit and chapter.first.attempt <= limit else "")


def _text(chapter: Chapter) -> str:
    turns = sum(record.turns for record in chapter.steps)
    parts = [count(turns, "turn")] if turns and chapter.has(*WRITERS) else []
    committed, fix = chapter.has(Step.COMMIT), chapter.first.step in FIXES
    for record in chapter.steps:
        if not (committed and record.step in WRITERS) and not (fix and record.commit):
            parts.append(_summary(record, again=chapter.first.step == Step.FIX_REVIEW))
        if record.commit and short(record.commit) not in " ".join(parts):
            parts.append(f"commit {short(record.commit)}")
    return " · ".join(part for part in parts if part)


def _summary(record: StepRecord, again: bool) -> str:
    tests = record.step == Step.RUN_TESTS
    text = one_line(record.summary, _VERDICT if tests else 100)
    first, dot, rest = text.partition(" · ")
    if again and tests and record.status == "done" and first.endswith("green"):
        return f"{first} again{dot}{rest}"
    return text


def rows(steps: Sequence[StepRecord], limits: tuple[int | None, int | None] = (None, None)) -> list[str]:
    """The whole story of a delivery that has ended."""
    return [row(line_of(chapter, limits)) for chapter in chapters(steps)]
