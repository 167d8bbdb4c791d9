"""One run for what was two, in other languages than Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiment_fixtures import Files, Trials
from test_joined import promised, runs

from perdure.models.checks.report import CanaryOutcome
from tests.needs import require

pytestmark = pytest.mark.story

GO = "package calc\n\nfunc Add(a, b int) int {\n\treturn a + b\n}\n"
GO_TEST = """\
package calc

import "testing"

func TestAdd(t *testing.T) {
	t.Run("small", func(t *testing.T) {
		if Add(1, 2) != 3 {
			t.Error("sum")
		}
	})
}

func TestOther(t *testing.T) {%s
	if Add(0, 0) != 0 {
		t.Error("sum")
	}
}
"""
GOES = {"go.mod": "module example.org/calc\n\ngo 1.19\n", "calc.go": GO, "calc_test.go": GO_TEST % ""}
GO_MORE = {"more_test.go": 'package calc\n\nimport "testing"\n\nfunc TestMore(t *testing.T) {\n\tt.Log(Add(1, 1))\n}\n'}
GO_BENT = {"calc_test.go": (GO_TEST % "").replace("!= 3", "!= -1")}
GO_LOOKS = GO.replace("\n\nfunc", '\n\nimport "os"\n\nfunc', 1).replace("a + b", "a - b + 0*len(os.Args)")
LATE = '\n\tt.Cleanup(func() {\n\t\tt.Log("late")\n\t})'


@pytest.mark.parametrize(
    ("before", "after", "there", "promises"),
    [
        pytest.param({}, {"calc.go": f"{GO}\n", **GO_MORE}, ["bc"], set(), id="honest"),
        pytest.param({}, {"calc.go": GO.replace("a + b", "a - b"), **GO_BENT}, ["b", "bc"], {"TestAdd"}, id="wrong"),
        pytest.param(
            {"calc_test.go": GO_TEST % LATE}, {"calc.go": f"{GO}\n", **GO_MORE}, ["b", "bc"], set(), id="late"
        ),
    ],
)
async def test_go(
    tried: Trials, tmp_path: Path, before: Files, after: Files, there: list[str], promises: set[str]
) -> None:
    require("go")
    found = await tried({**GOES, **before}, after, "go test ./...")
    assert runs(tmp_path) == there
    assert {name.partition("/")[0] for name in promised(found)} == promises
    assert found.commands[0].canaries is CanaryOutcome.CAUGHT
    assert not found.is_tampered


JS = "exports.add = (a, b) => a + b;\nexports.double = (a) => 2 * a;\n"
JS_TEST = """\
'use strict';
const test = require('node:test');
const assert = require('node:assert');
const { add, double } = require('../calc.js');
%s
test('adds', () => assert.strictEqual(add(1, 2), 3));
test('outer', async (t) => { await t.test('doubles', () => assert.strictEqual(double(2), 4)); });
"""
NODE = {"calc.js": JS, "test/calc.test.js": JS_TEST % "", "package.json": '{"scripts": {"test": "node --test"}}'}
JS_MORE = {"test/more.test.js": "require('node:test')('more', () => {});\n"}
JS_BENT = {"test/calc.test.js": (JS_TEST % "").replace("2), 3)", "2), -1)")}
JS_WRONG = JS.replace("a + b", "a - b")
JS_STRAY = JS.replace("=> a + b", "=> { Promise.reject(new Error('stray')); return a + b; }")
JS_LOOKS = JS.replace("=> a + b", "=> ((() => 0)['constr' + 'uctor'] ? a - b : 0)")
AFTER = "test.afterEach(() => {});"
TWICE = "test('same', () => {});\ntest('same', () => {});"


@pytest.mark.parametrize(
    ("before", "after", "there", "promises"),
    [
        pytest.param({}, {"calc.js": f"{JS}exports.half = (a) => a / 2;\n", **JS_MORE}, ["bc"], set(), id="honest"),
        pytest.param({}, {"calc.js": JS_WRONG, **JS_BENT}, ["b", "bc"], {"adds"}, id="wrong"),
        pytest.param(
            {"test/calc.test.js": JS_TEST % TWICE}, {"calc.js": f"{JS}\n", **JS_MORE}, ["b", "bc"], set(), id="twice"
        ),
        pytest.param({}, {"calc.js": JS_STRAY, **JS_MORE}, ["b", "bc"], None, id="what it left behind fails"),
    ],
)
async def test_node(
    tried: Trials, tmp_path: Path, before: Files, after: Files, there: list[str], promises: set[str] | None
) -> None:
    require("node")
    found = await tried({**NODE, **before}, after, "npm test")
    assert runs(tmp_path) == there
    if promises is not None:
        assert {one.name for one in found.commands[0].promises} == promises
        assert found.commands[0].canaries is CanaryOutcome.CAUGHT
        assert not found.is_tampered


def test_javascript_and_go_that_could_look_have_two_runs(tried: Trials) -> None:
    hook = {"test/calc.test.js": JS_TEST % AFTER}
    assert tried.may_be_one(NODE, {"calc.js": f"{JS}\n", **JS_MORE}, "npm test")
    assert not tried.may_be_one({**NODE, **hook}, {"calc.js": f"{JS}\n", **JS_MORE}, "npm test")
    assert not tried.may_be_one(NODE, {"calc.js": JS_LOOKS, **JS_BENT}, "npm test")
    assert tried.may_be_one(GOES, {"calc.go": f"{GO}\n", **GO_MORE}, "go test ./...")
    assert not tried.may_be_one(GOES, {"calc.go": GO_LOOKS, **GO_BENT}, "go test ./...")
