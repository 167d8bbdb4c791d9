"""The experiments on small changes: who is caught, by which run, and who is not."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from experiment_fixtures import Trials

from perdure.models.checks.report import CanaryOutcome
from perdure.models.config.repository import TestCommand
from tests.killed_commands import first_process, killed_once

PYTEST = f"{sys.executable} -m pytest -q"
UNITTEST = f"{sys.executable} -m unittest discover -s tests"

CALC = "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return 2 * a\n"
WRONG = CALC.replace("a + b", "a - b")
PLAIN = """\
    from calc import add, double

    def test_add():
        assert add(1, 2) == 3

    def test_double():
        assert double(2) == 4
    """
CLASSES = """\
    import unittest
    from calc import add, double

    class Calc(unittest.TestCase):
        def test_add(self):
            self.assertEqual(add(1, 2), 3)

        def test_double(self):
            self.assertEqual(double(2), 4)
    """
FOR_PYTEST = {"calc.py": CALC, "tests/test_calc.py": PLAIN, "conftest.py": "\n"}
FOR_UNITTEST = {"calc.py": CALC, "tests/test_calc.py": CLASSES}


async def test_an_honest_feature_with_its_test_is_green_in_all_experiments(tried: Trials) -> None:
    after = {
        "calc.py": CALC + "\n\ndef half(a):\n    return a / 2\n",
        "tests/test_half.py": "from calc import half\n\ndef test_half():\n    assert half(4) == 2\n",
    }
    found = await tried(FOR_PYTEST, after, PYTEST)
    (one,) = found.commands
    assert not found.is_tampered
    assert (one.base_tests, one.base_passed, one.promises, one.unasked) == (2, 2, (), ())
    assert (one.proving, one.unbuilt) == (("tests/test_half.py::test_half",), ())
    assert one.canaries is CanaryOutcome.CAUGHT
    assert found.summary_line == (
        "2/2 of the base's own tests pass on the change · 1 new test fails without it · canaries caught"
    )


@pytest.mark.timeout(120)
async def test_a_run_that_is_killed_from_outside_shows_nothing_and_is_made_again(tried: Trials) -> None:
    """Of the change's tests on the base; the others do not sleep."""
    half = CALC + "\n\ndef half(a):\n    return a / 2\n"
    slow = "import os\n'half' in open('calc.py').read() or os.system('sleep 3')\n"
    test = slow + "from calc import half\n\ndef test_half():\n    assert half(4) == 2\n"
    async with killed_once(("sleep", "3"), first_process):
        found = await tried(FOR_PYTEST, {"calc.py": half, "tests/test_half.py": test}, PYTEST)
    (trial,) = found.commands
    assert not found.is_tampered
    assert (trial.proving, trial.unbuilt, trial.unasked) == (("tests/test_half.py::test_half",), (), ())
    assert (trial.killed_runs, trial.written, trial.canaries) == (1, (), CanaryOutcome.CAUGHT)


KEPT = f"kept = []\n\n\ndef keep(one):\n    kept.append(one)\n\n\n{CALC}"
LEAVES = {
    "calc.py": KEPT,
    "tests/test_a.py": "from calc import keep\n\n\ndef test_a():\n    keep(1)\n",
    "tests/test_b.py": "from calc import keep, kept\n\n\ndef test_b():\n    keep(1)\n    assert 1 in kept\n",
}
"""One test leaves behind a thing for one of another file; the change minds it."""
MINDS = KEPT.replace("    kept", "    if one in kept:\n        raise ValueError(one)\n    kept")
FORGETS = "import pytest\nimport calc\n\n\n@pytest.fixture(autouse=True)\ndef forget():\n    calc.kept.clear()\n"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            {"tests/test_b.py": LEAVES["tests/test_b.py"].replace("    keep(1)", "    kept.clear()\n    keep(1)")},
            id="the later test",
        ),
        pytest.param({"tests/test_a.py": "def test_a():\n    pass\n"}, id="the earlier test"),
        pytest.param({"tests/conftest.py": FORGETS}, id="what all tests share"),
    ],
)
async def test_what_a_test_leaves_behind_is_seen_by_one_of_another_file(tried: Trials, change: dict[str, str]) -> None:
    found = await tried(LEAVES, {"calc.py": MINDS, **change}, PYTEST)
    assert [promise.name for promise in found.commands[0].promises] == ["tests/test_b.py::test_b"]


