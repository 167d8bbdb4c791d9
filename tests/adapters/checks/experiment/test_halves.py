"""A suite that takes its time, asked in two halves beside each other; and where that does not do."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from experiment_fixtures import Files, Trials
from trick_bases import CALC

from perdure.adapters.checks.experiment.joined import split_canaries
from perdure.adapters.checks.runners.base import Canaries
from perdure.adapters.checks.runners.go import Go
from perdure.adapters.checks.runners.pytest import Pytest
from perdure.models.checks.report import CanaryOutcome, CommandResult, Experiment, TestCase, TestReport

PYTEST = f"{sys.executable} -m pytest -p no:cacheprovider"
NAMES = ("a", "b", "c", "d")
ONE = "from calc import add\n\n\ndef test_{0}():\n    assert add(1, 1) == 2\n"
BASE: Files = {"calc.py": CALC} | {f"tests/test_{name}.py": ONE.format(name) for name in NAMES}
HONEST: Files = {
    "calc.py": f"{CALC}\n\ndef half(a):\n    return a / 2\n",
    "tests/test_half.py": "from calc import half\n\n\ndef test_half():\n    assert half(4) == 2\n",
}

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: nothing is asked in halves")


def known(*names: str, each: float = 1.0, command: float = 0.0) -> TestReport:
    """The base's own run: one test a file, each of which took so many seconds, as did the command."""
    files = [f"tests/test_{name}.py" for name in names]
    cases = tuple(TestCase(name=f"{p}::{p[6:-3]}", file=p, outcome="passed", duration_s=each) for p in files)
    took = command or sum(case.duration_s for case in cases)
    result = CommandResult(name="t0", command=PYTEST, verdict="passed", exit_code=0, duration_s=took, cases=cases)
    return TestReport(commit="", tree="", commands=(result,))


def runs(root: Path) -> list[str]:
    """The runs there were, in the order of their names."""
    found = (re.match(r"logs-1-(\w+)-\d", path.name) for path in (root / "room").glob("logs-*"))
    return sorted(match[1] for match in found if match is not None and match[1] in ("b", "bc", "c"))


def promised(found: Experiment) -> set[str]:
    return {promise.name.partition("::")[2] for promise in found.commands[0].promises}


async def test_both_halves_together_say_what_the_whole_says(tried: Trials, tmp_path: Path) -> None:
    found = await tried(BASE, HONEST, PYTEST, known=known(*NAMES))
    (one,) = found.commands
    assert runs(tmp_path) == ["bc", "bc"]
    assert (one.base_tests, one.base_passed, one.promises, one.unasked) == (4, 4, (), ())
    assert one.canaries is CanaryOutcome.CAUGHT
    assert one.proving == ("tests/test_half.py::test_half",)
    asked = [
        re.findall(r"test_(\w)\.py", log.read_text()) for log in (tmp_path / "room").glob("logs-*-bc-*/test-*.log")
    ]
    assert sorted(sorted(set(names)) for names in asked) in ([["a", "c"], ["b", "d"]], [["a", "d"], ["b", "c"]])


async def test_a_test_file_that_another_one_uses_is_there_in_both_halves(tried: Trials, tmp_path: Path) -> None:
    uses = "from test_a import shared\nfrom calc import add\n\n\ndef test_d():\n    assert add(1, 1) == shared()\n"
    before = {**BASE, "tests/test_a.py": f"def shared():\n    return 2\n\n\n{ONE.format('a')}", "tests/test_d.py": uses}
    found = await tried(before, HONEST, PYTEST, known=known(*NAMES))
    assert runs(tmp_path) == ["bc", "bc"]
    assert (found.commands[0].base_passed, found.is_tampered) == (4, False)


async def test_tests_that_need_those_of_another_file_are_asked_as_a_whole(tried: Trials, tmp_path: Path) -> None:
    sets = "import calc\n\n\ndef test_a():\n    calc.seen = 1\n"
    needs = "import calc\n\n\ndef test_{0}():\n    assert calc.seen == 1\n"
    needing = {f"tests/test_{name}.py": needs.format(name) for name in NAMES[1:]}
    found = await tried({**BASE, "tests/test_a.py": sets, **needing}, HONEST, PYTEST, known=known(*NAMES))
    (one,) = found.commands
    assert runs(tmp_path) == ["b", "bc", "bc", "c"]
    assert (one.base_tests, one.base_passed, one.promises) == (4, 4, ())
    assert one.canaries is CanaryOutcome.CAUGHT
    assert not found.is_tampered


@pytest.mark.parametrize(
    "name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:3]), NAMES[3]]
)
async def test_a_broken_product_is_seen_whichever_half_would_tell(tried: Trials, name: str) -> None:
    bent = ONE.format(name).replace("add(1, 1) == 2", "add(1, 1) is not None")
    only = {f"tests/test_{one}.py": f"def test_{one}():\n    assert True\n" for one in NAMES if one != name}
    wrong = {"calc.py": CALC.replace("a + b", "a - b"), f"tests/test_{name}.py": bent}
    found = await tried({**BASE, **only}, wrong, PYTEST, known=known(*NAMES))
    assert promised(found) == {f"test_{name}"}


LEAVES = {
    "calc.py": f"kept = []\n\n\ndef keep(one):\n    kept.append(one)\n\n\n{CALC}",
    "tests/test_a.py": "from calc import keep\n\n\ndef test_a():\n    keep(1)\n",
    "tests/test_d.py": "from calc import keep, kept\n\n\ndef test_d():\n    keep(1)\n    assert 1 in kept\n",
}
"""One test leaves behind a thing for one of another file; the change minds it."""
MINDS = LEAVES["calc.py"].replace("    kept", "    if one in kept:\n        raise ValueError(one)\n    kept")
BENT = LEAVES["tests/test_d.py"].replace("    keep(1)", "    kept.clear()\n    keep(1)")
FORGETS = "import pytest\nimport calc\n\n\n@pytest.fixture(autouse=True)\ndef forget():\n    calc.kept.clear()\n"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"tests/test_d.py": BENT}, id="the later test"),
        pytest.param({"tests/test_a.py": "def test_a():\n    pass\n"}, id="the earlier test"),
        pytest.param({"tests/conftest.py": FORGETS}, id="what all tests share"),
    ],
)
async def test_what_a_test_leaves_behind_is_seen_by_one_of_the_other_half(tried: Trials, change: Files) -> None:
    before = {**BASE, **LEAVES}
    found = await tried(before, {"calc.py": MINDS, **change}, PYTEST, known=known(*NAMES))
    assert promised(found) == {"test_d"}


CANARIES = Canaries(
    files={f"tests/test_{name}.py": ONE.format(name) for name in NAMES},
    names={f"canary_{name}": f"tests/test_{name}.py" for name in NAMES},
)


def test_what_takes_longest_is_in_different_halves() -> None:
    report = known(*NAMES)
    (told,) = report.commands
    slow = [case.model_copy(update={"duration_s": 9.0}) if "test_d" in case.name else case for case in told.cases]
    one, other = split_canaries(CANARIES, Pytest(), told.model_copy(update={"cases": tuple(slow), "duration_s": 12.0}))
    assert {*one.names} == {"canary_a", "canary_b", "canary_c"}
    assert {*other.names} == {"canary_d"}
    assert "__test__ = False" in one.files["tests/test_d.py"]
    assert "__test__" not in other.files["tests/test_d.py"]


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(known(*NAMES, each=0.3), id="tests that take a second"),
        pytest.param(known(*NAMES, command=9.0), id="a command that does something else most of the time"),
        pytest.param(known(*NAMES, command=2.0), id="tests that run at the same time already"),
        pytest.param(None, id="nothing known of the base"),
    ],
)
def test_one_run_is_enough_for(report: TestReport | None) -> None:
    assert split_canaries(CANARIES, Pytest(), report.commands[0] if report else None) == (CANARIES,)


def test_a_file_that_the_change_has_otherwise_is_asked_in_both_halves() -> None:
    one, other = split_canaries(CANARIES, Pytest(), known(*NAMES).commands[0], {"tests/test_b.py"})
    assert {*one.names} & {*other.names} == {"canary_b"}


@pytest.mark.parametrize("altered", [None, {"tests/test_a.py", "tests/test_b.py", "tests/test_c.py"}])
def test_one_run_is_enough_where_most_files_would_be_in_both(altered: set[str] | None) -> None:
    assert split_canaries(CANARIES, Pytest(), known(*NAMES).commands[0], altered) == (CANARIES,)


def test_a_runner_that_cannot_leave_a_file_out_is_asked_once() -> None:
    assert split_canaries(CANARIES, Go(), known(*NAMES).commands[0]) == (CANARIES,)
