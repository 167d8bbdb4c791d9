"""The steps of a delivery as lines for a person, steps that belong together in one line; pure functions. Used by the
command line, the demo and the other modules of `perdure.render`, which take the marks (✓, ✗, !) from here, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.models.delivery.result import StepRecord
from perdure.models.delivery.steps import AGENTIC, FIXES, STEPS, WRITERS
from perdure.models.phases import Step
from perdure.text import format_count, format_money, one_line, short_sha, shorten, span

GOOD, BAD, WARN, RUNNING, NEUTRAL = "✓", "✗", "!", "▸", "–"

_MARKS = {"done": GOOD, "running": RUNNING, "failed": BAD, "cancelled": NEUTRAL}
_STEP_NAMES: dict[str, str] = {str(step): about.display_name for step, about in STEPS.items()} | {
    "capture_pages": "screenshots",
    "push_branch": "push",
    "take_tasks": "tasks",
    "take_attempt": "attempts",
}
_NOT_FATAL = (Step.REVIEW, "capture_pages")
"""Steps whose failure does not end the delivery: blockers are fixed, missing pictures are only noted."""

SHOWN_ACTIVITIES = frozenset(_STEP_NAMES)
"""Activities that are shown while they run."""

WIDTH = 88
"""Characters of a whole row, on any screen that is wide enough."""

_VERDICT_CHARS = 300
"""Characters of a verdict: tests, then what the experiments have shown."""

NAME_CHARS = 14
"""Characters of the column for the name: `review fix 1/3`."""

_RIGHT_CHARS = 18
"""Characters of the columns for time and cost."""


@dataclass(frozen=True)
class StepGroup:
    """Steps that a person sees as one thing, in one line, such as a fix, its commit and the tests that follow."""

    steps: tuple[StepRecord, ...]

    @property
    def first(self) -> StepRecord:
        """Return the step that the group begins with."""
        return self.steps[0]

    def has(self, *steps: Step) -> bool:
        """Return whether one of these steps is in the group."""
        return any(record.step in steps for record in self.steps)

    def accepts(self, record: StepRecord) -> bool:
        """Return whether a step that follows belongs to this group: a plan to its classification, a commit to the step
        that made the change, tests to the fix they judge."""
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
class StepLine:
    """The line about one group of steps. `cost_usd` None: unknown; `shows_cost` False: no model was asked, so no cost
    is shown."""

    mark: str
    name: str
    text: str
    duration_s: float | None = None
    cost_usd: float | None = 0.0
    shows_cost: bool = False


def group_steps(steps: Iterable[StepRecord]) -> list[StepGroup]:
    """Return the steps in groups, in their order: each joins the group before it where that accepts it, or begins a new
    one.

    Only the last group can still grow when more steps follow.
    """
    groups: list[StepGroup] = []
    for record in steps:
        if groups and groups[-1].accepts(record):
            groups[-1] = StepGroup((*groups[-1].steps, record))
        else:
            groups.append(StepGroup((record,)))
    return groups


def line_of(group: StepGroup, limits: tuple[int | None, int | None] = (None, None), ended: bool = True) -> StepLine:
    """Return the line about a group of steps: mark, name, text, total time and total cost.

    `limits`: how many fixes of tests and of review there may be. `ended`: no step will be added, so one that still
    seems to run was cut off, and is marked so. The cost is None where that of one of the steps is not known.
    """
    costs = [record.cost_usd for record in group.steps]
    durations = [record.duration_s for record in group.steps if record.duration_s is not None]
    mark = _mark_of(group)
    return StepLine(
        mark=NEUTRAL if ended and mark == RUNNING else mark,
        name=_name_of(group, limits),
        text=_text_of(group),
        duration_s=sum(durations) if durations else None,
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        shows_cost=group.has(Step.PREPARE, *AGENTIC),
    )


def format_row(line: StepLine, width: int = WIDTH) -> str:
    """Return a line in columns: mark, name, text, time, cost. On a screen narrower than WIDTH the text is cut."""
    right_columns = ""
    if line.duration_s is not None:
        right_columns = f"{span(line.duration_s):<8} {format_money(line.cost_usd) if line.shows_cost else ''}".rstrip()
    left_columns = f"{line.mark} {line.name:<{NAME_CHARS}} {line.text}"
    left_width = max(min(width, WIDTH) - _RIGHT_CHARS, 24)
    if width < WIDTH:
        left_columns = shorten(left_columns, left_width - 2)
    return f"{left_columns:<{left_width - 2}}  {right_columns}".rstrip()


_PHASES = ("plan", "build", "test", "review", "ship")
_REACHED, _AHEAD = "▰", "▱"


def phase_bar(phase: str, *, over: bool = False) -> str:
    """Return a bar that shows how far a delivery has come among the five phases, and the phase: `▰▰▱▱▱ build`.

    The bar is full where the delivery is `over`, and in phase `land`, which stands in the place of `ship`.
    """
    reached = len(_PHASES) if over or phase == "land" else _PHASES.index(phase) + 1 if phase in _PHASES else 0
    return f"{_REACHED * reached}{_AHEAD * (len(_PHASES) - reached)} {phase}".rstrip()


def _mark_of(group: StepGroup) -> str:
    """Return the mark of a group: that it runs, was cancelled or failed where one of its steps did, in this order of
    rank; else that it is done.

    Where a failed review or failed screenshots begin the group, the mark is a warning: the delivery goes on.
    """
    marks = [_MARKS.get(record.status, GOOD) for record in group.steps]
    mark = next((mark for mark in (RUNNING, NEUTRAL, BAD) if mark in marks), GOOD)
    return WARN if mark == BAD and group.first.step in _NOT_FATAL else mark


def _name_of(group: StepGroup, limits: tuple[int | None, int | None]) -> str:
    """Return the name of a group: `test fix 2/4` or `review fix 1/3` for a fix (without the limit where none is known
    or it is exceeded), `plan` where it planned, else that of its first step."""
    if group.first.step not in FIXES:
        return "plan" if group.has(Step.PLAN) else _STEP_NAMES.get(group.first.step, group.first.step)
    kind, limit = ("test", limits[0]) if group.first.step == Step.FIX_TESTS else ("review", limits[1])
    return f"{kind} fix {group.first.attempt}" + (f"/{limit}" if limit and group.first.attempt <= limit else "")


def _text_of(group: StepGroup) -> str:
    """Return what a group of steps did, joined by ` · `: the turns of steps that write, summaries of the steps,
    commits.

    Left out are the summaries of writing steps in a group that has a commit, and those of commits in a fix.
    """
    turns = sum(record.turns for record in group.steps)
    parts = [format_count(turns, "turn")] if turns and group.has(*WRITERS) else []
    has_commit, is_fix = group.has(Step.COMMIT), group.first.step in FIXES
    for record in group.steps:
        if not (has_commit and record.step in WRITERS) and not (is_fix and record.commit):
            parts.append(_summary_of(record, follows_review=group.first.step == Step.FIX_REVIEW))
        if record.commit and short_sha(record.commit) not in " ".join(parts):
            parts.append(f"commit {short_sha(record.commit)}")
    return " · ".join(part for part in parts if part)


def _summary_of(record: StepRecord, follows_review: bool) -> str:
    """Return a step's summary in one line; with `follows_review`, tests that are green say `green again`."""
    is_tests = record.step == Step.RUN_TESTS
    text = one_line(record.summary, _VERDICT_CHARS if is_tests else 100)
    first, dot, rest = text.partition(" · ")
    if follows_review and is_tests and record.status == "done" and first.endswith("green"):
        return f"{first} again{dot}{rest}"
    return text


def format_rows(steps: Sequence[StepRecord], limits: tuple[int | None, int | None] = (None, None)) -> list[str]:
    """Return all lines of a delivery that has ended, one for each group of steps."""
    return [format_row(line_of(group, limits)) for group in group_steps(steps)]