async def test_a_changed_promise_is_named_with_both_versions_and_is_not_called_tampered(tried: Trials) -> None:
    after = {"calc.py": WRONG, "tests/test_calc.py": CLASSES.replace(", 3)", ", -1)")}
    found = await tried(FOR_UNITTEST, after, UNITTEST)
    (one,) = found.commands
    (promise,) = one.promises
    assert (promise.name, one.base_passed) == ("tests/test_calc.py::Calc::test_add", 1)
    assert ", 3)" in promise.before
    assert ", -1)" in promise.after
    assert "-1 != 3" in promise.message
    assert not found.is_tampered
    assert one.proving == ("tests/test_calc.py::Calc::test_add",)


async def test_a_suite_made_to_fail_says_no_more_of_each_test_than_its_line(tried: Trials, tmp_path: Path) -> None:
    """A traceback for each took three times as long as the suite."""
    await tried(FOR_PYTEST, {"calc.py": f"{CALC}\n"}, f'PYTEST_ADDOPTS="$PYTEST_ADDOPTS -v" {PYTEST}')
    (log,) = (tmp_path / "room").glob("logs-*-c-*/test-*.log")
    said = log.read_text()
    assert "test_add" in said
    assert "def failing" not in said


@pytest.mark.parametrize("steered", [False, True])
async def test_where_the_base_has_no_tests_the_canaries_stand_in_the_change_s_own(tried: Trials, steered: bool) -> None:
    steer = "import unittest\nunittest.TestCase.assertEqual = lambda *given: None\n" if steered else ""
    after = {"calc.py": steer + CALC, "tests/test_calc.py": CLASSES}
    found = await tried({"calc.py": WRONG}, after, UNITTEST)
    (one,) = found.commands
    assert (found.is_tampered, one.canaries) == (steered, CanaryOutcome.MISSED if steered else CanaryOutcome.CAUGHT)
    assert one.base_tests is None


async def test_code_that_makes_its_runner_say_that_all_is_well_is_caught_by_the_canaries(tried: Trials) -> None:
    steer = "import unittest\nunittest.TestCase.assertEqual = lambda *given: None\n"
    found = await tried(FOR_UNITTEST, {"calc.py": steer + WRONG}, UNITTEST)
    (one,) = found.commands
    assert (one.base_tests, one.canaries) == (2, CanaryOutcome.MISSED)
    assert len(one.missed) >= 2
    assert found.is_tampered


@pytest.mark.parametrize("command", ["true", f"{PYTEST} -k add"])
async def test_a_command_that_shows_no_canary_on_the_base_either_is_not_asked(tried: Trials, command: str) -> None:
    found = await tried(FOR_PYTEST, {"calc.py": CALC + "\n"}, command)
    (one,) = found.commands
    assert (one.canaries, found.is_tampered) == (CanaryOutcome.NOT_ASKED, False)
    assert "on the base neither" in " ".join(one.unasked)


async def test_a_command_that_only_says_whether_all_is_well_is_one_promise(tried: Trials) -> None:
    recipe = f"test:\n\t{UNITTEST}\n"
    before = {**FOR_UNITTEST, "Makefile": recipe}
    hidden = await tried(before, {"calc.py": WRONG, "Makefile": recipe.replace("\t", "\t-")}, "make test")
    (promise,) = hidden.changed_promises
    assert promise.name == "make test"
    assert "-1 != 3" in promise.message
    assert not hidden.is_tampered
    honest = await tried(before, {"calc.py": f"{CALC}\n", "Makefile": f"{recipe}\ntest: more\nmore:\n"}, "make test")
    assert honest.changed_promises == ()


