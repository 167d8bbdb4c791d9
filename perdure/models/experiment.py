"""Judged by experiment: the base's tests on the change, tests that must fail, the change's tests on the base."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from perdure.models.base import PublishedModel


class CanaryOutcome(StrEnum):
    """Of canaries, tests that always fail: each was reported red; one was not; nobody could be asked."""

    CAUGHT = "caught"
    MISSED = "missed"
    NOT_ASKED = "not_asked"


class Promise(PublishedModel):
    """A test of the base that fails on the change, where a test of its name passes with the change's own tests.

    before, after  the test on the base and on the change, cut; equal ones: only what it uses has changed
    """

    name: str
    file: str = ""
    message: str = ""
    before: str = ""
    after: str = ""


class CommandExperiment(PublishedModel):
    """One test command in all experiments.

    base_tests, base_passed  tests that were green on the base, and of these green on the change (PASS_TO_PASS); None:
                             not asked, the change leaves the test side alone, or the runner knows only exit codes
    promises  tests of the base that fail on the change, and passed there as the change has them
    taken     tests of the base that fail on the change, and are gone from it or skipped in it
    lost      tests of the base that would pass on the change, and are gone from it or skipped in it
    contradicted  tests of the base that fail on the change, in versions that the change has not made green either:
                  they were while somebody could write to the test side
    canaries  see Caught; missed: those that were not reported red, though on the base they were
    proving   tests of the change that pass on it and not on the base (FAIL_TO_PASS); None: not asked
    written   files of the test side that this command wrote on the change and not on the base
    steered   shared settings of the change without which the base's tests do not even start on it
    unasked   for people: what could not be asked, and why
    """

    name: str
    command: str
    base_tests: int | None = None
    base_passed: int | None = None
    promises: tuple[Promise, ...] = ()
    taken: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    canaries: CanaryOutcome = CanaryOutcome.NOT_ASKED
    missed: tuple[str, ...] = ()
    proving: tuple[str, ...] | None = None
    written: tuple[str, ...] = ()
    steered: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()


class Experiment(PublishedModel):
    """The findings of running the change from `base` to `change`, beside its own green tests.

    branch   the name of the base, for people
    touched  paths of the test side that differ
    allowed  the request itself is about tests: tests of the base may be taken away
    removes  the request asks for something to be removed: tests of the base that went with it are changed promises,
             for the reviewer to justify with its words
    skipped  why nothing was tried at all; empty: it was
    """

    base: str
    change: str
    branch: str = ""
    touched: tuple[str, ...] = ()
    allowed: bool = False
    removes: bool = False
    skipped: str = ""
    commands: tuple[CommandExperiment, ...] = ()

    @property
    def is_tampered(self) -> bool:
        """Return whether the tests pass without the product doing what the base's tests demand: a canary was missed,
        tests wrote to the test side, tests fail once it is read-only, or failing tests were removed without being asked
        for."""
        has_faults = any(command.missed or command.written or command.contradicted for command in self.commands)
        return has_faults or bool(self.removed_tests)

    @property
    def removed_tests(self) -> tuple[str, ...]:
        """Return tests of the base that fail on the change and were removed or skipped in it, for all commands.

        Empty where the request is about tests or asks for something to be removed.
        """
        return (
            () if self.allowed or self.removes else tuple(name for command in self.commands for name in command.taken)
        )

    @property
    def changed_promises(self) -> tuple[Promise, ...]:
        """Return all changed promises: base tests that fail on the change while its own version of them passes.

        Where the request asks for something to be removed, the tests that went with it are among them.
        """
        promises = [promise for command in self.commands for promise in command.promises]
        if self.removes and not self.allowed:
            promises += [Promise(name=name) for command in self.commands for name in command.taken]
        return tuple(promises)

    @property
    def summary_line(self) -> str:
        """Return `455/455 of main's own tests pass on the change · 3 new tests fail without it · canaries caught`.

        A part that no command has facts for is left out; empty: there is none.
        """
        with_base_tests = [command for command in self.commands if command.base_tests is not None]
        parts = []
        if with_base_tests:
            passed, total = (
                sum(command.base_passed or 0 for command in with_base_tests),
                sum(command.base_tests or 0 for command in with_base_tests),
            )
            parts.append(f"{passed}/{total} of {self.branch or 'the base'}'s own tests pass on the change")
        proving = [command.proving for command in self.commands if command.proving is not None]
        if proving:
            number = sum(map(len, proving))
            parts.append(f"{number or 'no'} new test{'s fail' if number != 1 else ' fails'} without it")
        if canaries_text := _canaries_text(command.canaries for command in self.commands):
            parts.append(canaries_text)
        return " · ".join(parts)

    @property
    def unasked_reasons(self) -> tuple[str, ...]:
        """Return for people what could not be tried and why, each reason once.

        The command's name stands before a reason where there are several commands; the reason why all was skipped comes
        first.
        """
        is_single = len(self.commands) == 1
        reasons = [
            reason if is_single else f"{command.name}: {reason}"
            for command in self.commands
            for reason in command.unasked
        ]
        return (self.skipped, *reasons) if self.skipped else tuple(dict.fromkeys(reasons))


def _canaries_text(outcomes: Iterable[CanaryOutcome]) -> str:
    """Return "canaries missed" where one was, "canaries caught" where some were tried, else an empty string."""
    outcomes = set(outcomes)
    if CanaryOutcome.MISSED in outcomes:
        return "canaries missed"
    return "canaries caught" if CanaryOutcome.CAUGHT in outcomes else ""
