"""Two commits, read with few git processes and without trusting what is in them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tamper_change import PYTEST, Change, Judge, told
from tamper_files import CALC, PY, PY_TESTS, PYTHON, edited

from perdure.adapters.git.repository import Repository
from perdure.adapters.project.tamper import Files
from perdure.models.policy import TAMPER_HITS_MOST
from tests.untraced import untraced


def test_what_others_added_to_the_base_meanwhile_is_not_missing_here(repository: Path) -> None:
    more = {**PYTHON, PY: PY_TESTS + "\n\ndef test_new():\n    assert parse('5s') == 5\n"}
    change = Change(repository, more, {"calc.py": CALC + "\n"}, common=PYTHON)
    assert told(change.judge(PYTEST)) == []
    tampered = Change(repository, more, {PY: edited(PY_TESTS, "def test_zero", "def zero")}, common=PYTHON)
    assert told(tampered.judge(PYTEST)) == ["gone: test_zero is gone"]


def test_names_texts_and_links_of_both_sides(repository: Path) -> None:
    change = Change(
        repository, {"a": "1\n", "b": b"\xff", "n ü": "x"}, {"a": "2\n", "c": "-> a", "d": "-> /etc/passwd"}
    )
    before, after = Files.pair(Repository(repository), change.base, change.head)
    assert (before.names, after.names) == ({"a", "b", "n ü"}, {"a", "b", "c", "d", "n ü"})
    assert after.changed == {"a", "c", "d"}
    assert (before.text("a"), after.text("a"), after.text("c")) == ("1\n", "2\n", "2\n")
    assert (after.text("b"), after.text("d"), after.text("none"), before.has("c")) == (None, None, None, False)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 5000 + "1" + ")" * 5000,
        "x = " + "-" * 3000 + "1\n",
        "def test_a():\n" + "".join(f"    a{n + 1} = a{n} + a{n}\n" for n in range(60)) + "    assert a60\n",
        "".join(f"def f{n}():\n" + "".join(f"    f{n + 1}()\n" for _ in range(40)) + "\n" for n in range(6))
        + "def f6():\n    assert x\n\ndef test_a():\n    f0()\n",
    ],
    ids=["brackets", "signs", "doubling", "calls of calls"],
)
def test_sources_made_to_choke_on_are_read_within_seconds(hits: Judge, text: str) -> None:
    began = time.monotonic()
    hits({**PYTHON, "tests/test_x.py": "def test_a():\n    assert 1\n"}, {"tests/test_x.py": text})
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("text", ["try{" * 50_000, "test('x'," * 50_000, "`${" * 50_000, "@Test " * 50_000])
@untraced()
def test_braces_that_never_close_take_no_more_than_their_length(hits: Judge, text: str) -> None:
    """In every language that has them, by the process that reads large files, which has a minute."""
    paths = ["a.test.js", "ATest.java", "a_test.go", "build.gradle", "tests/test_a.sh", "Makefile"]
    found = hits(dict.fromkeys(paths, "x\n"), dict.fromkeys(paths, text.encode()), "make test")
    assert not [hit for hit in found if "cannot be judged" in hit]


def test_a_change_of_everything_lists_a_bounded_number_of_hits(look: Judge) -> None:
    tests = "".join(f"def test_{n}():\n    assert run({n})\n\n\n" for n in range(200))
    hits = look({PY: tests}, {PY: "x = 1\n"}).hits
    assert len(hits) == TAMPER_HITS_MOST
    assert hits[-1].title == "and 151 places more"


NAMES = ["test_a", "test_b", "test_c", "test_d", "test_e"]
PLACES = ["tests/test_one.py", "tests/test_two.py", "tests/unit/test_three.py"]


def _files(where: dict[int, tuple[str, str]]) -> dict[str, str]:
    """Test number → (file, name), as files; each test does something of its own."""
    files = dict.fromkeys(PLACES, "from calc import parse\n")
    for number, (place, name) in sorted(where.items()):
        files[place] += f"\n\ndef {name}():\n    value = parse('{number}s')\n    assert value == {number}\n"
    return files


MOVES = st.dictionaries(
    st.integers(0, 4), st.tuples(st.sampled_from(PLACES), st.sampled_from(["alpha", "beta", "gamma"])), min_size=1
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES, lost=st.integers(0, 4))
def test_moves_and_renames_never_give_a_hit_and_a_deletion_always_does(
    repository: Path, moves: dict[int, tuple[str, str]], lost: int
) -> None:
    before = {number: (PLACES[number % 2], name) for number, name in enumerate(NAMES)}
    after = before | {number: (place, f"test_{name}_{number}") for number, (place, name) in moves.items()}
    assert Change(repository, _files(before), _files(after)).judge(PYTEST).hits == ()
    left = {number: found for number, found in after.items() if number != lost}
    (hit,) = Change(repository, _files(before), _files(left)).judge(PYTEST).hits
    assert hit.title.startswith(NAMES[lost])
