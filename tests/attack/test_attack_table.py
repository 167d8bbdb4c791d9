"""The attack table: a short part of it, and what holds for the whole. `make attack` runs all of it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.cases import CASES
from tests.attack.table import GAP, HELD, WORKS, Case, Ground, Seen, ground, one_line, row, tried


@pytest.fixture(scope="module")
def at() -> Iterator[Ground]:
    with ground() as place:
        yield place


@pytest.mark.parametrize("case", [case for case in CASES if case.short], ids=lambda case: case.name)
def test_an_attack_of_the_short_part_does_not_succeed(case: Case, at: Ground) -> None:
    seen = tried(case, at)
    assert seen.verdict == HELD, seen.words


def test_what_has_to_work_is_as_much_as_what_must_not_and_both_numbers_are_published() -> None:
    benign = sum(case.benign for case in CASES)
    assert benign >= len(CASES) - benign
    security = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    assert f"{len(CASES) - benign} attacks and {benign} benign cases" in security


HONEST = frozenset({
    "reads its own files", "serves and asks on its own loopback", "forks workers", "takes 200 MB of memory",
    "the checkout's configuration has large files in LFS", "a reply in pieces of seven bytes",
})  # fmt: skip


@pytest.mark.parametrize("name", sorted(HONEST))
def test_an_honest_thing_of_the_short_part_works(name: str, at: Ground) -> None:
    case = next(case for case in CASES if name in case.name and case.benign)
    seen = tried(case, at)
    assert seen.verdict in (WORKS, GAP), seen.words


def test_the_table_has_eighty_cases_each_with_a_name_of_its_own() -> None:
    assert len([case for case in CASES if case.group != "grade reduced"]) >= 80
    assert [name for name, times in Counter((c.group, c.name) for c in CASES).items() if times > 1] == []


def test_a_row_is_one_line_whatever_was_said(at: Ground) -> None:
    case = Case("g", "n", "e", lambda _: Seen(HELD, "a\nb\x1b[2J" + "x" * 1000))
    assert "\n" not in row(case, tried(case, at))
    assert len(one_line("x" * 1000)) == 110


def test_a_case_that_breaks_is_missed_and_not_held(at: Ground) -> None:
    def broken(_: Ground) -> Seen:
        raise OSError("no such luck")

    assert tried(Case("g", "n", "e", broken), at).verdict == "MISSED"


def test_a_word_that_no_case_has_is_an_error_and_not_an_empty_success() -> None:
    wrong = [sys.executable, "-m", "tests.attack", "--only", "nothing-like-it"]
    said = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == "make attack: no case has 'nothing-like-it' in its group or name\n"
