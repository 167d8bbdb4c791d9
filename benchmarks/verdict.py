"""What a verdict costs: a test command as Perdure runs it, against the same command typed into a shell.

`make bench-verdict`: four repositories (suites of two to three seconds of pytest, node's runner and go test, a shell
script under make), in turns, the median of ROUNDS, each part beside the bare command and in its multiples:

verdict     all of A: a clean checkout of the commit, the sandbox, the report asked for and read, the comparison
flake       what is added by one new failure that does not happen again: it is run once more, alone
touched     B, C and D of a change of product and tests, beside each other
new tests   the same of a change that leaves the tests there are alone and adds a file of its own

The bare side is the command alone, in a checkout it has not run in before, its caches warm. The exit code is 1 when a
median is over its limit: 15 % more than bare for a verdict, 1.5 bare runs for `touched` and `new tests`, each with
0.3 s for what does not grow with the suite. The sandbox gives way to everything else (SANDBOX_NICE), so that the
figures mean something on a quiet machine only; NICE=10 gives the bare side the same priority, for a look on a busy one.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from perdure.adapters.checks.compiler_caches import CompilerCache
from perdure.adapters.checks.experiment.run_experiment import run_experiment
from perdure.adapters.checks.experiment.runs import ExperimentSetting, ReadOnlyTestSide
from perdure.adapters.checks.tests import Baseline, CommandPlace, run_tests
from perdure.adapters.checks.trees import CommitTree, write_tree
from perdure.adapters.checks.verdict import verdict_of
from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.vault import Vault
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.system.directories import remove_path
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results
from perdure.adapters.system.threads import in_thread
from perdure.models.checks.report import TestReport
from perdure.models.config.repository import SandboxGrade, TestCommand
from tests.engine import make_target

ROUNDS = int(os.environ.get("ROUNDS", "7"))
NICE = os.environ.get("NICE", "0")
ONLY = os.environ.get("ONLY", "").split()
MOST_RATIO, MOST_S = 0.15, 0.3
EXPERIMENTS_RATIO = 1.5
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

Files = Mapping[str, str]

SLOW = """\
import time
import pytest
from calc import add

@pytest.mark.parametrize("number", range(32))
def test_waits_and_counts(number):
    time.sleep(0.002)
    assert sum(range(40_000)) == add(799_980_000, 0)
"""
FLAKY = """\
import pathlib

def test_second():
    mark = pathlib.Path("mark")
    seen = mark.exists()
    mark.touch()
    assert seen
"""
NODE = """\
const {{test}} = require('node:test');
const assert = require('node:assert');
const {{one}} = require('../calc.js');
const sum = () => {{ let all = 0; for (let n = 0; n < 2e7; n++) all += n % 7; return all; }};
for (let n = 0; n < 20; n++) test(`case ${{n}} of {number}`, () => assert.equal(sum() * 0 + n + one, 1 + n));
"""
NODE_FLAKY = """\
const fs = require('node:fs');
require('node:test')('second', () => { const seen = fs.existsSync('mark'); fs.writeFileSync('mark', ''); if (!seen) throw 1; });
"""  # noqa: E501
GO = """\
package calc

import (
	"testing"
	"time"
)

func Test{0}(t *testing.T) {{
	for n := 0; n < 200; n++ {{
		time.Sleep(time.Millisecond)
		if One()+n != n+1 {{
			t.Fatal(n)
		}}
	}}
}}
"""
GO_FLAKY = """\
package calc

import (
	"os"
	"testing"
)

