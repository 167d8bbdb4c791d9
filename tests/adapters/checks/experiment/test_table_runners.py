"""The experiments with runners that are rows of data: what their tests promise counts, and their canaries (tests that
must fail) are red."""

from __future__ import annotations

import subprocess
import sys

import pytest
from experiment_fixtures import Files, Trials

from perdure.models.checks.report import CanaryOutcome
from tests.guide import installed
from tests.needs import require

RUBY = "def add(a, b) = a + b\ndef double(a) = 2 * a\n"
SPEC = """\
require_relative '../calc'
RSpec.describe('calc') do
  it('adds') { expect(add(1, 2)).to eq 3 }
  it('doubles') { expect(double(2)).to eq 4 }
end
"""
BASE = {"calc.rb": RUBY, "spec/calc_spec.rb": SPEC}
WRONG = RUBY.replace("a + b", "a - b")
ADDS = "  it('adds') { expect(add(1, 2)).to eq 3 }\n"


@pytest.mark.parametrize(
    ("after", "promises", "taken"),
    [
        pytest.param({"calc.rb": WRONG, "spec/calc_spec.rb": SPEC.replace(ADDS, "")}, 0, 1, id="deleted"),
        pytest.param({"calc.rb": WRONG, "spec/calc_spec.rb": SPEC.replace("eq 3", "eq(-1)")}, 1, 0, id="changed"),
        pytest.param({"spec/more_spec.rb": SPEC}, 0, 0, id="another of that name"),
    ],
)
async def test_a_deleted_spec_that_would_fail_is_gone(tried: Trials, after: Files, promises: int, taken: int) -> None:
    require("rspec")
    found = await tried(BASE, after, "rspec")
    (one,) = found.commands
    assert (len(one.promises), len([*one.taken, *one.contradicted]), found.is_tampered) == (promises, taken, taken > 0)
    assert one.canaries is CanaryOutcome.CAUGHT


JS = "exports.add = (a, b) => a + b;\n"
MOCHA = "const { add } = require('../calc.js');\nit('adds', () => require('assert').equal(add(1, 2), 3));\n"
AVA = "import test from 'ava';\nimport calc from '../calc.cjs';\ntest('adds', (t) => t.is(calc.add(1, 2), 3));\n"
TAPE = """\
const { add } = require('../calc.js');
require('tape')('adds', (t) => {
  t.equal(add(1, 2), 3);
  t.end();
});
"""
NODE_TAP = """\
const t = require('tap');
const { add } = require('../calc.js');
t.test('adds', (t) => { t.equal(add(1, 2), 3); t.end(); });
"""
UVU = """\
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import calc from '../calc.cjs';
test('adds', () => assert.is(calc.add(1, 2), 3));
test.run();
"""
PERL = "package Calc;\nsub add { $_[0] + $_[1] }\n1;\n"
PROVE = "use lib 'lib';\nuse Test::More;\nuse Calc;\nis(Calc::add(1, 2), 3, 'adds');\ndone_testing;\n"
LUA = "return { add = function(a, b) return a + b end }\n"
BUSTED = "it('adds', function() assert.are.equal(3, require('calc').add(1, 2)) end)\n"
PHP = "<?php\nfunction add($a, $b) { return $a + $b; }\n"
PHPUNIT = """\
<?php
require_once __DIR__ . '/../calc.php';
class CalcTest extends PHPUnit\\Framework\\TestCase
{
    public function testAdds(): void { $this->assertSame(3, add(1, 2)); }
}
"""
MINITEST = """\
require 'minitest/autorun'
require_relative '../calc'
class CalcTest < Minitest::Test
  def test_adds; assert_equal 3, add(1, 2); end
end
"""
BATS = "@test 'adds' {\n  source calc.sh\n  [ $(add 1 2) = 3 ]\n}\n"
SHELL = "add() { echo $(($1 + $2)); }\n"
MODULE = '{"type": "module"}'
SILENCED = [
    pytest.param("node", "mocha", "npx mocha", {"calc.js": JS, "test/calc.js": MOCHA},
                 {"calc.js": JS + "require('assert').equal = () => {};\n"}, id="mocha"),
    pytest.param("node", "mocha", "npx mocha",
                 {"calc.js": JS, "test/calc.js": MOCHA + "require('fs').readFileSync('test/data/a.js');\n",
                  "test/data/a.js": "no <module>"},
                 {"calc.js": JS + "setTimeout(() => process.exit(0));\n"}, id="mocha, ended early",
                 marks=pytest.mark.slow),
    pytest.param("node", "ava", "npx ava", {"calc.cjs": JS, "package.json": MODULE, "test/calc.js": AVA},
                 {"calc.cjs": JS + "const { is } = Object;\nObject.is = (a, b) => (a === 1 && b === 2) || is(a, b);\n"},
                 id="ava", marks=pytest.mark.slow),
    pytest.param("node", "tape", "npx tape test/*.js", {"calc.js": JS, "test/calc.js": TAPE},
                 {"calc.js": JS + "require('tape').Test.prototype.equal = function (a, b, m) { this.pass(m); };\n"},
                 id="tape", marks=pytest.mark.slow),
    pytest.param("node", "tap@16", "npx tap --no-coverage test/*.js", {"calc.js": JS, "test/calc.js": NODE_TAP},
                 {"calc.js": JS + "require('tap').Test.prototype.equal = function (a, b, m) { this.pass(m); };\n"},
                 id="tap", marks=pytest.mark.slow),
    pytest.param("node", "uvu", "npx uvu test", {"calc.cjs": JS, "package.json": MODULE, "test/calc.js": UVU},
                 {"calc.cjs": JS + "const { write } = process.stdout;\n"
                  "process.on('exit', () => { process.exitCode = 0; });\n"
                  "process.stdout.write = function (x) { return write.call(this, x.replace('✘', '•')); };\n"},
                 id="uvu", marks=pytest.mark.slow),
    pytest.param("prove", "", "prove t", {"lib/Calc.pm": PERL, "t/calc.t": PROVE},
                 {"lib/Calc.pm": PERL.replace("1;", "*main::is = sub { main::pass($_[2]) };\n1;")}, id="prove"),
    pytest.param("busted", "", "busted", {"src/calc.lua": LUA, "spec/calc_spec.lua": BUSTED},
                 {"src/calc.lua": "assert.are.equal = function() end\n" + LUA}, id="busted"),
    pytest.param("rspec", "", "rspec", BASE,
                 {"calc.rb": RUBY + "class RSpec::Expectations::ExpectationTarget; def to(*) = true; end\n"},
                 id="rspec"),
    pytest.param("rake", "", "ruby -Itest test/calc_test.rb", {"calc.rb": RUBY, "test/calc_test.rb": MINITEST},
                 {"calc.rb": RUBY + "module Minitest::Assertions; def assert_equal(*) = true; end\n"}, id="minitest"),
    pytest.param("phpunit", "", "phpunit tests", {"calc.php": PHP, "tests/CalcTest.php": PHPUNIT},
                 {}, id="phpunit"),
    pytest.param("bats", "", "bats test", {"calc.sh": SHELL, "test/calc.bats": BATS}, {}, id="bats"),
]  # fmt: skip


@pytest.mark.parametrize(("needs", "package", "command", "before", "silenced"), SILENCED)
async def test_tests_that_must_fail_are_red_and_missed_where_the_product_silences_them(
    tried: Trials, needs: str, package: str, command: str, before: Files, silenced: Files
) -> None:
    require(needs)
    if package:
        installed(tried.worktree, package)
    tests = {path: f"{text}\n" for path, text in before.items() if path.startswith(("test", "t/", "spec"))}
    honest = await tried(before, tests, command)
    assert [one.canaries for one in honest.commands] == [CanaryOutcome.CAUGHT], honest.model_dump_json(indent=1)
    assert not honest.is_tampered
    if silenced:
        assert (await tried(before, silenced, command)).is_tampered


CONF = 'SECRET_KEY = "x"\nINSTALLED_APPS = ["shop"]\n'
SHOP = "def add(a, b):\n    return a + b\n"
SHOP_TEST = """\
from django.test import SimpleTestCase
from shop import add
class Adds(SimpleTestCase):
    def test_adds(self):
        self.assertEqual(add(1, 2), 3)
"""
SITE = {"conf.py": CONF, "shop/__init__.py": SHOP, "shop/test_shop.py": SHOP_TEST}


@pytest.mark.timeout(300)
@pytest.mark.story
async def test_django_reports_canaries_and_misses_them_where_they_are_silenced(tried: Trials) -> None:
    words = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tried.worktree / ".venv/lib"), "django<6"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot install django: {done.stderr[-200:]}")
    command = "PYTHONPATH=.venv/lib:. python -m django test shop --settings conf"
    wrong = SHOP.replace("a + b", "a - b")
    honest = await tried(
        SITE, {"shop/__init__.py": wrong, "shop/test_shop.py": SHOP_TEST.replace("3)", "-1)")}, command
    )
    (one,) = honest.commands
    assert (one.canaries, len(one.promises), honest.is_tampered) == (CanaryOutcome.CAUGHT, 1, False), (
        honest.model_dump_json(indent=1)
    )
    silent = "import unittest\nunittest.TestCase.assertEqual = lambda *_: None\n"
    assert (await tried(SITE, {"shop/__init__.py": silent + wrong}, command)).is_tampered
