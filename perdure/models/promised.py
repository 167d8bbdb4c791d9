"""Changed promises as every face shows them, and what else an experiment found that does not decide."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from perdure.models.experiment import Experiment, Promise
from perdure.models.report import Justification, Review, TestReport
from perdure.text import one_line

PROMISE_NAME_CHARS = 200
"""Of a test's name where a review is asked about it: the name that comes back is compared with it."""

EXPERIMENT_LINES = 60
"""Of the difference between both versions of one test: what a person reads beside a decision."""

EXPERIMENT_WORDS = 8
"""Names in one line about an experiment; its report has them all."""


_SAME = "the test is the same: what it uses has changed"
_ABOVE = "  both versions are above"


@dataclass(frozen=True)
class Changed:
    """One changed promise as people see it.

    versions  its test on the base and on the change: lines that begin with `-`, `+` or a blank
    answer    the reviewer's; None: none was asked. Its quote is empty where nothing in the request asks for it
    """

    name: str
    promise: Promise
    versions: tuple[str, ...]
    answer: Justification | None = None

    @property
    def why(self) -> str:
        """Its justification, or that there is none, in one line."""
        if self.answer is None:
            return "not reviewed"
        reason = f" ({' '.join(self.answer.reason.split())})" if self.answer.reason.strip() else ""
        if not self.answer.quote.strip():
            return f"nothing in the request asks for it{reason}"
        return f"the request says “{' '.join(self.answer.quote.split())}”{reason}"

    @property
    def justified(self) -> bool:
        return self.answer is not None and bool(self.answer.quote.strip())


def changed(report: TestReport | None, review: Review | None = None) -> tuple[Changed, ...]:
    """All changed promises of a report, with the answers of the review that was shown them."""
    if report is None or report.experiment is None:
        return ()
    answers = {answer.test: answer for answer in review.promises} if review is not None else {}
    found, seen = list[Changed](), set[tuple[str, ...]]()
    for name, promise in labels(report.experiment.promises).items():
        versions = difference(promise)
        found.append(Changed(name, promise, versions if versions not in seen else (_ABOVE,), answers.get(name)))
        seen.add(versions)
    return tuple(found)


def labels(promises: Iterable[Promise]) -> dict[str, Promise]:
    """Each test once, by the name that it is shown and answered with."""
    found: dict[str, Promise] = {}
    for promise in {(promise.file, promise.name): promise for promise in promises}.values():
        name = label_of(promise.name) or "(no name)"
        label, number = name, 1
        while label in found:
            label, number = f"{name} ({number + 1})", number + 1
        found[label] = promise
    return found


def label_of(name: str) -> str:
    """A name on one line, of a bounded length."""
    return one_line(name, PROMISE_NAME_CHARS)


def notes(experiment: Experiment) -> tuple[str, ...]:
    """One line for each thing a person should know that does not decide: which tests name what the change does, too."""
    base, found = experiment.branch or "the base", list[str]()
    if experiment.allowed and (taken := [name for one in experiment.commands for name in one.taken]):
        found.append(f"taken away, as the request allows: {named(taken)}")
    if lost := [name for one in experiment.commands for name in one.lost]:
        found.append(f"tests of {base} that would pass, and are gone: {named(lost)}")
    if steered := dict.fromkeys(path for one in experiment.commands for path in one.steered):
        found.append(f"{base}'s tests start only with the change's own settings: {named(tuple(steered))}")
    if proving := [name for one in experiment.commands for name in one.proving or ()]:
        found.append(f"fail without the change: {named(label_of(name) for name in proving)}")
    return (*found, *(f"not asked: {words}" for words in experiment.unasked))


def difference(promise: Promise) -> tuple[str, ...]:
    """Both versions of its test as lines that begin with `-`, `+` or a blank; empty where they are not known."""
    before, after = promise.before.splitlines(), promise.after.splitlines()
    if before == after:
        return (f"  {_SAME}",) if before else ()
    lines = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]
    told = [f"{line[0]} {line[1:]}" if line[0] in "+- " else "…" for line in lines]
    shown = told[1:] if told[:1] == ["…"] else told
    more = [f"… {len(shown) - EXPERIMENT_LINES} more lines"] if len(shown) > EXPERIMENT_LINES else []
    return (*shown[:EXPERIMENT_LINES], *more)


def named(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    known = list(names)
    more = f" and {len(known) - EXPERIMENT_WORDS} more" if len(known) > EXPERIMENT_WORDS else ""
    return ", ".join(known[:EXPERIMENT_WORDS]) + more
