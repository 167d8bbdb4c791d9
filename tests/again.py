"""Run the tests that failed once more, each alone: what passes now is flaky, and is named, loudly.

For build servers, after a failed `make test`: python -m tests.again, under coverage where the suite was. A test that
fails again, or more failures than a busy machine explains, fail as before. So does a failed test about secrets or money
(`never_again`): by chance or not, something was seen.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MOST = 10
"""More failures than this are no accident."""

_WORDS = {
    pytest.ExitCode.OK: "FLAKY: failed beside others, passed alone",
    pytest.ExitCode.NO_TESTS_COLLECTED: "FAILED, about secrets or money: not run again",
}

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed: not run again")
        return 1
    ended = {test: _run(test) for test in failed}
    for test, code in ended.items():
        print(f"{_WORDS.get(code, 'FAILED TWICE')}: {test}")
    return 1 if any(ended.values()) else 0


def _run(test: str) -> int:
    """pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "not never_again"]
    return subprocess.run([*command, test], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
