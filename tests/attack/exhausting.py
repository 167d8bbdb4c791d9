"""Texts made to exhaust who reads them. Each is read in a child process with limits, and has to be refused in words.

`python -m tests.attack.exhausting [NAME…]` prints `NAME<tab>what was seen` for each that ended.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from inspect import isfunction
from types import ModuleType

from perdure.models.errors import PerdureError
from tests.attack import exhausting_files, exhausting_words


def _cases(module: ModuleType) -> dict[str, Callable[[], object]]:
    """The public functions of a module, by their names as words: each makes such a text and has it read."""
    functions = {name: value for name, value in vars(module).items() if isfunction(value)}
    return {name.replace("_", " "): value for name, value in functions.items() if not name.startswith("_")}


CASES = _cases(exhausting_words) | _cases(exhausting_files)

CPU_S, MEMORY_BYTES = 30, 1536 * 1024**2
"""Of one child for all cases: reading them all takes 3 s and 150 MB; any of them unbounded takes more than this."""


def run(names: Iterable[str] = ()) -> dict[str, str]:
    """The outcome of each case. A case that ends the child is missing, and the others go on in another child."""
    left, seen = list(names or CASES), dict[str, str]()
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")
    }  # its time would count
    while left:
        command = [sys.executable, "-m", "tests.attack.exhausting", *left]
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=300, env=env, preexec_fn=_limit
        )
        told = dict(line.split("\t", 1) for line in ran.stdout.splitlines() if "\t" in line)
        seen |= told
        left = left[len(told) + 1 :]
    return seen


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _outcome(read: Callable[[], object]) -> str:
    """`read`, or `refused: …`, as it says."""
    try:
        read()
    except (PerdureError, ValueError) as error:
        return f"refused: {' '.join(str(error).split())[:100]}"
    return "read"


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print(name, _outcome(CASES[name]), sep="\t", flush=True)
