"""`make attack`: the whole table, as whoever runs it; by root once more as an ordinary user.

python -m tests.attack [--only WORD]… [--short]
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.attack.cases import CASES
from tests.attack.table import GAP, MISSED, ground, row, tried

ROOT = Path(__file__).parents[2]
NOBODY = 65534


def main() -> int:
    options = argparse.ArgumentParser(prog="make attack")
    options.add_argument("--only", action="append", default=[], help="cases whose group or name has this word")
    options.add_argument("--short", action="store_true", help="the fixed part that runs with the tests")
    options.add_argument("--half", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    logging.disable(logging.CRITICAL)  # what is seen stands in the table
    begun, count = time.monotonic(), Counter[str]()
    print(f"\nas {who}\nverdict  | group | case | expected | seen", flush=True)
    with ground() as at:
        for case in CASES:
            words = f"{case.group} {case.name}"
            if (given.short and not case.short) or not all(word in words for word in given.only):
                continue
            seen = tried(case, at)
            count[seen.verdict] += 1
            print(row(case, seen), flush=True)
    told = ", ".join(f"{number} {verdict}" for verdict, number in count.items())
    print(f"as {who}: {sum(count.values())} cases, {told}, {count[MISSED]} missed, {count[GAP]} gaps, "
          f"{time.monotonic() - begun:.0f} s")  # fmt: skip
    code = 1 if count[MISSED] else 0
    if who == "root" and not given.half:
        code |= _again(sys.argv[1:])
    return code


def _again(options: list[str]) -> int:
    """The same as nobody, by a Python that nobody can start."""
    program = _everybodys_python()
    if program is None:
        print("as an ordinary user: left out: no Python of this version here can be started by one")
        return 1
    with tempfile.TemporaryDirectory(prefix="nobody-") as home:
        os.chown(home, NOBODY, NOBODY)
        paths = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
        env = {
            "PATH": f"/usr/local/bin:/usr/bin:/bin:{Path(sys.executable).parent}",
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
        }
        env |= {"PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [program, "-m", "tests.attack", "--half", *options]
        ran = subprocess.run(
            command, cwd=ROOT, env=env, user=NOBODY, group=NOBODY, extra_groups=[], check=False, timeout=600
        )
        return ran.returncode


def _everybodys_python() -> str | None:
    """This one, or one of the same version, outside of directories that only root may enter."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}", shutil.which(version)):
        if name is None or not Path(name).exists():
            continue
        tried = subprocess.run(
            [name, "-c", "import sys"], user=NOBODY, group=NOBODY, extra_groups=[], check=False,
            capture_output=True, cwd="/", env={"PATH": "/usr/bin:/bin"},
        ) if _startable(name) else None  # fmt: skip
        if tried is not None and tried.returncode == 0:
            return name
    return None


def _startable(name: str) -> bool:
    places = Path(os.path.realpath(name)).parents
    return all(os.stat(place).st_mode & 0o001 for place in places)


if __name__ == "__main__":
    sys.exit(main())
