"""`make attack`: the whole table, as whoever runs it; by root once more as an ordinary user.

python -m tests.attack [--only WORD]… [--short]
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.attack.cases import CASES
from tests.attack.table import GAP, MISSED, ground, row, tried
from tests.other_users import NOBODY, everybodys_python

ROOT = Path(__file__).parents[2]

ROW_LIMIT = 600
"""Seconds without a new row after which the other half hangs: the longest row takes a minute, ten where four runs share
two processors."""


def main() -> int:
    options = argparse.ArgumentParser(prog="make attack")
    options.add_argument("--only", action="append", default=[], help="cases whose group or name has this word")
    options.add_argument("--short", action="store_true", help="the fixed part that runs with the tests")
    options.add_argument("--half", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    chosen = [
        case for case in CASES
        if (case.short or not given.short) and all(word in f"{case.group} {case.name}" for word in given.only)
    ]  # fmt: skip
    if not chosen:
        options.exit(2, f"make attack: no case has {' and '.join(map(repr, given.only))} in its group or name\n")
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    logging.disable(logging.CRITICAL)  # what is seen stands in the table
    other = _as_nobody(sys.argv[1:]) if who == "root" and not given.half else None
    begun, count, took = time.monotonic(), Counter[str](), dict[str, float]()
    print(f"\nas {who}\nverdict  | group | case | expected | seen", flush=True)
    with ground() as at:
        for case in chosen:
            words = f"{case.group} {case.name}"
            at_this = time.monotonic()
            seen = tried(case, at)
            took[words] = time.monotonic() - at_this
            count[seen.verdict] += 1
            print(row(case, seen), flush=True)
    told = ", ".join(f"{number} {verdict}" for verdict, number in count.items())
    benign = sum(case.benign for case in chosen)
    print(f"as {who}: {len(chosen) - benign} attacks and {benign} benign cases, {told}, "
          f"{count[MISSED]} missed, {count[GAP]} gaps, "
          f"{time.monotonic() - begun:.0f} s")  # fmt: skip
    longest = sorted(took, key=took.__getitem__)[:-6:-1]
    print("longest: " + ", ".join(f"{took[words]:.0f} s {words}" for words in longest), flush=True)
    code = 1 if count[MISSED] else 0
    return code | other() if other else code


def _as_nobody(options: list[str]) -> Callable[[], int]:
    """Begin the same as nobody, by a Python that nobody can start. What is returned waits for it and shows its rows."""
    program = everybodys_python()
    if program is None:
        print("as an ordinary user: left out: no Python of this version here can be started by one")
        return lambda: 1
    home = tempfile.TemporaryDirectory(prefix="nobody-")
    os.chown(home.name, NOBODY, NOBODY)
    programs = Path(home.name, "bin")  # not root's own: its Python may lie where nobody else may enter
    programs.mkdir()
    programs.chmod(0o755)
    (programs / "temporal").symlink_to(Path(sys.executable).with_name("temporal"))
    paths = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    env = {
        "PATH": f"/usr/local/bin:/usr/bin:/bin:{programs}",
        "HOME": home.name,
        "TMPDIR": home.name,
        "LANG": "C.UTF-8",
    }
    env |= {"PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    rows = Path(home.name, "rows")
    with rows.open("w") as file:
        process = subprocess.Popen(
            [program, "-m", "tests.attack", "--half", *options],
            cwd=ROOT, env=env, user=NOBODY, group=NOBODY, extra_groups=[], stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def wait() -> int:
        with home:
            code = _wait_while_it_grows(process, rows)
            print(rows.read_text(), flush=True)
        return code

    return wait


def _wait_while_it_grows(process: subprocess.Popen[bytes], rows: Path) -> int:
    """Wait for the process as long as it goes on adding rows, each of which has limits of its own; kill it otherwise.
    Return its exit code."""
    size = -1
    while rows.stat().st_size > size:
        size = rows.stat().st_size
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=ROW_LIMIT)
    print(f"as an ordinary user: ended, as no row came for {ROW_LIMIT} s", flush=True)
    process.kill()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