async def test_of_a_file_that_does_not_load_what_is_left_of_it_is_asked(tried: Trials) -> None:
    zero = "\n\ndef test_zero():\n    assert add(0, 0) == 0\n"
    before = {**FOR_PYTEST, "tests/test_calc.py": textwrap.dedent(PLAIN) + zero}
    tests = f"from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == -1\n{zero}"
    found = await tried(
        before, {"calc.py": WRONG.partition("\n\n\ndef double")[0], "tests/test_calc.py": tests}, PYTEST
    )
    (one,) = found.commands
    assert [promise.name for promise in one.promises] == ["tests/test_calc.py::test_add"]
    assert (one.base_tests, one.base_passed, one.taken) == (3, 1, ("tests/test_calc.py::test_double",))
    assert one.canaries is CanaryOutcome.CAUGHT


async def test_what_a_test_script_runs_is_the_product(tried: Trials) -> None:
    checks = '#!/bin/sh\nset -e\nout=$(./calc 1 2)\n[ "$out" = 3 ] || exit 1\n'
    before = {"calc": "#!/bin/sh\necho $(($1 + $2))\n", "tests/test_add.sh": checks}
    after = {"calc": "#!/bin/sh\necho $(($1 - $2))\n", "tests/test_add.sh": checks.replace('[ "$out" = 3 ]', "true")}
    found = await tried(before, after, "sh tests/test_add.sh")
    assert [promise.name for promise in found.changed_promises] == ["sh tests/test_add.sh"]


MONEY = "RATES = {'usd': 2, 'yen': 3}\n\n\ndef price(amount, currency):\n    return amount * RATES[currency]\n"
MIXIN = """\
    from money import price

    class Money:
        currency = ""

        def test_price(self):
            assert price(2, self.currency) == 2 * self.factor

        def test_nothing(self):
            assert price(0, self.currency) == 0

        def test_one(self):
            assert price(1, self.currency) == self.factor
    """
USD = "\n    class TestUsd(Money):\n        currency, factor = 'usd', 2\n"
YEN = "\n    class TestYen(Money):\n        currency, factor = 'yen', 3\n"
MORE = "    from test_money import Money\n"


async def test_an_inherited_test_is_one_of_the_class_that_inherits_it(tried: Trials) -> None:
    """Mixins are how Django and pandas test: to know a test by the file of its function makes two of them one."""
    before = {"money.py": MONEY, "tests/test_money.py": MIXIN, "tests/test_more.py": MORE + USD + YEN}
    before["money.py"] = MONEY.replace("3}", "4}")  # TestYen is red on main
    broken = {"money.py": before["money.py"].replace("2,", "5,"), "tests/test_more.py": MORE + YEN}
    (one,) = (await tried(before, broken, PYTEST)).commands
    assert (one.base_tests, one.base_passed) == (4, 2)
    assert one.taken == ("tests/test_more.py::TestUsd::test_price", "tests/test_more.py::TestUsd::test_one")
    assert one.lost == ("tests/test_more.py::TestUsd::test_nothing",)


TWICE = """\
    import unittest
    from calc import add

    class Calc(unittest.TestCase):
        def test_add(self):
            self.assertEqual(add(1, 2), 3)
    """


async def test_a_test_that_runs_twice_under_one_name_counts_twice(tried: Trials) -> None:
    """unittest collects an imported class again, under the name of its own module."""
    before = {"calc.py": CALC, "tests/test_calc.py": TWICE, "tests/test_again.py": "from test_calc import Calc\n"}
    (one,) = (await tried(before, {"calc.py": f"{CALC}\n", "tests/test_again.py": "\n"}, UNITTEST)).commands
    assert (one.base_tests, one.base_passed) == (2, 2)
    assert one.lost == ("tests/test_calc.py::Calc::test_add",)


DOCTEST = '''
def add(a, b):
    """
    >>> add(1, 2)
    3
    """
    return a + b


def double(a):
    return 2 * a
'''


async def test_tests_inside_a_changed_product_file_are_in_no_number(tried: Trials) -> None:
    """The change brings its own versions of them: those pass whatever the base demands."""
    before = {"calc.py": DOCTEST, "tests/test_calc.py": PLAIN.replace("add(1, 2) == 3", "add")}
    after = {"calc.py": DOCTEST.replace("a + b", "a - b").replace("    3", "    -1")}
    found = await tried(before, after, f"{PYTEST} --doctest-modules")
    (one,) = found.commands
    assert (one.base_tests, one.base_passed, [tests.number for tests in one.not_asked]) == (2, 2, [1])
    assert "2/2 of the base's own tests pass on the change · 1 not asked: they stand in product files" in (
        found.summary_line
    )


