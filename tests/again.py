"""Run the tests that failed once more, each alone: what passes now is flaky, and is named, loudly.

For build servers, after a failed `make test`: python -m tests.again. A test that fails again, or more failures than a
busy machine explains, fail as before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

MOST = 5
"""More failures than this are no accident."""

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed: not run again")
        return 1
    still = [test for test in failed if _run(test)]
    for test in failed:
        print(f"{'FAILED TWICE' if test in still else 'FLAKY: failed beside others, passed alone'}: {test}")
    return 1 if still else 0


def _run(test: str) -> int:
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
    return subprocess.run([*command, test], env=os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
