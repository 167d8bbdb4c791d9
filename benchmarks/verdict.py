"""What a verdict costs: a test command as Perdure runs it, against the same command typed into a shell.

`make bench-verdict`: three repositories (pytest with a suite of two to three seconds, node's runner, a shell script
under make), in turns, the median of ROUNDS. Perdure's side is all of it: a clean checkout of the commit, the sandbox,
the report asked for and read, the comparison with the base. The bare side is the command alone, in a checkout it has
not run in before. The exit code is 1 when a median's overhead is over 15 % and over 0.3 s. The sandbox gives way to
everything else (SANDBOX_NICE), so that the figures mean something on a quiet machine only; NICE=10 gives the bare side
the same priority, for a look on a busy one.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from perdure.adapters.git import surface
from perdure.adapters.git.branch import export
from perdure.adapters.git.vault import Vault
from perdure.adapters.host.home import Home
from perdure.adapters.host.threads import in_thread
from perdure.adapters.project.tests import Baseline, run_tests
from perdure.adapters.project.verdict import verdict
from perdure.adapters.sandbox.select import sandbox_for
from perdure.adapters.sandbox.toolchain import compute_binds
from perdure.models.config import SandboxGrade, TestCommand
from perdure.models.report import TestReport
from tests.lab import make_target

ROUNDS = int(os.environ.get("ROUNDS", "7"))
NICE = os.environ.get("NICE", "0")
MOST_RATIO, MOST_S = 0.15, 0.3
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

SLOW = """\
import time
import pytest

@pytest.mark.parametrize("number", range(32))
def test_waits_and_counts(number):
    time.sleep(0.002)
    assert sum(range(40_000)) == 799_980_000
"""

NODE = """\
const {{test}} = require('node:test');
const assert = require('node:assert');
for (let n = 0; n < 20; n++) test(`case ${{n}} of {number}`, () => assert.equal(n + 1, 1 + n));
"""

REPOSITORIES = {
    "pytest": ("pytest -q", {f"tests/test_{n}.py": SLOW for n in range(20)}),
    "node": ("npm test", {"package.json": '{"scripts": {"test": "node --test"}}'}
             | {f"test/{n}.test.js": NODE.format(number=n) for n in range(4)}),
    "make": ("make test", {"Makefile": "test:\n\t@sh check.sh\n",
                           "check.sh": "for n in 1 2 3 4 5; do sleep 0.1; echo ok $n; done\n"}),
}  # fmt: skip


class Bench:
    """One repository in a vault, with the sandbox its tests run in."""

    def __init__(self, root: Path, command: str, files: dict[str, str]) -> None:
        origin = make_target(root / "origin.git", files)
        home = Home(root / "home")
        self.vault = Vault.open(home, str(origin))
        _, self.commit = self.vault.fetch("main")
        self.tree = self.vault.tree_of(self.commit)
        self.command, self.clean, self.root = TestCommand(name="unit", command=command), root / "clean", root
        binds = compute_binds(root, PATH, Path.home(), perdure_home=home.root)
        self.sandbox = sandbox_for(SandboxGrade.FULL, home, binds)
        self.worktree = root / "worktree"
        self.worktree.mkdir()

    def checkout(self) -> Path:
        surface.remove(self.clean)
        export(self.vault, self.commit, self.clean)
        return self.clean

    async def structured(self, baseline: TestReport | None) -> tuple[float, TestReport]:
        """Seconds for a verdict, and what it rests on."""
        begun = time.perf_counter()
        report = await run_tests(
            self.sandbox,
            worktree=self.worktree,
            source=await in_thread(self.checkout),
            shared=(),
            git_dir=self.vault.path,
            commands=[self.command],
            env={},
            log_dir=self.root / "logs",
            lock=None,
            commit=self.commit,
            tree=self.tree,
            on_progress=lambda _: None,
            baseline=Baseline(baseline, "main") if baseline else None,
        )
        assert verdict(report).status == "green", report
        return time.perf_counter() - begun, report

    def bare(self) -> float:
        """Seconds for the command alone."""
        clean = self.checkout()
        environment = {"PATH": PATH, "HOME": str(self.root), "LANG": "C.UTF-8"}
        begun = time.perf_counter()
        subprocess.run(
            ["nice", "-n", NICE, "/bin/bash", "-c", self.command.command], cwd=clean, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=300,
        )  # fmt: skip
        return time.perf_counter() - begun


async def measure(name: str, root: Path) -> bool:
    command, files = REPOSITORIES[name]
    root.mkdir()
    bench = Bench(root, command, files)
    _, baseline = await bench.structured(None)
    bench.bare()
    bare, ours = [], []
    for _ in range(ROUNDS):
        bare.append(bench.bare())
        ours.append((await bench.structured(baseline))[0])
    plain, checked = statistics.median(bare), statistics.median(ours)
    over = checked - plain
    kept = over <= max(MOST_S, MOST_RATIO * plain)
    print(
        f"{name:6} bare {plain:5.2f} s  verdict {checked:5.2f} s  overhead {over:+.2f} s = {over / plain:+.0%}"
        f"  {'ok' if kept else 'OVER 15 % and 0.3 s'}",
        flush=True,
    )
    return kept


async def main() -> int:
    print(f"median of {ROUNDS} rounds; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        kept = [await measure(name, Path(scratch) / name) for name in REPOSITORIES]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
