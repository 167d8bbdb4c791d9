"""Reports arrive from runners whose reports lie at a path with every character that a home may have: in the weaker grades
nothing is mounted, and runners are told that path."""

# ruff: noqa: E501 - one runner a line

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.adapters.checks.runners.base import Invocation, StartupModule
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.sandbox.grades import probe_landlock, sandbox_for
from perdure.models.config.repository import SandboxGrade
from tests.adapters.checks.test_runner_table import (
    AVA,
    BATS,
    BUSTED,
    CMAKE,
    CTEST,
    MINITEST,
    MOCHA,
    PHPUNIT,
    PROVE,
    RSPEC,
    TAPE,
    UVU,
)
from tests.e2e.test_awkward_homes import AWKWARD
from tests.guide import installed
from tests.homes import fresh_home
from tests.needs import require
from tests.sandboxes import PYTEST, Bench

A_JS, MODULE = "test/a.test.js", {"package.json": '{"type": "module"}'}
NODE = "require('node:test')('adds', () => {}); require('node:test')('subs', () => { throw new Error('x'); });"
PYTHON = "import unittest\nclass T(unittest.TestCase):\n    def test_adds(self): pass\n    def test_subs(self): self.assertEqual(1, 2)\n"
GO = {
    "go.mod": "module calc\n\ngo 1.20\n",
    "a_test.go": 'package calc\n\nimport "testing"\n\nfunc TestAdds(t *testing.T) {}\nfunc TestSubs(t *testing.T) { t.Fail() }\n',
}
CARGO = {
    "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "#[test]\nfn adds() {}\n#[test]\nfn subs() { assert_eq!(1, 2); }\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Of a plain path: what a runner cannot read by its own path is no matter of ours."""
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def weak_bench(tree: Path, grade: str, name: str) -> Bench:
    """A bench whose home and reports lie below a directory of that name."""
    if grade == "reduced" and (error := probe_landlock()) is not None:
        pytest.skip(error.what)
    place = tree.with_name(name)
    home = fresh_home(place / "home")
    binds = compute_binds(
        tree, f"{Path(sys.executable).parent}:{os.environ['PATH']}", Path.home(), perdure_home=home.root
    )
    return Bench(sandbox_for(SandboxGrade(grade), home, binds), place / "logs")


SPARING = AWKWARD.replace("\\", "").replace(",", "")
"""Without two characters that some runners cannot be told."""


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("needs", "package", "files", "command", "name"),
    [
        pytest.param("", "", {"test_a.py": PYTHON}, PYTEST, AWKWARD, id="pytest"),
        pytest.param("", "", {"test_a.py": PYTHON}, "python3 -m unittest", AWKWARD, id="unittest"),
        pytest.param("node", "", {A_JS: NODE}, "node --test", SPARING, id="node"),
        pytest.param("node", "mocha", {A_JS: MOCHA}, "npx mocha", AWKWARD, id="mocha", marks=pytest.mark.slow),
        pytest.param("node", "ava", {A_JS: AVA, **MODULE}, "npx ava", SPARING, id="ava", marks=pytest.mark.story),
        pytest.param("node", "uvu", {A_JS: UVU, **MODULE}, "npx uvu test", AWKWARD, id="uvu"),
        pytest.param("node", "tape", {A_JS: TAPE}, "npx tape test/*.js", AWKWARD, id="tape", marks=pytest.mark.slow),
        pytest.param("node", "jest", {A_JS: "test('adds', () => {}); test('subs', () => expect(1).toBe(2));", **MODULE}, "npx jest", AWKWARD, id="jest", marks=pytest.mark.slow),
        pytest.param("node", "vitest", {A_JS: "import { test, expect } from 'vitest'; test('adds', () => {}); test('subs', () => expect(1).toBe(2));"}, "npx vitest run", SPARING, id="vitest", marks=pytest.mark.slow),
        pytest.param("prove", "", {"t/a.t": PROVE}, "prove -r t", AWKWARD, id="prove"),
        pytest.param("bats", "", {"test/a.bats": BATS}, "bats test", AWKWARD, id="bats"),
        pytest.param("ctest", "", {"CMakeLists.txt": CMAKE, "more/CMakeLists.txt": "add_test(NAME adds COMMAND true)\n"}, CTEST, SPARING, id="ctest"),
        pytest.param("busted", "", {"spec/a_spec.lua": BUSTED}, "busted spec/a_spec.lua", SPARING, id="busted"),
        pytest.param("phpunit", "", {"tests/CalcTest.php": PHPUNIT}, "phpunit tests", AWKWARD, id="phpunit"),
        pytest.param("rspec", "", {"spec/a_spec.rb": RSPEC}, "rspec spec/a_spec.rb", AWKWARD, id="rspec"),
        pytest.param("rake", "", {"test/calc_test.rb": MINITEST}, "ruby -Itest test/calc_test.rb", AWKWARD.replace(" ", ""), id="minitest"),
        pytest.param("go", "", GO, "go test ./...", AWKWARD, id="go"),
        pytest.param("cargo", "", CARGO, "cargo test --offline", AWKWARD, id="cargo"),
    ],
)  # fmt: skip
async def test_a_report_arrives_from_a_place_with_every_character_that_a_home_may_have(
    tree: Path, needs: str, package: str, files: Mapping[str, str], command: str, name: str
) -> None:
    if needs:
        require(needs)
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    if package:
        installed(tree, package)
    for grade in ("reduced", "off"):
        (result,) = (await weak_bench(tree, grade, name).run(tree, command)).commands
        assert {"passed", "failed"} <= {case.outcome for case in result.cases}, (grade, result, result.tail)


@pytest.mark.parametrize(("needs", "command"), [("ctest", "ctest"), ("busted", "busted spec")])
async def test_a_runner_that_cannot_be_told_the_path_counts_by_its_exit_code(
    tree: Path, needs: str, command: str
) -> None:
    require(needs)
    (tree / "CTestTestfile.cmake").write_text('add_test(adds "/bin/true")\n')
    (tree / "spec").mkdir()
    (tree / "spec" / "a_spec.lua").write_text("describe('x', function() it('adds', function() end) end)")
    (result,) = (await weak_bench(tree, "off", AWKWARD).run(tree, command)).commands
    assert (result.verdict, result.cases) == ("passed", ())


@pytest.mark.parametrize("program", ["python3", "node", "bash"])
async def test_a_module_that_each_process_loads_first_is_loaded_from_such_a_place(tree: Path, program: str) -> None:
    text = {"python3": "print('loaded')", "node": "console.log('loaded')", "bash": "echo loaded"}[program]
    if program == "node":
        require(program)
    place = tree.with_name(AWKWARD)
    place.mkdir()
    module = StartupModule("python" if program == "python3" else program, text)  # type: ignore[arg-type]
    call = module.add_to(Invocation(program), place, {})
    for file, source in call.files.items():
        file.write_text(source)
    (tree / "empty").touch()
    ran = subprocess.run([program, "empty"], cwd=tree, env={**os.environ, **call.env}, capture_output=True, check=True)
    assert ran.stdout == b"loaded\n"
