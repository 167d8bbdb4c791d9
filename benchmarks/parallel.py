"""Many deliveries at once, beside a plain script that does the same work (benchmarks/plain.py).

`make bench-parallel`: 1, 5 and 15 at once, with replies of the model after 2 s and at once, Perdure and the script in
turns on the same machine, ROUNDS rounds, medians, and their ratio; and the script's work as a bare workflow on the same
server (benchmarks/bare_temporal.py), which is what Temporal itself takes. Each delivery has six turns, five with a
command, is tested (the script runs the test command as often as Perdure did) and is pushed. Perdure's server and worker
run already, and the script's libraries are loaded. Beside the wall clock stands the processor time of a delivery, which
means something on a busy machine, too. The exit code is 1 when a ratio is over its target. ONLY="1 15" and REPLIES_S=0
leave parts out; PROFILE=1 counts calls of git; FILES=30000 puts so many more files into the repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from perdure.local.server import find_server
from tests.engine import CALC, Engine, finished, make_target

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SIZES = [int(size) for size in os.environ.get("ONLY", "1 5 15").split()]
REPLIES_S = [float(seconds) for seconds in os.environ.get("REPLIES_S", "2 0").split()]
PROFILE = bool(os.environ.get("PROFILE"))
FILES = int(os.environ.get("FILES", "0"))
TARGETS = {(2.0, 1): 1.02, (2.0, 5): 1.05, (2.0, 15): 1.05, (0.0, 1): 2.0, (0.0, 5): 2.0, (0.0, 15): 2.0}
TURNS = 6
RUNS = 4
"""Of the test command for a change: its own, the base's tests, the canaries, its tests on the base."""

TICKS = os.sysconf("SC_CLK_TCK")
CONFIG = 'version = 1\n[setup]\ncommands = []\n[[test]]\nname = "unit"\ncommand = "python3 -m unittest -q"\n'

WRITE = "printf '\\\\n\\\\ndef sub(a, b):\\\\n    return a - b\\\\n' >> calc.py"
TESTS = (
    "printf 'import unittest\\\\nfrom calc import sub\\\\n\\\\nclass Sub(unittest.TestCase):\\\\n"
    "    def test_sub(self):\\\\n        self.assertEqual(sub(3, 2), 1)\\\\n' > tests/test_sub.py"
)


def screenplay(seconds: float) -> str:
    commands = [WRITE, TESTS, *["cat calc.py | wc -l"] * (TURNS - 3)]
    lines = [
        f'[[line]]\nstep = "implement"\nturn = {turn}\nseconds = {seconds}\n'
        f'use = [{{ tool = "bash", input = {{ command = "{command}" }} }}]\n'
        for turn, command in enumerate(commands, start=1)
    ]
    return "\n".join([*lines, f'[[line]]\nstep = "implement"\nseconds = {seconds}\nsay = "Add sub"\n'])


@dataclass
class Side:
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    git: list[float] = field(default_factory=list)
    parts: list[list[float]] = field(default_factory=list)


