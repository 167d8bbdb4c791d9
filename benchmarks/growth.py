"""The cost of a turn by its place in a step, in processor seconds, which mean something on a busy machine, too.

`make bench-growth`, row a: a step of TURNS (96) turns, each with one command that changes a file and prints nothing, 1
KB or 4 KB (PRINTS="0 4096"); processor seconds of the worker's own process, of the children it has waited for, and of
the server, a turn, for each twelve turns. A turn is counted from its request's arrival at the model to that of the
next. The exit code is 1 where one of the last twelve turns costs the worker's own process more than MOST of one of the
first twelve, or the exponent of all turns from 6 to 96 or from 24 to 96 is over EXPONENT.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.parallel import used
from perdure.local.server import find_server
from tests.engine import BUILT, Engine, finished, make_target

TURNS = int(os.environ.get("TURNS", "96"))
PRINTS = [int(size) for size in os.environ.get("PRINTS", "0 4096").split()]
MOST, EXPONENT, WINDOW = 1.15, 1.05, 12
REQUEST = {**BUILT, "config": f"{BUILT['config']}[limits]\nturns_per_step = {TURNS + 10}\nbudget_usd = 1000\n"}


def write_screenplay(size: int) -> str:
    """Turns that each add a line to a file and print `size` characters, other ones each time."""
    lines = []
    for turn in range(1, TURNS + 1):
        command = f"echo {turn} >> notes.txt"
        if size:
            command += f"; seq {turn}000000 {turn}999999 | head -c {size}"
        lines.append(f'[[line]]\nstep = "implement"\nturn = {turn}\n')
        lines.append(f'use = [{{ tool = "bash", input = {{ command = "{command}" }} }}]\n')
    return "\n".join([*lines, '[[line]]\nstep = "implement"\nsay = "Add notes"\n'])


async def measure_turns(root: Path, size: int) -> list[list[float]]:
    """Return for each turn the processor seconds of the worker's own process, its children and the server."""
    origin = make_target(root / "calc.git")
    async with Engine.open(root, write_screenplay(size), own_server=True) as engine:
        worker, server = engine.worker(), await find_server(engine.home)
        assert server is not None
        assert engine.rehearsal is not None
        await finished(await engine.submit(origin, id="warm", **REQUEST), engine, timeout=600)
        marks: list[list[float]] = []
        record = engine.rehearsal._record
        new_call = record.new_call

        def marked_call():  # type: ignore[no-untyped-def]
            marks.append([*used(worker.pid), sum(used(server.pid))])
            return new_call()

        record.new_call = marked_call  # type: ignore[method-assign]
        result = await finished(await engine.submit(origin, id="growth", **REQUEST), engine, timeout=600)
        assert result.status in ("draft", "delivered"), result.message
    marks = marks[-TURNS - 1 :]
    return [[now - was for now, was in zip(*pair, strict=True)] for pair in zip(marks[1:], marks, strict=False)]


def print_table(size: int, turns: Sequence[Sequence[float]]) -> bool:
    """Print the table of one size; return whether it is within the limits."""
    print(f"\n{size} characters a turn\n\n| turns | own | children | server |\n|---|---|---|---|")
    for first in range(0, len(turns), WINDOW):
        means = [sum(part) / len(part) for part in zip(*turns[first : first + WINDOW], strict=True)]
        print(f"| {first + 1}-{first + WINDOW} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")
    own = [turn[0] for turn in turns]
    ratio = sum(own[-WINDOW:]) / sum(own[:WINDOW])
    exponents = {
        (few, many): math.log(sum(own[:many]) / sum(own[:few])) / math.log(many / few)
        for few, many in ((6, 96), (24, 96))
        if many <= len(own)
    }
    shown = ", ".join(f"{few} to {many}: {exponent:.2f}" for (few, many), exponent in exponents.items())
    print(f"\nlast / first twelve: {ratio:.2f} (at most {MOST}); exponent {shown} (at most {EXPONENT})", flush=True)
    return ratio <= MOST and all(exponent <= EXPONENT for exponent in exponents.values())


async def main() -> int:
    within = True
    for size in PRINTS:
        with tempfile.TemporaryDirectory(prefix="bench-growth-") as scratch:
            within = print_table(size, await measure_turns(Path(scratch), size)) and within
    return 0 if within else 1


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit
