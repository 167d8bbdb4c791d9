"""The experiments with a runner that is a row of data: what its tests promise counts, and that no canary was asked is
said."""

from __future__ import annotations

import subprocess
import sys

import pytest
from experiment_fixtures import Files, Trials

from perdure.models.checks.report import CanaryOutcome
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
    assert one.canaries is CanaryOutcome.NOT_ASKED
    assert "no test file of the base takes a test that must fail" in one.unasked


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
