"""The faults experiments find in a change: in one line for people, and in words for whoever has to undo it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.models.experiment import Experiment
from perdure.models.report import TestReport

_NAMED, _LISTED = 4, 20
_NAME_CHARS = 200


@dataclass(frozen=True)
class Trick:
    """One way in which tests pass without the product being right.

    title  one line for people
    names  what is at fault: tests, files
    undo   what has to be done about it
    """

    title: str
    names: tuple[str, ...]
    undo: str

    @property
    def failures(self) -> tuple[str, ...]:
        return self.names or (self.title,)


def faults(report: TestReport) -> list[Trick]:
    """The names of canaries are in none of them: they are others each time, and two verdicts are compared."""
    found = report.experiment
    return _faults(found, report) if found is not None and found.tampered else []


def tried(report: TestReport, found: Experiment) -> TestReport:
    """The report with the experiments in it, and with what to undo in its note."""
    report = report.model_copy(update={"experiment": found})
    undo = [fault.undo for fault in faults(report)]
    return report.model_copy(update={"note": " ".join([*undo, *([report.note] if report.note else [])])})


def _faults(found: Experiment, report: TestReport) -> list[Trick]:
    base, commit = found.branch or "the base", found.base[:12]
    taken, written = found.taken, _each(one.written for one in found.commands)
    contradicted = _each(one.contradicted for one in found.commands)
    faults = []
    if taken:
        how = _how(taken, report)
        title = f"{_tests(taken, base)} and {'is' if len(taken) == 1 else 'are'} {how}: {shown(taken)}"
        undo = (
            f"Tests of {base} fail on the change, and are {how} in it: {_listed(taken)}. Put them back as they are "
            f"on {base} (`git show {commit}:FILE`) and make the product pass them."
        )
        faults.append(Trick(title, taken, undo))
    if contradicted:
        title = f"{_tests(contradicted, base)} where nobody can write to the tests: {shown(contradicted)}"
        undo = (
            f"These tests of {base} fail on the change where tests and their settings are read-only, as they are in "
            f"every verdict: {_listed(contradicted)}. Make the product pass them as they are on {base}."
        )
        faults.append(Trick(title, contradicted, undo))
    for one in found.commands:
        if one.missed:
            number = len(one.missed)
            title = f"{one.name}: {'a canary was' if number == 1 else f'{number} canaries were'} not reported"
            undo = (
                f"Tests that always fail were put among those of `{one.command}`, and were not reported as failing. "
                "Something in the change hides failures: a patched assertion, hook or runner, a rewritten report, "
                "an early exit. Find it and take it out."
            )
            faults.append(Trick(title, (), undo))
    if written:
        title = f"files of the test side are written while the tests run: {shown(written)}"
        undo = f"Nothing may write to tests and their data while they run, and the change does: {_listed(written)}."
        faults.append(Trick(title, written, undo))
    return faults


def shown(names: Sequence[str]) -> str:
    """The first few, without what stands before `::`."""
    short = list(dict.fromkeys(name.rsplit("::", 1)[-1][:_NAME_CHARS] for name in names))
    return ", ".join(short[:_NAMED]) + (", …" if len(short) > _NAMED else "")


def _listed(names: Sequence[str]) -> str:
    """For a prompt: many, but none that fills it."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(name[:_NAME_CHARS] for name in names[:_LISTED]) + more


def _tests(names: Sequence[str], base: str) -> str:
    return f"{len(names)} test{'s' if len(names) != 1 else ''} of {base} fail{'s' if len(names) == 1 else ''}"


def _how(taken: Sequence[str], report: TestReport) -> str:
    here = {case.name for result in report.commands for case in result.cases}
    skipped = [name for name in taken if name in here]
    return "gone" if not skipped else "skipped" if len(skipped) == len(taken) else "gone or skipped"


def _each(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in lists for name in names))
