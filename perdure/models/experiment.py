"""Judged by experiment: the base's tests on the change, tests that must fail, the change's tests on the base."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from perdure.models.base import Published


class Caught(StrEnum):
    """Of canaries, tests that always fail: each was reported red; one was not; nobody could be asked."""

    CAUGHT = "caught"
    MISSED = "missed"
    NOT_ASKED = "not_asked"


class Promise(Published):
    """A test of the base that fails on the change, where a test of its name passes with the change's own tests.

    before, after  the test on the base and on the change, cut; equal ones: only what it uses has changed
    """

    name: str
    file: str = ""
    message: str = ""
    before: str = ""
    after: str = ""


class Tried(Published):
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
    canaries: Caught = Caught.NOT_ASKED
    missed: tuple[str, ...] = ()
    proving: tuple[str, ...] | None = None
    written: tuple[str, ...] = ()
    steered: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()


class Experiment(Published):
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
    commands: tuple[Tried, ...] = ()

    @property
    def tampered(self) -> bool:
        """True where the tests pass without the product being right in the way the base's tests demand."""
        bent = any(one.missed or one.written or one.contradicted for one in self.commands)
        return bent or bool(self.taken)

    @property
    def taken(self) -> tuple[str, ...]:
        """Tests of the base that were taken away for failing, where nobody had asked for that."""
        return () if self.allowed or self.removes else tuple(name for one in self.commands for name in one.taken)

    @property
    def promises(self) -> tuple[Promise, ...]:
        """All changed promises, those that went with a thing the request wanted removed among them."""
        kept = [promise for one in self.commands for promise in one.promises]
        if self.removes and not self.allowed:
            kept += [Promise(name=name) for one in self.commands for name in one.taken]
        return tuple(kept)

    @property
    def line(self) -> str:
        """`455/455 of main's own tests pass on the change · 3 new tests fail without it · canaries caught`."""
        asked = [one for one in self.commands if one.base_tests is not None]
        parts = []
        if asked:
            green, of = sum(one.base_passed or 0 for one in asked), sum(one.base_tests or 0 for one in asked)
            parts.append(f"{green}/{of} of {self.branch or 'the base'}'s own tests pass on the change")
        proving = [one.proving for one in self.commands if one.proving is not None]
        if proving:
            number = sum(map(len, proving))
            parts.append(f"{number or 'no'} new test{'s fail' if number != 1 else ' fails'} without it")
        if told := _canaries(one.canaries for one in self.commands):
            parts.append(told)
        return " · ".join(parts)

    @property
    def unasked(self) -> tuple[str, ...]:
        """For people: what could not be asked, each reason once, with the command's name where there are several."""
        one = len(self.commands) == 1
        said = [words if one else f"{c.name}: {words}" for c in self.commands for words in c.unasked]
        return (self.skipped, *said) if self.skipped else tuple(dict.fromkeys(said))


def _canaries(found: Iterable[Caught]) -> str:
    found = set(found)
    if Caught.MISSED in found:
        return "canaries missed"
    return "canaries caught" if Caught.CAUGHT in found else ""
