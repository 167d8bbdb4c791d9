"""Runners that are a row of data each, with the real ones: every test counts under its own name, and runs alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from perdure.adapters.checks.junit import BadReport
from perdure.adapters.checks.tap import read_tap
from perdure.adapters.checks.verdict import verdict_of
from perdure.models.checks.report import TestCase
from perdure.models.limits import CASE_MESSAGE_CHARS, CASE_NAME_CHARS
from tests.guide import installed
from tests.needs import require
from tests.sandboxes import Bench, Files

MOCHA = """\
const assert = require('assert');
describe('calc', () => {
  it('adds (1.5) <&>', () => {});
  it('subs', () => assert.strictEqual(1, 2));
  it('twice', () => {}); it('twice', () => {});
  it('later');
  describe('deep', () => it('subs', () => {}));
});
"""
AVA = """\
import test from 'ava';
test('adds', t => t.is(3, 3));
test('subs', t => t.is(1, 2));
test.skip('later', t => t.pass());
test.failing('known', t => t.fail());
"""
TAPE = """\
const test = require('tape');
test('adds', (t) => { t.equal(3, 3); t.equal(3, 3); t.ok(1, 'one # two'); t.end(); });
test('subs', (t) => { t.equal(1, 2); t.skip('later'); t.end(); });
console.log('okay, it was said');
"""
PROVE = """\
use Test::More tests => 5;
ok(1, 'adds'); is(1, 2, 'subs'); ok(1);
TODO: { local $TODO = 'x'; ok(0, 'later') }
subtest deep => sub { plan tests => 1; ok(1, 'subs') };
"""
UVU = """\
import { suite, test } from 'uvu';
import * as assert from 'uvu/assert';
test('adds (1.5) <&>', () => assert.is(3, 3));
test('subs', () => assert.is(1, 2));
test('twice', () => console.log('✘ ')); test('twice', () => {});
test.skip('later', () => {});
test.run();
const deep = suite('deep');
deep('subs', async () => {});
deep.run();
"""
TAP = """\
const t = require('tap');
t.test('adds', (t) => { t.equal(3, 3, 'is three'); t.test('deep', (t) => { t.ok(1, 'is'); t.end(); }); t.end(); });
t.test('subs', (t) => { t.equal(1, 2, 'ok 1 - is'); t.end(); });
t.test('empty', (t) => t.end());
t.test('later', { todo: true }, (t) => t.end());
console.log('okay, it was said');
"""
TAP_OUTPUT = """\
TAP version 14
# Subtest: test/a.js
    # Subtest: adds
        ok 1 - is three
        # Subtest: deep
            not ok 1 - is
              ---
              source: |
                ok 2 - of a source
              ...
            1..1
        not ok 2 - deep # time=1ms
        1..2
    not ok 1 - adds # time=2ms

    # Subtest: empty
        1..0
    ok 2 - empty # time=1ms

    # Subtest: hangs
        ok 1 - begins
    not ok 3 - hangs # time=1ms
      ---
      signal: SIGTERM
      ...
    ok 4 - later # TODO
    1..4
not ok 1 - test/a.js # time=9ms

# Subtest: test/b.js
    ok 1 - is
    1..1
not ok 2 - test/b.js # time=9ms
  ---
  exitCode: 3
  ...
1..2
"""
CMAKE = """\
cmake_minimum_required(VERSION 3.10)
project(calc NONE)
enable_testing()
add_test(NAME adds COMMAND true)
add_test(NAME subs COMMAND sh -c "exit 1")
add_test(NAME missing COMMAND no-such-program)
add_test(NAME later COMMAND sh -c "exit 77")
set_tests_properties(later PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME off COMMAND true)
set_tests_properties(off PROPERTIES DISABLED TRUE)
add_subdirectory(more)
"""
BUSTED = """\
describe('calc', function()
  it('adds (1.5) %a', function() end)
  it('subs: a-b', function() assert.are.equal(1, 2) end)
  it('twice', function() end); it('twice', function() end)
  pending('later')
  it('breaks', function() error({}) end)
end)
"""
PHPUNIT = """\
<?php
namespace Calc\\Tests;
use PHPUnit\\Framework\\TestCase;
abstract class Shared extends TestCase { public function testShared(): void { $this->assertTrue(true); } }
class CalcTest extends Shared {
  public function testSubs(): void { $this->assertSame(1, 2); }
  /** @dataProvider sums */
  public function testAdds($a): void { $this->assertTrue(true); }
  public static function sums() { return [[1], 'two' => [2]]; }
  public function testLater(): void { $this->markTestSkipped('no'); }
}
"""
RSPEC = """\
RSpec.describe 'Calc' do
  it('adds') { expect(3).to eq 3 }
  it('subs') { expect(1).to eq 2 }
  it('later')
  context('deep') { it { expect(3).to eq 3 } }
end
"""
MINITEST = """\
require 'minitest/autorun'
module Shared; def test_shared; assert true; end; end
class UsdTest < Minitest::Test
  include Shared
  def test_subs; assert_equal 1, 2; end
  def test_later; skip 'no'; end
