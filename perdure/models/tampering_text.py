"""The faults that experiments find in a change: one line for people, and instructions for whoever has to undo them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.models.experiment import Experiment
from perdure.models.report import TestReport

_NAMES_FOR_PEOPLE, _NAMES_IN_PROMPT = 4, 20
_NAME_CHARS = 200


@dataclass(frozen=True)
class TamperingFault:
    """One way in which the tests of a change pass without the product being right.

    title   one line for people
    names   what is at fault: tests, files
    remedy  what has to be done about it
    """

    title: str
    names: tuple[str, ...]
    remedy: str

    @property
    def failures(self) -> tuple[str, ...]:
        """Return the names of the tests and files at fault; where there are none, the title."""
        return self.names or (self.title,)


def find_faults(report: TestReport) -> list[TamperingFault]:
    """Return the faults that the report's experiment shows; empty: none, or no experiment was made.

    Canaries are not named in them: they are others each time, and the faults of two verdicts are compared.
    """
    experiment = report.experiment
    return _faults_of(experiment, report) if experiment is not None and experiment.is_tampered else []


def with_experiment(report: TestReport, experiment: Experiment) -> TestReport:
    """Return a copy of the report with the experiment in it, and the remedies of its faults before the report's
    note."""
    report = report.model_copy(update={"experiment": experiment})
    remedies = [fault.remedy for fault in find_faults(report)]
    return report.model_copy(update={"note": " ".join([*remedies, *([report.note] if report.note else [])])})


def _faults_of(experiment: Experiment, report: TestReport) -> list[TamperingFault]:
    """Return a fault for each kind of tampering: tests of the base removed or skipped while they fail, tests that fail
    where the test side is read-only, canaries not reported by a command, and files of the test side written by tests.
    """
    base, commit = experiment.branch or "the base", experiment.base[:12]
    removed, written_files = experiment.removed_tests, _unique_names(command.written for command in experiment.commands)
    contradicted = _unique_names(command.contradicted for command in experiment.commands)
    faults = []
    if removed:
        removal = _removal_text(removed, report)
        title = (
            f"{_failing_tests_text(removed, base)} and {'is' if len(removed) == 1 else 'are'} "
            f"{removal}: {join_short_names(removed)}"
        )
        remedy = (
            f"Tests of {base} fail on the change, and are {removal} in it: "
            f"{_join_for_prompt(removed)}. Put them back as they are "
            f"on {base} (`git show {commit}:FILE`) and make the product pass them."
        )
        faults.append(TamperingFault(title, removed, remedy))
    if contradicted:
        title = (
            f"{_failing_tests_text(contradicted, base)} where nobody can write to the tests: "
            f"{join_short_names(contradicted)}"
        )
        remedy = (
            f"These tests of {base} fail on the change where tests and their settings are read-only, as they are in "
            f"every verdict: {_join_for_prompt(contradicted)}. Make the product pass them as they are on {base}."
        )
        faults.append(TamperingFault(title, contradicted, remedy))
    for command in experiment.commands:
        if command.missed:
            number = len(command.missed)
            title = f"{command.name}: {'a canary was' if number == 1 else f'{number} canaries were'} not reported"
            remedy = (
                f"Tests that always fail were put among those of `{command.command}`, and were not "
                "reported as failing. "
                "Something in the change hides failures: a patched assertion, hook or runner, a rewritten report, "
                "an early exit. Find it and take it out."
            )
            faults.append(TamperingFault(title, (), remedy))
    if written_files:
        title = f"files of the test side are written while the tests run: {join_short_names(written_files)}"
        remedy = (
            "Nothing may write to tests and their data while they run, and the change does: "
            f"{_join_for_prompt(written_files)}."
        )
        faults.append(TamperingFault(title, written_files, remedy))
    return faults


def join_short_names(names: Sequence[str]) -> str:
    """Return the first 4 distinct names joined by commas, each without what stands before `::`, with "…" where there
    are more."""
    short = list(dict.fromkeys(name.rsplit("::", 1)[-1][:_NAME_CHARS] for name in names))
    return ", ".join(short[:_NAMES_FOR_PEOPLE]) + (", …" if len(short) > _NAMES_FOR_PEOPLE else "")


def _join_for_prompt(names: Sequence[str]) -> str:
    """Return the first 20 names joined by commas, each cut to 200 characters, and the number of the others: for a
    prompt."""
    more = f" and {len(names) - _NAMES_IN_PROMPT} more" if len(names) > _NAMES_IN_PROMPT else ""
    return ", ".join(name[:_NAME_CHARS] for name in names[:_NAMES_IN_PROMPT]) + more


def _failing_tests_text(names: Sequence[str], base: str) -> str:
    """Return the beginning of a sentence such as `2 tests of main fail`."""
    return f"{len(names)} test{'s' if len(names) != 1 else ''} of {base} fail{'s' if len(names) == 1 else ''}"


def _removal_text(removed: Sequence[str], report: TestReport) -> str:
    """Return whether the tests are "gone" from the report, "skipped" in it, or "gone or skipped"."""
    reported = {case.name for result in report.commands for case in result.cases}
    skipped = [name for name in removed if name in reported]
    return "gone" if not skipped else "skipped" if len(skipped) == len(removed) else "gone or skipped"


def _unique_names(name_lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return the names of all lists, each once, in order."""
    return tuple(dict.fromkeys(name for names in name_lists for name in names))
