"""The experiments with a runner that is a row of data: what its tests promise counts, and that no canary was asked is
said."""

from __future__ import annotations

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