end
class YenTest < Minitest::Test; include Shared; end
describe('calc') { it('adds') { _(3).must_equal 3 } }
"""
RAKE = "require 'rake/testtask'\nRake::TestTask.new { |t| t.pattern = 'test/*_test.rb' }\n"
BATS = '@test "adds" { true; }\n@test "subs # one" { false; }\n@test "later" { skip; }\n'

PHP = "Calc\\Tests\\CalcTest::"
A_JS, B_JS = "test/a.test.js", "test/b.test.js"
CTEST = "cmake -B build . && cmake --build build && cd build && ctest"
OTHER_MOCHA, OTHER_AVA = (
    "describe('calc', () => it('subs', () => {}));",
    "import t from 'ava'; t('subs', t => t.pass());",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("needs", "package", "tree", "command", "outcomes", "alone"),
    [
        pytest.param(
            "node", "mocha", {A_JS: MOCHA, B_JS: OTHER_MOCHA, "package.json": '{"scripts": {"test": "mocha -R dot"}}'},
            "npm test",
            {f"{A_JS}::calc > adds (1.5) <&>": "passed", f"{A_JS}::calc > subs": "failed",
             f"{A_JS}::calc > twice": "passed passed", f"{A_JS}::calc > later": "skipped",
             f"{A_JS}::calc > deep > subs": "passed", f"{B_JS}::calc > subs": "passed"},
            {f"{A_JS}::calc > subs": "failed", f"{B_JS}::calc > subs": "passed"}, id="mocha",
        ),
        pytest.param(
            "node", "mocha@2", {A_JS: MOCHA.replace("it('later');", ""), B_JS: OTHER_MOCHA}, "npx mocha",
            {f"{A_JS}::calc > adds (1.5) <&>": "passed", f"{A_JS}::calc > subs": "failed",
             f"{A_JS}::calc > twice": "passed passed", f"{A_JS}::calc > deep > subs": "passed",
             f"{B_JS}::calc > subs": "passed"},
            {f"{A_JS}::calc > subs": "failed", f"{B_JS}::calc > subs": "passed"}, id="mocha of 2016",
            marks=pytest.mark.slow,
        ),
        *(
            pytest.param(
                "node", package, {A_JS: AVA, B_JS: OTHER_AVA, "package.json": '{"type": "module"}'}, "npx ava",
                {f"{A_JS}::adds": "passed", f"{A_JS}::subs": "failed", f"{A_JS}::later": "skipped",
                 f"{A_JS}::known": "passed", f"{B_JS}::subs": "passed"},
                {f"{A_JS}::subs": "failed", f"{B_JS}::subs": "passed"}, id=package, marks=mark,
            )
            for package, mark in (("ava", pytest.mark.story), ("ava@4", pytest.mark.slow))
        ),
        pytest.param(
            "node", "tape", {A_JS: TAPE, "package.json": '{"scripts": {"test": "tape test/*.js"}}'}, "npm test",
            {"adds > should be strictly equal": "passed passed", "adds > one # two": "passed",
             "subs > should be strictly equal": "failed", "subs > later": "skipped"},
            None, id="tape",
        ),
        pytest.param(
            "node", "uvu",
            {A_JS: UVU, "test/b.cjs": "const { test } = require('uvu');\ntest('subs', () => {});\ntest.run();\n",
             "package.json": '{"type": "module"}'},
            "npx uvu test",
            {f"{A_JS}::adds (1.5) <&>": "passed", f"{A_JS}::subs": "failed", f"{A_JS}::twice": "passed passed",
             f"{A_JS}::deep > subs": "passed", "test/b.cjs::subs": "passed"},
            None, id="uvu", marks=pytest.mark.slow,
        ),
        *(
            pytest.param(
                "node", package, {A_JS: TAP, B_JS: "require('tap').test('subs', (t) => { t.ok(1, 'is'); t.end(); });"},
                f"npx tap {option} test/*.js",
                {f"{A_JS}::adds > is three": "passed", f"{A_JS}::adds > deep > is": "passed",
                 f"{A_JS}::subs > ok 1 - is": "failed", f"{A_JS}::empty": "passed", f"{A_JS}::later": "skipped",
                 f"{B_JS}::subs > is": "passed"},
                None, id=package, marks=pytest.mark.slow,
            )
            for package, option in (("tap@16", "--no-coverage"), ("tap", "--disable-coverage"))
        ),
        pytest.param(
            "prove", "", {"t/a.t": PROVE, "t/deep/b.t": "print qq(1..1\\nok 1 - adds\\n); exit 3\n",
                          "t/c.t": "print qq(1..0 # SKIP no\\n)\n", "t/d.t": "print qq(ok 1 - adds\\n)\n"},
            "prove -r t",
            {"t/a.t::adds": "passed", "t/a.t::subs": "failed", "t/a.t::test 3": "passed", "t/a.t::later": "skipped",
             "t/a.t::deep": "passed", "t/deep/b.t::adds": "passed", "t/deep/b.t::exit status 3": "errored",
             "t/c.t::all": "skipped", "t/d.t::adds": "passed", "t/d.t::ended before its plan": "errored"},
            None, id="prove",
        ),
        pytest.param(
            "bats", "", {"test/a.bats": BATS}, "bats test",
            {"adds": "passed", "subs # one": "failed", "later": "skipped"}, {"subs # one": "failed"}, id="bats",
        ),
        pytest.param(
            "ctest", "", {"CMakeLists.txt": CMAKE, "more/CMakeLists.txt": "add_test(NAME adds COMMAND true)\n"}, CTEST,
            {"adds": "passed passed", "subs": "failed", "missing": "errored", "later": "skipped", "off": "skipped"},
            {"subs": "failed"}, id="ctest",
        ),
        pytest.param(
            "busted", "", {"spec/a_spec.lua": BUSTED, "spec/b_spec.lua": BUSTED}, "busted spec/a_spec.lua",
            {"spec/a_spec.lua::calc adds (1.5) %a": "passed", "spec/a_spec.lua::calc subs: a-b": "failed",
             "spec/a_spec.lua::calc twice": "passed passed", "spec/a_spec.lua::calc later": "skipped",
             "spec/a_spec.lua::calc breaks": "errored"},
            {"spec/a_spec.lua::calc subs: a-b": "failed"}, id="busted",
        ),
        pytest.param(
            "phpunit", "", {"tests/CalcTest.php": PHPUNIT}, "phpunit tests",
            {f"{PHP}testSubs": "failed", f"{PHP}testShared": "passed", f"{PHP}testAdds with data set #0": "passed",
             f'{PHP}testAdds with data set "two"': "passed", f"{PHP}testLater": "skipped"},
            {f"{PHP}testSubs": "failed"}, id="phpunit",
        ),
        pytest.param(
            "rspec", "", {"spec/a_spec.rb": RSPEC, "spec/b_spec.rb": RSPEC[:-4] + "end\n"}, "rspec spec/a_spec.rb",
            {"spec/a_spec.rb::Calc adds": "passed", "spec/a_spec.rb::Calc subs": "failed",
             "spec/a_spec.rb::Calc later": "skipped", "spec/a_spec.rb::Calc deep is expected to eq 3": "passed"},
            {"spec/a_spec.rb::Calc subs": "failed"}, id="rspec",
        ),
        *(
            pytest.param(
                "rake", "", {"test/calc_test.rb": MINITEST, "Rakefile": RAKE}, command,
                {"UsdTest::test_shared": "passed", "YenTest::test_shared": "passed", "UsdTest::test_subs": "failed",
                 "UsdTest::test_later": "skipped", "calc::adds": "passed"},
                alone, id=command.split()[0],
            )
            for command, alone in (
                ("ruby -Itest test/calc_test.rb", {"UsdTest::test_subs": "failed"}), ("rake test", None),
            )
        ),
    ],
)  # fmt: skip
async def test_every_test_counts_under_its_own_name_and_is_run_alone_by_its_command(
    bench: Bench, files: Files, needs: str, package: str, tree: Mapping[str, str], command: str,
    outcomes: Mapping[str, str], alone: Mapping[str, str] | None,
) -> None:  # fmt: skip
    """alone: what the command for the failing test reports; None: its runner cannot select one."""
    require(needs)
    root = files(tree)
    if package:
        installed(root, package)
    report = await bench.run(root, command)
    (result,) = report.commands
    assert _outcomes(result.cases) == outcomes, result.tail
    assert result.verdict == "failed"
    (failing, *_) = [case for case in result.cases if case.outcome == "failed"]
    assert bool(failing.command) == (alone is not None)
    if alone is not None:
        again = await bench.one(root, failing.command)
        assert {name: said for name, said in _outcomes(again.cases).items() if said != "skipped"} == alone
    assert verdict_of(report).status == "red"


def _outcomes(cases: Sequence[TestCase]) -> dict[str, str]:
    names = dict[str, str]()
    for case in cases:
        names[case.name] = f"{names.get(case.name, '')} {case.outcome}".strip()
    return names


MANAGE = """\
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "conf")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
CONF = """\
SECRET_KEY = "x"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
TEST_RUNNER = "conf.Loud"
from django.test.runner import DiscoverRunner
class Loud(DiscoverRunner):
    def run_suite(self, suite, **options):
        print("the runner of the settings")
        return super().run_suite(suite, **options)
"""
SHOP = """\
from django.contrib.auth.models import User
from django.test import SimpleTestCase, TestCase
from shop.money import Money
class Usd(Money, TestCase):
    def test_rows(self):
        User.objects.create(username="a")
        self.assertEqual(User.objects.count(), 1)
class Yen(Money, SimpleTestCase):
    def test_bad(self):
        self.fail("always")
"""