func TestSecond(t *testing.T) {
	_, err := os.Stat("mark")
	os.WriteFile("mark", nil, 0o644)
	if err != nil {
		t.Fatal("first")
	}
}
"""


class Case:
    """A repository: its command, its files, and what changes lay over them. Without `new`: it tells no tests apart.

    forgetting  a command without which the bare side would print what it remembers, and run no test
    """

    def __init__(
        self, command: str, files: Files, flaky: Files, touched: Files, new: Files, forgetting: str = ""
    ) -> None:
        self.command, self.files, self.flaky, self.touched, self.new = command, files, flaky, touched, new
        self.forgetting = forgetting


_CALC = "def add(a, b):\n    return a + b\n"
_ONE = "exports.one = 1;\n"
_GO_ONE = "package calc\n\nfunc One() int {\n\treturn 1\n}\n"
REPOSITORIES = {
    "pytest": Case(
        "pytest -q",
        {"calc.py": _CALC, "conftest.py": ""} | {f"tests/test_{n}.py": SLOW for n in range(20)},
        {"tests/test_flaky.py": FLAKY},
        {"tests/test_0.py": f"{SLOW}\ndef test_more():\n    from calc import half\n    assert half(4) == 2\n"},
        {
            "calc.py": f"{_CALC}\n\ndef half(a):\n    return a / 2\n",
            "tests/test_half.py": "from calc import half\n\ndef test_half():\n    assert half(4) == 2\n",
        },
    ),
    "node": Case(
        "npm test",
        {"package.json": '{"scripts": {"test": "node --test"}}', "calc.js": _ONE}
        | {f"test/{n}.test.js": NODE.format(number=n) for n in range(4)},
        {"test/flaky.test.js": NODE_FLAKY},
        {"test/0.test.js": NODE.format(number=0) + "test('two', () => assert.equal(require('../calc.js').two, 2));\n"},
        {
            "calc.js": f"{_ONE}exports.two = 2;\n",
            "test/two.test.js": "require('node:test')('two', () => require('node:assert').equal(require('../calc.js').two, 2));\n",  # noqa: E501
        },
    ),
    "go": Case(
        "go test ./...",
        {"go.mod": "module example.com/calc\n\ngo 1.19\n", "calc.go": _GO_ONE}
        | {f"calc{n}_test.go": GO.format(n) for n in range(10)},
        {"flaky_test.go": GO_FLAKY},
        {"calc0_test.go": GO.format(0) + "\nfunc TestTwo(t *testing.T) {\n\tif Two() != 2 {\n\t\tt.Fatal()\n\t}\n}\n"},
        {
            "calc.go": f"{_GO_ONE}\nfunc Two() int {{\n\treturn 2\n}}\n",
            "two_test.go": GO.format("Both").replace("One()+n != n+1", "Two()+n != n+2"),
        },
        forgetting="go clean -testcache",
    ),
    "make": Case(
        "make test",
        {"Makefile": "test:\n\t@sh check.sh\n", "check.sh": "for n in 1 2 3 4 5; do sleep 0.1; echo ok $n; done\n"},
        {}, {}, {},
    ),
}  # fmt: skip


class Bench:
    """One repository in a vault, with the sandbox its tests run in."""

    def __init__(self, root: Path, case: Case) -> None:
        origin = make_target(root / "origin.git", dict(case.files))
        home = Home(root / "home")
        self.vault = Vault.open_or_create(home, str(origin))
        self.checkouts = CheckoutPool.for_vault(home, self.vault, keeps_new=False)
        _, self.commit = self.vault.fetch("main")
        self.tests, self.clean, self.root = [TestCommand(name="unit", command=case.command)], root / "clean", root
        binds = compute_binds(root, PATH, Path.home(), perdure_home=home.root)
        self.sandbox = sandbox_for(SandboxGrade.FULL, home, binds)
        self.worktree = root / "worktree"
        self.worktree.mkdir()
        self.seed = CompilerCache(kept_results(home, "seeds"), "base")
        self.forgetting, logs = case.forgetting, self.root / "logs"
        self.place = CommandPlace(self.sandbox, self.worktree, logs, git_dir=self.vault.path, compiler_cache=self.seed)

    def changed(self, *over: Files) -> str:
        """A commit with these files laid over the first."""
        entries = dict(CommitTree.from_commit(self.vault, self.commit).entries)
        for files in over:
            entries |= {path: ("100644", self.vault.objects.write_blob(text.encode())) for path, text in files.items()}
        return self.vault.objects.write_commit(write_tree(self.vault, entries), (self.commit,), "changed", timestamp=0)

    def checkout(self, commit: str) -> Path:
        remove_path(self.clean)
        self.checkouts.check_out(commit, self.clean)
        return self.clean

    async def structured(self, commit: str, baseline: TestReport | None) -> tuple[float, TestReport]:
        """Seconds for a verdict, and what it rests on."""
        begun = time.perf_counter()
        holding = await in_thread(ReadOnlyTestSide.from_commit, self.vault, commit, self.tests, ())
        place = replace(self.place, compiler_cache=replace(self.seed, is_base_run=baseline is None))
        report = await run_tests(
            replace(place, source=await in_thread(self.checkout, commit)),
            commands=self.tests,
            commit=commit,
            tree=self.vault.tree_of(commit),
            on_progress=lambda _: None,
            baseline=Baseline(baseline, "main") if baseline else None,
            held=holding.paths_for_command,
        )
        assert verdict_of(report).status == "green", report
        return time.perf_counter() - begun, report

    async def tried(self, commit: str, before: TestReport, now: TestReport) -> float:
        """Seconds for the experiments with a green change. They told what they are there for, or it means nothing."""
        begun = time.perf_counter()
        ground = ExperimentSetting(
            self.place, self.vault, self.checkouts.check_out, self.checkouts.put_away, self.root / "room"
        )
        found = await run_experiment(ground, self.commit, commit, self.tests, base_report=before, change_report=now)
        took = time.perf_counter() - begun
        (one,) = found.commands
        assert not found.is_tampered, found
        assert (one.canaries, one.base_tests) == ("caught", one.base_passed), found
        assert one.proving, found
        return took

    def bare(self, commit: str) -> float:
        """Seconds for the command alone."""
        clean = self.checkout(commit)
        environment = {"PATH": PATH, "HOME": str(self.root), "LANG": "C.UTF-8"}
        if self.forgetting:
            subprocess.run(shlex.split(self.forgetting), env=environment, check=True, timeout=60)
        begun = time.perf_counter()
        subprocess.run(
            ["nice", "-n", NICE, "/bin/bash", "-c", self.tests[0].command], cwd=clean, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=300,
        )  # fmt: skip
        return time.perf_counter() - begun


async def measure(name: str, root: Path) -> bool:
    case = REPOSITORIES[name]
    root.mkdir()
    bench = Bench(root, case)
    _, base = await bench.structured(bench.commit, None)
    bench.bare(bench.commit)
    took: dict[str, list[float]] = {part: [] for part in ("bare", "verdict", "flake", "touched", "new tests")}
    changes = (
        {"touched": bench.changed(case.new, case.touched), "new tests": bench.changed(case.new)} if case.new else {}
    )
    reports = {part: (await bench.structured(commit, base))[1] for part, commit in changes.items()}
    flaky = bench.changed(case.flaky) if case.flaky else ""
    for _ in range(ROUNDS):
        took["bare"].append(bench.bare(bench.commit))
        took["verdict"].append((await bench.structured(bench.commit, base))[0])
        if flaky:
            took["flake"].append((await bench.structured(flaky, base))[0] - took["verdict"][-1])
        for part, commit in changes.items():
            took[part].append(await bench.tried(commit, base, reports[part]))
    bare = statistics.median(took["bare"])
    limits = {"verdict": 1 + MOST_RATIO, "touched": EXPERIMENTS_RATIO, "new tests": EXPERIMENTS_RATIO}
    kept, line = True, f"{name:6} bare {bare:5.2f} s"
    for part, seconds in list(took.items())[1:]:
        if seconds:
            middle = statistics.median(seconds)
            over = part in limits and middle > limits[part] * bare + (MOST_S if part != "verdict" else 0)
            over = over and (part != "verdict" or middle - bare > MOST_S)
            kept = kept and not over
            line += f" · {part} {middle:5.2f} s = {middle / bare:4.2f}{' OVER' if over else ''}"
    print(line, flush=True)
    return kept


async def main() -> int:
    print(f"median of {ROUNDS} rounds; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        names = [name for name in REPOSITORIES if not ONLY or name in ONLY]
        if "go" in names and shutil.which("go") is None:
            names.remove("go")
            print("go is not here: left out (sudo apt-get install -y golang-go)", flush=True)
        kept = [await measure(name, Path(scratch) / name) for name in names]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