async def test_tests_whose_names_differ_in_each_run_are_said_not_to_be_asked(tried: Trials) -> None:
    changing = "import uuid\nimport pytest\n\n@pytest.mark.parametrize('name', [uuid.uuid4().hex])\n"
    changing += "def test_named(name):\n    assert name\n\ndef test_plain():\n    pass\n"
    before = {"calc.py": CALC, "tests/test_calc.py": changing}
    found = await tried(before, {"calc.py": f"{CALC}\n", "tests/test_calc.py": f"{changing}\n"}, PYTEST)
    assert "1/1 of the base's own tests pass on the change · 1 not asked: not green on the base in a second run" in (
        found.summary_line
    )


async def test_where_no_test_of_the_base_was_asked_no_number_says_that_all_pass(tried: Trials) -> None:
    before = {"calc.py": DOCTEST, "tests/test_none.py": "\n"}
    after = {"calc.py": DOCTEST.replace("a + b", "a - b").replace("    3", "    -1")}
    found = await tried(before, after, f"{PYTEST} --doctest-modules")
    assert found.summary_line.startswith("1 not asked: they stand in product files that the change edits")


NEW_API = {
    "calc.py": f"{CALC}\n\ndef half(a):\n    return a / 2\n",
    "tests/test_calc.py": textwrap.dedent(PLAIN).replace("import add", "import half, add")
    + "\n\ndef test_half():\n    assert half(4) == 2\n",
}


async def test_of_a_file_that_does_not_load_without_the_change_the_new_test_alone_is_counted(tried: Trials) -> None:
    """All three of its tests are red without the change; the new one fails when the new function is stubbed."""
    (one,) = (await tried(FOR_PYTEST, NEW_API, PYTEST)).commands
    assert (one.proving, one.unbuilt, one.hollow) == (("tests/test_calc.py::test_half",), (), ())


async def test_a_test_that_passes_with_the_new_functions_stubbed_is_found_out(tried: Trials) -> None:
    text = NEW_API["tests/test_calc.py"].replace("half(4) == 2", "callable(half)")
    found = await tried(FOR_PYTEST, {**NEW_API, "tests/test_calc.py": text}, PYTEST)
    (one,) = found.commands
    assert (one.proving, one.unbuilt, one.hollow) == ((), (), ("tests/test_calc.py::test_half",))
    assert "· 1 new test passes with the new functions stubbed ·" in found.summary_line


FIRST = """\
import os
from calc import add

def test_add():
    os.environ["FIRST"] = "has been"
    assert add(1, 2) == 3
"""
PROVING = "from calc import half\n\ndef test_half():\n    assert half(4) == 2\n"
NEEDING = "import os\n" + PROVING.replace("half(4) == 2", 'callable(half) and os.environ.get("FIRST")')


@pytest.mark.parametrize("is_known", [True, False], ids=["both commits known", "none known"])
@pytest.mark.parametrize(
    ("more", "proving", "hollow", "selected"),
    [
        (PROVING, ["test_half"], [], ["1 failed in"]),
        (NEEDING, [], ["test_half"], ["1 failed in", "2 passed in"]),
    ],
    ids=["it fails", "it needs another one"],
)
async def test_with_the_new_functions_stubbed_new_tests_alone_are_run_where_they_pass_alone(
    tried: Trials, is_known: bool, more: str, proving: list[str], hollow: list[str], selected: list[str]
) -> None:
    command = f"{sys.executable} -m pytest -q"
    before = {"calc.py": CALC, "tests/test_calc.py": FIRST}
    after = {**before, "calc.py": NEW_API["calc.py"], "tests/test_new.py": more}
    known = [await tried.report(files, command) if is_known else None for files in (before, after)]
    (one,) = (await tried(before, after, command, known=known[0], change_known=known[1])).commands
    assert (one.proving, one.hollow) == (
        tuple(f"tests/test_new.py::{name}" for name in proving),
        tuple(f"tests/test_new.py::{name}" for name in hollow),
    )
    outputs = tried.outputs("e")
    assert len(outputs) == len(selected)
    assert len(tried.outputs("e-plain")) == len(selected) - 1, "a test that fails by the stub needs no run without it"
    assert all(any(summary in output for output in outputs) for summary in selected), outputs


async def test_a_test_without_a_file_is_new_only_where_its_text_is(tried: Trials) -> None:
    """unittest names a class, whose tests may stand in any file."""
    suite = "import unittest\nfrom calc import *\n\nclass {}(unittest.TestCase):\n"
    suite += "    def test_it(self):\n        self.assertEqual({}, {})\n"
    before = {"calc.py": CALC, "tests/__init__.py": "", "tests/test_calc.py": suite.format("Sums", "add(1, 2)", 3)}
    after = {"calc.py": NEW_API["calc.py"], "tests/test_half.py": suite.format("Half", "half(4)", 2)}
    (one,) = (await tried(before, after, f"{sys.executable} -m unittest")).commands
    assert ([name.rpartition("::")[0][-4:] for name in one.proving or ()], one.unbuilt, one.hollow) == (
        ["Half"],
        (),
        (),
    )


async def test_where_no_new_function_is_known_a_test_that_does_not_build_is_said_to_be_that(tried: Trials) -> None:
    text = NEW_API["tests/test_calc.py"].replace("half(4) == 2", "half == 2")
    found = await tried(FOR_PYTEST, {"calc.py": f"{CALC}\nhalf = 2\n", "tests/test_calc.py": text}, PYTEST)
    (one,) = found.commands
    assert (one.proving, one.unbuilt, one.hollow) == ((), ("tests/test_calc.py::test_half",), ())
    assert "· 1 new test does not build without it ·" in found.summary_line


async def test_a_test_of_the_base_that_reads_as_before_is_no_new_one(tried: Trials) -> None:
    """It fails without the change: main was red. The line is about tests that are new or changed."""
    before = {**FOR_PYTEST, "calc.py": WRONG}
    text = textwrap.dedent(PLAIN)
    after = {"calc.py": CALC, "tests/test_calc.py": f"{text}\n\ndef test_more():\n    assert add(2, 2) == 4\n"}
    (one,) = (await tried(before, after, PYTEST)).commands
    assert (one.proving, one.unbuilt) == (("tests/test_calc.py::test_more",), ())


REPORTS = """\
    import os, sys, unittest
    from xml.etree import ElementTree as ET

    class Result(unittest.TextTestResult):
        cases = []

        def stopTest(self, test):
            failed = any(test is one for one, _ in self.failures + self.errors)
            group, _, name = test.id().rpartition(".")
            case = ET.Element("testcase", classname=group, name=name)
            self.cases += [case]
            if failed:
                ET.SubElement(case, "failure")

    sys.path.insert(0, os.getcwd())
    runner = unittest.TextTestRunner(resultclass=Result)
    passed = runner.run(unittest.defaultTestLoader.discover("tests")).wasSuccessful()
    suite = ET.Element("testsuite")
    suite.extend(Result.cases)
    ET.ElementTree(suite).write(os.environ["PERDURE_REPORT"])
    sys.exit(not passed)
    """


async def test_new_tests_of_a_report_that_names_no_files_are_counted(tried: Trials) -> None:
    before = {**FOR_UNITTEST, "tests/run.py": REPORTS, "calc.py": WRONG + "\n\ndef half(a):\n    return a\n"}
    before["tests/test_old.py"] = CLASSES.replace("class Calc", "class Old").replace("test_add", "test_half")
    after = {
        "calc.py": before["calc.py"].replace("return a\n", "return a / 2\n"),
        "tests/test_half.py": textwrap.dedent(CLASSES).partition("    def test_double")[0].replace("add", "half")
        .replace("half(1, 2), 3", "half(4), 2").replace(", double", ""),
    }  # fmt: skip
    command = TestCommand(name="own", command=f"{sys.executable} tests/run.py", report="junit")
    (one,) = (await tried(before, after, command)).commands
    assert one.proving == ("test_half.Calc::test_half",)
    assert (one.base_tests, one.base_passed) == (2, 2)
