"""Changed promises, base tests that fail on the change, as people see them, and an experiment's findings that decide
nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from perdure.models.experiment import Experiment, Promise
from perdure.models.report import Justification, Review, TestReport
from perdure.text import one_line

PROMISE_NAME_CHARS = 200
"""Of a test's name when a review is asked about it: the name that comes back is compared with this."""

EXPERIMENT_LINES = 60
"""Of the difference between both versions of one test: what a person reads beside a decision."""

NAMES_SHOWN = 8
"""Names of tests in one line about an experiment; its report has them all."""


_SAME = "the test is the same: what it uses has changed"
_ABOVE = "  both versions are above"


@dataclass(frozen=True)
class ChangedPromise:
    """One changed promise as people see it: a test of the base that fails on the change.

    name      as it is shown
    versions  the test on the base and on the change: lines that begin with `-`, `+` or a blank
    answer    the reviewer's; None: none was asked. Its quote is empty where nothing in the request asks for the change
    """

    name: str
    promise: Promise
    versions: tuple[str, ...]
    answer: Justification | None = None

    @property
    def justification(self) -> str:
        """Return in one line the reviewer's justification from the request, or that there is none."""
        if self.answer is None:
            return "not reviewed"
        reason = f" ({' '.join(self.answer.reason.split())})" if self.answer.reason.strip() else ""
        if not self.answer.quote.strip():
            return f"nothing in the request asks for it{reason}"
        return f"the request says “{' '.join(self.answer.quote.split())}”{reason}"

    @property
    def justified(self) -> bool:
        """Return whether the reviewer quoted words of the request that ask for the change."""
        return self.answer is not None and bool(self.answer.quote.strip())


def changed_promises(report: TestReport | None, review: Review | None = None) -> tuple[ChangedPromise, ...]:
    """Return all changed promises of a report, with the answers of the review that was shown them.

    Versions that equal those of an earlier promise are replaced by a line that says so. Empty without an experiment.
    """
    if report is None or report.experiment is None:
        return ()
    answers = {answer.test: answer for answer in review.promises} if review is not None else {}
    promises, seen = list[ChangedPromise](), set[tuple[str, ...]]()
    for name, promise in promises_by_label(report.experiment.changed_promises).items():
        versions = diff_lines(promise)
        promises.append(
            ChangedPromise(name, promise, versions if versions not in seen else (_ABOVE,), answers.get(name))
        )
        seen.add(versions)
    return tuple(promises)


def promises_by_label(promises: Iterable[Promise]) -> dict[str, Promise]:
    """Return each test once, by the unique label under which it is shown and answered: name, or `name (2)`."""
    labelled: dict[str, Promise] = {}
    for promise in {(promise.file, promise.name): promise for promise in promises}.values():
        name = label_of(promise.name) or "(no name)"
        label, number = name, 1
        while label in labelled:
            label, number = f"{name} ({number + 1})", number + 1
        labelled[label] = promise
    return labelled


def label_of(name: str) -> str:
    """Return a test's name on one line, of at most PROMISE_NAME_CHARS."""
    return one_line(name, PROMISE_NAME_CHARS)


def experiment_notes(experiment: Experiment) -> tuple[str, ...]:
    """Return the findings that decide nothing but that people should know, one line each.

    They are: tests taken away where that is allowed, tests of the base that are gone, settings of the change without
    which the base's tests do not start, tests that fail without the change, and what could not be asked.
    """
    base, lines = experiment.branch or "the base", list[str]()
    if experiment.allowed and (removed := [name for command in experiment.commands for name in command.taken]):
        lines.append(f"taken away, as the request allows: {join_names(removed)}")
    if lost := [name for command in experiment.commands for name in command.lost]:
        lines.append(f"tests of {base} that would pass, and are gone: {join_names(lost)}")
    if steered := dict.fromkeys(path for command in experiment.commands for path in command.steered):
        lines.append(f"{base}'s tests start only with the change's own settings: {join_names(tuple(steered))}")
    if proving := [name for command in experiment.commands for name in command.proving or ()]:
        lines.append(f"fail without the change: {join_names(label_of(name) for name in proving)}")
    return (*lines, *(f"not asked: {reason}" for reason in experiment.unasked_reasons))


def diff_lines(promise: Promise) -> tuple[str, ...]:
    """Return both versions of the test as lines that begin with `-`, `+` or a blank, at most EXPERIMENT_LINES of them.

    One line where both are the same; empty where the versions are not known.
    """
    before, after = promise.before.splitlines(), promise.after.splitlines()
    if before == after:
        return (f"  {_SAME}",) if before else ()
    lines = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]
    diff = [f"{line[0]} {line[1:]}" if line[0] in "+- " else "…" for line in lines]
    shown = diff[1:] if diff[:1] == ["…"] else diff
    more = [f"… {len(shown) - EXPERIMENT_LINES} more lines"] if len(shown) > EXPERIMENT_LINES else []
    return (*shown[:EXPERIMENT_LINES], *more)


def join_names(names: Iterable[str]) -> str:
    """Return the first NAMES_SHOWN names in one line, and how many more there are."""
    all_names = list(names)
    more = f" and {len(all_names) - NAMES_SHOWN} more" if len(all_names) > NAMES_SHOWN else ""
    return ", ".join(all_names[:NAMES_SHOWN]) + more
