"""What the tests of a commit are, in words that hold for every language."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from perdure.models.policy import TAMPER_EVIDENCE_CHARS, TAMPER_FILE_BYTES
from perdure.models.report import ChangedTest, Hit, Tampering


@dataclass(frozen=True)
class Tampered:
    """Where a change makes the tests say less, and which tests say something else. `base`: the commit it was compared
    with, where what is gone can be read."""

    hits: tuple[Hit, ...] = ()
    changed_tests: tuple[ChangedTest, ...] = ()
    base: str = ""


@dataclass(frozen=True)
class Test:
    """One test as its source has it.

    name     within its file: `TestC::test_zero`, `describe > it`
    leaf     what it is called itself
    bodies   one a case (a literal parameter row each): equal for two cases that do the same, whatever they are called
    checks   what it asserts where that can be reached and can fail, helpers included, in a normal form
    skips    what keeps it from running, or makes its failure count as expected
    stops    returns, yields and the like: what may end it before it has checked anything
    blank    whether it does nothing at all
    """

    __test__ = False

    file: str
    name: str
    leaf: str
    line: int
    text: str = ""
    bodies: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    blank: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.file, self.name


@dataclass(frozen=True)
class Odd:
    """A line that has no business in tests: what it breaks, and its text."""

    rule: Tampering
    text: str
    line: int
    why: str


@dataclass(frozen=True)
class Inventory:
    """The tests of one file. `broken`: why it cannot be read, empty when it can."""

    tests: tuple[Test, ...] = ()
    odd: tuple[Odd, ...] = ()
    broken: str = ""
    fixtures: dict[str, tuple[int, str]] = field(default_factory=dict)


CHARS_MOST = 8 * TAMPER_FILE_BYTES
"""Of all tests of a file together, those inside others counted again: what is nested deeper is not read."""


def hit(rule: Tampering, title: str, file: str = "", line: int | None = None, *evidence: str) -> Hit:
    """A hit with its evidence cut to size, as it stands in the file: whoever shows it takes out what does harm there.
    Its title becomes part of messages, and has nothing in it that is not to be seen."""
    told = "\n".join(part.rstrip() for part in evidence if part.strip())
    cut = told if len(told) <= TAMPER_EVIDENCE_CHARS else told[: TAMPER_EVIDENCE_CHARS - 2].rstrip() + " …"
    return Hit(rule=rule, title=_seen(title)[:200], file=file, line=line, evidence=cut)


def _seen(text: str) -> str:
    return "".join(character for character in " ".join(text.split()) if character.isprintable())


def was(text: str) -> str:
    return "\n".join(f"- {line}" for line in text.splitlines() if line.strip())


def is_now(text: str) -> str:
    return "\n".join(f"+ {line}" for line in text.splitlines() if line.strip())


def only_new(now: Iterable[str], before: Iterable[str]) -> list[str]:
    """What is there more often than before, in its order."""
    left: dict[str, int] = {}
    for item in before:
        left[item] = left.get(item, 0) + 1
    found = []
    for item in now:
        if left.get(item, 0):
            left[item] -= 1
        else:
            found.append(item)
    return found