@pytest.mark.timeout(300)
@pytest.mark.story
async def test_django_tells_of_each_test_by_its_class_and_keeps_the_runner_of_the_settings(
    bench: Bench, files: Files
) -> None:
    money = "class Money:\n    def test_shared(self):\n        self.assertTrue(1)\n"
    root = files(
        {"manage.py": MANAGE, "conf.py": CONF, "shop/__init__.py": "", "shop/money.py": money, "shop/test_a.py": SHOP}
        | {"shop/test_b.py": SHOP.replace("self.fail", "self.skipTest")}
    )
    words = [sys.executable, "-m", "pip", "install", "-q", "--target", str(root / "site"), "django<6"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot install django: {done.stderr[-200:]}")
    result = await bench.one(root, "PYTHONPATH=site python manage.py test shop")
    assert _outcomes(result.cases) == {
        f"shop/test_{file}.py::{test}": outcome
        for file, bad in (("a", "failed"), ("b", "skipped"))
        for test, outcome in (
            ("Usd::test_shared", "passed"), ("Usd::test_rows", "passed"),
            ("Yen::test_shared", "passed"), ("Yen::test_bad", bad),
        )
    }, result.tail  # fmt: skip
    assert "the runner of the settings" in result.tail
    again = await bench.one(root, result.cases[0].command)
    assert _outcomes(again.cases) == {"shop/test_a.py::Yen::test_bad": "failed"}
    for command in ("python -m django test shop --settings conf --pythonpath .", "python manage.py test shop.test_b"):
        parallel = await bench.one(root, f"PYTHONPATH=site {command} --parallel 2 -k shared")
        assert {*_outcomes(parallel.cases).values()} == {"passed"}, parallel.tail


SHARED_JS = """\
const { describe, test } = require('node:test');
exports.check = (value) => {
  test('is one', () => { if (value !== 1) throw new Error('x'); });
  describe('inner', () => { test('is two', () => {}); });
};
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("package", ["node@22", "node@24"])
async def test_tests_that_a_helper_registers_are_of_the_file_that_runs(
    bench: Bench, files: Files, package: str
) -> None:
    require("node", "npm")
    call = "require('../shared.js').check({});\n"
    tree = files(
        {
            "shared.js": SHARED_JS,
            "test/a.test.js": call.format(1) + "require('node:test')('own', () => {});\n",
            "test/b.test.js": call.format(2),
            "test/c.test.js": "throw new Error('x');\n",
            "test/d.test.js": call.format(1)
            + "setTimeout(() => process.exit(3), 500);\nrequire('node:test')('late', () => new Promise(() => {}));\n",
        }
    )
    installed(tree, package)
    result = await bench.one(tree, "node_modules/.bin/node --test test/*.js")
    outcomes = _outcomes(result.cases)
    found = {name: outcome for name, outcome in outcomes.items() if "one" in name or "two" in name or "own" in name}
    assert found == {
        f"test/{file}.test.js::{name}": "failed" if (file, name) == ("b", "is one") else "passed"
        for file in "abd"
        for name in ("is one", "inner > is two", *(["own"] if file == "a" else []))
    }
    assert [case.file for case in result.cases if case.outcome == "failed"].count("test/c.test.js") == 1


async def test_tests_that_a_program_has_not_reached_are_in_no_number(bench: Bench, files: Files) -> None:
    require("prove")
    dies = "use Test::More tests => 25; ok 1, 'first'; die 'no try';\n"
    fails = "use Test::More tests => 2; ok 1, 'adds'; ok 0, 'subs';\n"
    tree = files({"t/a.t": dies, "t/b.t": "use Test::More tests => 9; BEGIN { die }\n", "t/c.t": fails})
    verdict = verdict_of(await bench.run(tree, "prove t"))
    assert verdict.summary == "1 of 3 fail: subs; 2 programs did not run to their end: t/a.t, t/b.t"
    assert (verdict.passed, verdict.failed) == (2, 1)
    verdict = verdict_of(await bench.run(files({"t/c.t": fails.replace("ok 0", "ok 1")}), "prove t"))
    assert verdict.summary == "2 programs did not run to their end: t/a.t, t/b.t"
    assert (verdict.passed, verdict.failed) == (3, 2)


async def test_a_failure_in_another_file_is_new_where_one_of_that_name_is_known(bench: Bench, files: Files) -> None:
    require("prove")
    bad = "print qq(1..1\\nnot ok 1 - adds\\n)\n"
    good = bad.replace("not ", "")
    before = await bench.run(files({"t/a.t": bad, "t/b.t": good}), "prove t")
    after = await bench.run(files({"t/a.t": good, "t/b.t": bad}), "prove t", baseline=before)
    assert [(case.name, case.known) for case in after.commands[0].cases if case.outcome == "failed"] == [
        ("t/b.t::adds", False)
    ]


@pytest.mark.timeout(300)
async def test_failures_of_mocha_that_are_left_are_known_where_another_one_was_fixed(
    bench: Bench, files: Files
) -> None:
    suite = "for (let n = 0; n < 140; n += 1) it(`fails ${n}`, () => { if (n !== FIXED) throw new Error('x'); });"
    installed(files({}), "mocha")
    before = await bench.run(files({A_JS: suite.replace("FIXED", "-1")}), "npx mocha")
    after = await bench.run(files({A_JS: suite.replace("FIXED", "3")}), "npx mocha", baseline=before)
    assert (after.commands[0].since, after.commands[0].exit_code) == ("known", 1), after.commands[0].reason
    assert verdict_of(after).status == "green"


@pytest.mark.parametrize(
    ("stream", "outcomes"),
    [
        (
            "TAP version 13\n1..2\nok 1 - a\nBail out! no database\n",
            {"a": "passed", "Bail out! no database": "errored"},
        ),
        ("1..3\nok\nok 2 - A#b\n", {"test 1": "passed", "A#b": "passed", "ended before its plan": "errored"}),
        ("1..1\n  ok 1 - inner\nokay\nok 1 - a \x1b[1m # TODO later\n", {"a \\x1b[1m": "skipped"}),
        ("1..1\nok 1 - a\nok 1 - a\n", {"a": "passed passed", "ended before its plan": "errored"}),
        ("1..1\nok 1 -" + " " * 1_000_000 + "# skip" * 100_000 + "x\n", {"test 1": "skipped"}),
        ("1..1\nnot ok 1 -" + "a" * 5_000 + "\n" + "at line\n" * 100_000, None),
    ],
)
def test_tap_counts_as_its_plan_says(tmp_path: Path, stream: str, outcomes: Mapping[str, str] | None) -> None:
    (tmp_path / "tap").write_text(stream)
    cases = read_tap(tmp_path / "tap", tmp_path / "tap", lambda _: "", "tap")
    if outcomes is not None:
        assert _outcomes(cases) == outcomes
    assert all(len(case.name) < CASE_NAME_CHARS + 100 and len(case.message) < CASE_MESSAGE_CHARS + 10 for case in cases)


def test_tests_nested_in_others_count_alone_and_what_fails_around_them_as_one(tmp_path: Path) -> None:
    (tmp_path / "tap").write_text(TAP_OUTPUT)
    cases = read_tap(tmp_path / "tap", tmp_path / "tap", lambda _: "", "nested tap")
    assert _outcomes(cases) == {
        "test/a.js::adds > is three": "passed", "test/a.js::adds > deep > is": "failed", "test/a.js::empty": "passed",
        "test/a.js::hangs > begins": "passed", "test/a.js::hangs": "failed", "test/a.js::later": "skipped",
        "test/b.js::is": "passed", "test/b.js::ended": "errored",
    }  # fmt: skip
    assert "of a source" in next(case.message for case in cases if case.name.endswith("deep > is"))
    (tmp_path / "tap").write_text(TAP_OUTPUT.replace("\n1..2", "\n1..3"))
    cut = read_tap(tmp_path / "tap", tmp_path / "tap", lambda _: "", "nested tap")
    assert _outcomes(cut)["ended before its plan"] == "errored"


@pytest.mark.parametrize("stream", ["", "all is well\n", "\0" * 1_000])
def test_output_without_a_plan_is_a_failure(tmp_path: Path, stream: str) -> None:
    (tmp_path / "tap").write_text(stream)
    assert _outcomes(read_tap(tmp_path / "tap", tmp_path / "tap", lambda _: "", "tap")) == {
        "ended before its plan": "errored"
    }


def test_a_plan_of_no_test_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "tap").write_text("1..0\n")
    with pytest.raises(BadReport):
        read_tap(tmp_path / "tap", tmp_path / "tap", lambda _: "", "tap")
