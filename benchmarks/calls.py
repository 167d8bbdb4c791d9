"""The calls of one delivery: git, programs started, fsync, execve in vain; exact on a busy machine, too.

`make bench-calls`: a delivery of tests/screenplays/add_sub.toml whose base is known already, its worker and all that
it starts under strace. Limits are for ten requests to the model. The exit code is 1 where a number is over its limit.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.engine import HAPPY, TESTED, Engine, finished, make_target

LIMITS = {"calls of git": 80, "programs started": 180, "fsync": 120, "execve in vain": 0}
CALLS = "execve,fsync,fdatasync,syncfs,sync"
ATTACHED = "attached"
"""strace says so on its standard error, a line for each thread."""


def count_calls(lines: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """Return how often each thing of LIMITS was done, and how often each command of git, from the lines of a trace."""
    counts, commands = Counter[str](), Counter[str]()
    for line in lines:
        if (program := re.match(r'\d+\s+execve\("([^"]*)", \[(.*?)\](?:, |$)', line)) is None:
            counts["fsync"] += re.match(r"\d+\s+(f(data)?sync|syncfs|sync)\(", line) is not None
        elif "= -1" in line:
            counts["execve in vain"] += 1
        else:
            counts["programs started"] += 1
            if program[1].endswith("/git"):
                counts["calls of git"] += 1
                words = re.findall(r'"((?:[^"\\]|\\.)*)"', program[2])[1:]
                commands[next((word for word in words if re.fullmatch(r"[a-z][a-z-]+", word)), "?")] += 1
    return counts, commands


async def trace_delivery(root: Path) -> tuple[list[str], int]:
    """Return the lines of the trace of a second delivery, and the number of its requests to the model."""
    origin, trace = make_target(root / "calc.git"), root / "trace"
    async with Engine.open(root, HAPPY, own_server=True) as engine:
        worker = engine.worker()
        await finished(await engine.submit(origin, id="first", **TESTED), engine, timeout=600)
        assert engine.rehearsal is not None
        before = len(engine.rehearsal.calls)
        strace = subprocess.Popen(
            ["strace", "-f", "-v", "-s", "100", "-o", str(trace), "-e", f"trace={CALLS}", "-p", str(worker.pid)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert strace.stderr is not None
        while ATTACHED not in strace.stderr.readline():
            assert strace.poll() is None, "strace has ended"
        await finished(await engine.submit(origin, id="second"), engine, timeout=600)
        strace.send_signal(signal.SIGINT)
        strace.communicate(timeout=60)
        return trace.read_text(errors="replace").splitlines(), len(engine.rehearsal.calls) - before


async def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bench-calls-") as scratch:
        lines, requests = await trace_delivery(Path(scratch))
    counts, commands = count_calls(lines)
    print(f"{requests} requests\n\n| | number | limit |\n|---|---|---|")
    for name, limit in LIMITS.items():
        print(f"| {name} | {counts[name]} | {limit} |")
    print("\n" + ", ".join(f"{name} {number}" for name, number in commands.most_common()), flush=True)
    return int(any(counts[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit
