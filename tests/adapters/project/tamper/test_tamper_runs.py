"""What only a run can show: the real pytest and node, on both commits, in the sandbox."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from project_bench import PYTEST, Bench
from tamper_change import Change, Tree, told
from tamper_files import CALC, JS, PY, PY_TESTS, edited

from perdure.adapters.project.tamper import Tampered, judged
from perdure.adapters.project.verdict import note, verdict
from perdure.models.config import TestCommand
from perdure.models.report import TestReport

NODE = "node --test"
JS_CALC = "export const add = (a, b) => a + b;\nexport const parse = (t) => {\n  if (t === 'x') throw Error('bad');\n"
JS_CALC += "  return parseInt(t) || 0;\n};\n"
PYTHON = {"calc.py": CALC, PY: PY_TESTS, "conftest.py": "\n"}
SCRIPT = {
    "calc.js": JS_CALC,
    "calc.test.js": JS.replace("""/"x"/), /bad "'`/""", "'x'), /bad/"),
    "package.json": '{"type":"module"}',
}


class Runs:
    """Both commits tested, then judged."""

    def __init__(self, bench: Bench, root: Path) -> None:
        self.bench, self.root = bench, root

    async def report(self, before: Tree, after: Tree, command: str) -> TestReport:
        change = Change(self.root / "repository.git", before, after)
        tree = self.root / "repository"
        base = await self._tested(change, change.base, tree, command, None)
        now = await self._tested(change, change.head, tree, command, base)
        found = change.judge(*[c.command for c in now.commands], base=base, now=now)
        return judged(now, found, allowed=False)

    async def hits(self, before: Tree, after: Tree, command: str) -> list[str]:
        found = await self.report(before, after, command)
        return [f"{hit.rule}: {hit.title}" for hit in found.tampering]

    async def _tested(
        self, change: Change, commit: str, tree: Path, command: str, base: TestReport | None
    ) -> TestReport:
        shutil.rmtree(tree)
        return await self.bench.run(change.checkout(commit, tree), command, baseline=base)


@pytest.fixture
def runs(bench: Bench, tmp_path: Path) -> Runs:
    return Runs(bench, tmp_path)


async def test_parameters_that_are_computed_and_fewer_now_are_counted_by_the_runner(runs: Runs) -> None:
    text = "import pytest\n\n\n@pytest.mark.parametrize('n', range(4))\ndef test_n(n):\n    assert n >= 0\n"
    found = await runs.hits({PY: text}, {PY: edited(text, "range(4)", "range(3)")}, PYTEST)
    assert found == ["gone: 1 of 4 cases of test_n do not run any more"]


async def test_a_test_that_skips_itself_in_ways_no_reader_sees_is_a_hit(runs: Runs) -> None:
    text = "import calc\n\n\ndef test_a(thing):\n    assert calc.add(1, 1) == 2\n"
    fixture = "import pytest\n\n\n@pytest.fixture\ndef thing():\n    return 1\n"
    after = edited(fixture, "    return 1", "    getattr(pytest, 'sk' + 'ip')('no')")
    found = await runs.hits(
        {"calc.py": CALC, PY: text, "tests/fixtures.py": fixture, "conftest.py": "from tests.fixtures import thing\n"},
        {"tests/fixtures.py": after},
        f"{PYTEST} -p no:cacheprovider",
    )
    assert found == ["skipped: test_a is skipped"]


async def test_a_test_that_is_deselected_where_no_setting_is_looked_for_is_a_hit(runs: Runs) -> None:
    plugin = "def pytest_collection_modifyitems(items):\n    items[:] = items[1:]\n"
    before = {**PYTHON, "conftest.py": 'pytest_plugins = ["hooks"]\n', "hooks.py": "x = 1\n"}
    found = await runs.hits(before, {"hooks.py": plugin}, PYTEST)
    assert found == ["gone: test_zero does not run any more"]


@pytest.mark.needs("node")
async def test_a_process_that_node_ends_early_leaves_tests_out_and_is_a_hit(runs: Runs) -> None:
    quiet = JS_CALC + "setTimeout(() => globalThis['pro' + 'cess']['ex' + 'it'](0), 0);\n"
    slow = edited(
        SCRIPT["calc.test.js"],
        "() => {\n  assert",
        "async () => {\n  await new Promise((r) => setTimeout(r, 300));\n  assert",
    )
    found = await runs.hits({**SCRIPT, "calc.test.js": slow}, {"calc.js": quiet}, NODE)
    assert any("adds" in hit and hit.startswith("gone: ") for hit in found), found


@pytest.mark.needs("node")
async def test_refactors_pass_with_reports_as_well(runs: Runs) -> None:
    moved = {PY: None, "tests/test_durations.py": PY_TESTS.replace("test_zero", "test_none")}
    assert await runs.hits(PYTHON, moved, PYTEST) == []
    several = 'def test_one():\n    """Says nothing."""\n    value = parse("1s")\n    assert value == 1\n'
    one = edited(PY_TESTS, several, "")
    one = edited(one, '[("1m", 60), ', '[("1s", 1), ("1m", 60), ')
    assert await runs.hits(PYTHON, {PY: one}, PYTEST) == []
    renamed = {
        "calc.test.js": None,
        "test/sum.test.js": SCRIPT["calc.test.js"].replace("./calc", "../calc").replace("'adds'", "'sums'"),
    }
    assert await runs.hits(SCRIPT, renamed, NODE) == []


async def test_a_broken_import_is_a_failure_and_not_tampering(runs: Runs) -> None:
    report = await runs.report(PYTHON, {"calc.py": edited(CALC, "def parse", "def parse_duration")}, PYTEST)
    assert report.tampering == ()
    assert verdict(report).status == "red"


async def test_a_report_that_names_tests_the_tree_does_not_have_is_forged(runs: Runs) -> None:
    forge = (
        '#!/bin/sh\necho \'<testsuites><testsuite><testcase classname="tests.test_calc" file="tests/test_calc.py" '
        'name="test_zero"/><testcase file="tests/test_calc.py" name="test_unheard_of"/>'
        '<testcase file="tests/test_none.py" name="test_a"/></testsuite></testsuites>\' > $PERDURE_REPORT\n'
    )
    honest = edited(forge, '<testcase file="tests/test_calc.py" name="test_unheard_of"/>', "")
    honest = edited(honest, '<testcase file="tests/test_none.py" name="test_a"/>', "")
    change = Change(runs.root / "repository.git", {**PYTHON, "run.sh": honest}, {"run.sh": forge})
    command = TestCommand(name="t0", command="sh run.sh", report="junit")
    tree = runs.root / "repository"
    reports = []
    for commit in (change.base, change.head):
        shutil.rmtree(tree)
        reports.append(await runs.bench.run(change.checkout(commit, tree), command))
    assert told(change.judge("sh run.sh", base=reports[0], now=reports[1])) == [
        "report: run.sh meddles with the runner's report or its options (<testcase)",
        "report: the report names test_unheard_of, which tests/test_calc.py does not define",
        "report: the report names test_a in tests/test_none.py, which does not exist",
    ]


async def test_the_verdict_names_hits_first_and_counts_them_unless_they_were_asked_for(runs: Runs) -> None:
    report = await runs.report(
        PYTHON, {PY: edited(PY_TESTS, 'def test_zero():\n    assert parse("0s") == 0\n', "")}, PYTEST
    )
    found = verdict(report)
    assert (found.status, found.tampered, found.new_failures) == ("red", 1, 0)
    assert found.summary == "tampered: test_zero is gone; 6 green"
    assert found.failures == ("test_zero is gone",)
    assert found.fingerprint
    assert report.note.startswith("First undo what stands under `tampering` (1)")
    again = verdict(report.model_copy(update={"tampering": (report.tampering[0].model_copy(update={"title": "x"}),)}))
    assert again.fingerprint != found.fingerprint

    allowed = judged(
        report.model_copy(update={"tampering": (), "note": note(report)}), Tampered(report.tampering), allowed=True
    )
    assert (allowed.allowed, len(allowed.tampering), allowed.note) == (True, 1, "")
    assert (verdict(allowed).status, verdict(allowed).tampered) == ("green", 0)
    assert verdict(allowed).summary == "6 green"
    assert json.loads(allowed.model_dump_json())["tampering"][0]["rule"] == "gone"