def used(pid: int) -> tuple[float, float]:
    """Processor seconds of a process, and of its children that have ended."""
    fields = list(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return sum(fields[:2]) / TICKS, sum(fields[2:]) / TICKS


class Bench:
    def __init__(self, engine: Engine, origin: Path, worker: int, server: int, log: Path) -> None:
        self.engine, self.origin, self.processes, self.log = engine, origin, (worker, server), log
        self.made = 0

    async def perdure(self, many: int, side: Side) -> None:
        before = self._used()
        self.log.write_bytes(b"")
        ids = [f"bench-{self.made + number}" for number in range(many)]
        self.made += many
        asked: dict[str, Any] = {"phases": ["build", "test", "ship"], "config": CONFIG}
        began = time.perf_counter()
        submitted = await asyncio.gather(*(self.engine.submit(self.origin, id=id, **asked) for id in ids))
        results = await asyncio.gather(*(finished(one, self.engine, timeout=300) for one in submitted))
        side.seconds.append(time.perf_counter() - began)
        assert {result.status for result in results} == {"draft"}, results  # nobody reviewed it
        side.parts.append([(now - was) / many for now, was in zip(self._used(), before, strict=True)])
        side.cpu.append(sum(side.parts[-1]))
        calls = self.log.read_text().splitlines()
        side.git.append(len(calls) / many)
        if PROFILE and many == SIZES[-1]:
            for name, times in Counter(calls).most_common(25):
                print(f"    {times / many:5.1f} git {name}")

    def _used(self) -> list[float]:
        """Of the worker, its children, the server."""
        worker, server = map(used, self.processes)
        return [*worker, sum(server)]

    async def plain(self, many: int, side: Side, *, bare: bool = False) -> None:
        """`bare`: as a workflow without any engine, on the same server, whose processor time counts, too."""
        before = self._used()[2]
        name = "bare_temporal.py" if bare else "plain.py"
        command = [sys.executable, str(Path(__file__).with_name(name)), str(self.origin)]
        assert self.engine.rehearsal is not None
        command += [self.engine.rehearsal.url, str(many), str(RUNS)]
        command += [self.engine.client.service_client.config.target_host, self.engine.client.namespace] if bare else []
        script = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await script.communicate()
        assert script.returncode == 0
        said = json.loads(out)
        side.seconds.append(said["seconds"])
        side.cpu.append((said["cpu"] + (self._used()[2] - before if bare else 0.0)) / many)
        side.git.append(said["git"])


async def measure(root: Path, seconds: float) -> bool:
    more = {f"src/{number % 97}/{number % 13}/{number}.txt": f"{number}\n" * 200 for number in range(FILES)}
    origin, log, shims = make_target(root / "calc.git", {**CALC, **more}), root / "git.log", root / "bin"
    env = {}
    if PROFILE:
        shims.mkdir()
        shim = shims / "git"
        shim.write_text(SHIM.format(log=log, git=shutil.which("git")))
        shim.chmod(0o755)
        env["PATH"] = f"{shims}:{os.environ['PATH']}"
    kept = True
    async with Engine.open(root, screenplay(seconds), env=env, own_server=True) as engine:
        worker, server = engine.worker(), await find_server(engine.home)
        assert server is not None
        bench = Bench(engine, origin, worker.pid, server.pid, log)
        await bench.perdure(1, Side())  # what is loaded once, and what the base's tests say
        sides = {size: (Side(), Side(), Side()) for size in SIZES}
        for _ in range(ROUNDS):
            for size, (ours, plain, bare) in sides.items():
                await bench.perdure(size, ours)
                await bench.plain(size, plain)
                await bench.plain(size, bare, bare=True)
        for size, sides_of in sides.items():
            kept = told(seconds, size, *sides_of) and kept
    return kept


def told(seconds: float, size: int, ours: Side, plain: Side, bare: Side) -> bool:
    """Print a line; True where the target is met."""
    middle = statistics.median
    walls = middle(ours.seconds), middle(plain.seconds)
    ratio, target = walls[0] / walls[1], TARGETS.get((seconds, size), 0.0)
    over = bool(target) and ratio > target
    worker, children, server = (middle(part) for part in zip(*ours.parts, strict=True))
    print(
        f"replies after {seconds:g} s, {size:2} at once: {walls[0]:6.2f} / {walls[1]:6.2f} s = "
        f"{ratio:.2f} (target {target:g}{', OVER' if over else ''}) · processor a delivery {middle(ours.cpu):.2f} / "
        f"{middle(plain.cpu):.2f} s (worker {worker:.2f}, its children {children:.2f}, server {server:.2f})"
        + f" · a bare workflow {middle(bare.seconds):.2f} s = {middle(bare.seconds) / walls[1]:.2f}"
        f" ({middle(bare.cpu):.2f} s of a processor)"
        + (f" · git {ours.git[-1]:.0f} / {plain.git[-1]:.0f}" if PROFILE else ""),
        flush=True,
    )
    return not over


SHIM = """#!/bin/sh
for one in "$@"; do
  case "$skip$one" in
    x*) skip= ;;
    -c|-C|--git-dir|--work-tree) skip=x ;;
    -*) ;;
    *) echo "$one" >> {log}; break ;;
  esac
done
exec {git} "$@"
"""


async def main() -> int:
    print(f"{ROUNDS} rounds, medians; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    kept = True
    for seconds in REPLIES_S:
        with tempfile.TemporaryDirectory(prefix="bench-parallel-") as scratch:
            kept = await measure(Path(scratch), seconds) and kept
    return 0 if kept else 1


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit
