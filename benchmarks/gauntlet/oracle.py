"""Run a project's tests bare, as a person would, and read counts from what the runner itself prints.

Independent of Perdure on purpose: nothing of it is imported here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_SUM, _LAST = "sum", "last"

_COUNTS: dict[str, tuple[str, dict[str, str]]] = {
    "pytest": (_LAST, {"passed": r"\b(\d+) (?:passed|xpassed)", "failed": r"\b(\d+) (?:failed|errors?)\b"}),
    "unittest": (
        _LAST,
        {"run": r"^Ran (\d+) tests?", "failed": r"(?:[( ]failures|errors|unexpected successes)=(\d+)",
         "skipped": r"(?:skipped|expected failures)=(\d+)"},
    ),
    "node": (_LAST, {"passed": r"^(?:#|ℹ) pass (\d+)", "failed": r"^(?:#|ℹ) (?:fail|cancelled) (\d+)"}),
    "mocha": (_LAST, {"passed": r"^\s+(\d+) passing", "failed": r"^\s+(\d+) failing"}),
    "tape": (_SUM, {"passed": r"^(ok)\b(?!.*# SKIP)", "failed": r"^(not ok)\b(?!.*# (?:TODO|SKIP))"}),
    "jest": (_LAST, {"passed": r"^Tests:.*?\b(\d+) passed", "failed": r"^Tests:.*?\b(\d+) failed"}),
    "vitest": (_LAST, {"passed": r"^\s+Tests .*?\b(\d+) passed", "failed": r"^\s+Tests .*?\b(\d+) failed"}),
    "ava": (_LAST, {"passed": r"^\s*(\d+) tests? passed", "failed": r"^\s*(\d+) tests? failed"}),
    "go": (_SUM, {"passed": r"^\s*(--- PASS:)", "failed": r"^\s*(--- FAIL:)"}),
    "cargo": (_SUM, {"passed": r"^test result: .*?(\d+) passed", "failed": r"^test result: .*?(\d+) failed"}),
    "maven": (
        _SUM,
        {"run": r"^(?:\[\w+\] )?Tests run: (\d+), [^\n]*?Skipped: \d+$",
         "failed": r"^(?:\[\w+\] )?Tests run: \d+, Failures: (\d+), [^\n]*?Skipped: \d+$",
         "errors": r"^(?:\[\w+\] )?Tests run: \d+, [^\n]*?Errors: (\d+), Skipped: \d+$",
         "skipped": r"^(?:\[\w+\] )?Tests run: \d+, [^\n]*?Skipped: (\d+)$"},
    ),
    "prove": (_SUM, {"passed": r"^(ok) \d+(?!.*# (?:skip|SKIP))", "failed": r"^(not ok) \d+(?!.*# TODO)"}),
    "ctest": (_LAST, {"run": r"tests failed out of (\d+)", "failed": r"(\d+) tests failed out of"}),
    "rspec": (_LAST, {"run": r"^(\d+) examples?", "failed": r"(\d+) failures?", "skipped": r"(\d+) pending"}),
    "minitest": (
        _LAST,
        {"run": r"^(\d+) (?:runs|tests),", "failed": r"^\d+ (?:runs|tests),.* (\d+) failures",
         "errors": r"^\d+ (?:runs|tests),.* (\d+) errors", "skipped": r"(\d+) (?:skips|omissions)"},
    ),
    "phpunit": (
        _LAST,
        {"run": r"(?:^OK[^(]*\(|^Tests: )(\d+)", "failed": r"Failures: (\d+)", "errors": r"Errors: (\d+)",
         "skipped": r"(?:Skipped|Incomplete): (\d+)"},
    ),
    "bats": (_SUM, {"passed": r"^(ok) \d+(?!.*# skip)", "failed": r"^(not ok) \d+"}),
    "busted": (_LAST, {"passed": r"(\d+) success", "failed": r"(\d+) failure", "errors": r"/ (\d+) errors?"}),
    "exit": (_LAST, {}),
}  # fmt: skip
"""By runner: how its lines add up, and what each says. A word instead of a number counts one."""


_FAILED_NAMES = re.compile(
    r"^\s*--- FAIL: ([\w]+)|^FAILED \S*::(\w+)|^(?:FAIL|ERROR): (\w+) \(|^test (?:\w+::)*(\w+) (?:- .*)?\.\.\. FAILED"
    r"|^not ok \d+ (?:- )?(.+?)\s*$|^\s*\d+\) (\S.+?):?$|^\s*● (?:.* › )?(.+)$|^# (\S.*)$",
    re.MULTILINE,
)
"""Names of failed tests, as runners print them, and titles that tape prints before what they assert."""


@dataclass(frozen=True)
class Outcome:
    """passed, failed: as the runner counts them; None where it prints no counts."""

    exit_code: int
    passed: int | None
    failed: int | None
    output: str
    seconds: float

    @property
    def is_green(self) -> bool:
        return self.exit_code == 0


def run_bare(command: str, directory: Path, runner: str, timeout_s: float = 600) -> Outcome:
    """Run the command in a shell in this directory. A command that takes too long is ended, and has failed."""
    environment = {**os.environ, "CI": "true", "LANG": "C.UTF-8", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    begun = time.perf_counter()
    process = subprocess.Popen(
        ["/bin/bash", "-c", command], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        data, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        data, _ = process.communicate()
    output = re.sub(r"\x1b\[[0-9;]*m", "", data.decode(errors="replace"))
    passed, failed = read_counts(runner, output)
    return Outcome(process.returncode, passed, failed, output, time.perf_counter() - begun)


def read_counts(runner: str, output: str) -> tuple[int | None, int | None]:
    """Return passed and failed tests as the output says; None for both where the runner prints no counts."""
    how, patterns = _COUNTS[runner]
    if not patterns:
        return None, None
    if how == _LAST and runner in {"pytest", "rspec"}:  # all counts stand in one line; tests print others
        lines = [
            line for line in output.splitlines() if re.search(r"\d+ (passed|failed|error|skipped|examples?)", line)
        ]
        output = lines[-1] if lines else ""
    numbers = {}
    for name, pattern in patterns.items():
        hits = [int(hit) if hit.isdigit() else 1 for hit in re.findall(pattern, output, re.MULTILINE)]
        all_count = how == _SUM or (runner in {"pytest", "unittest", "node"} and name != "run")
        numbers[name] = sum(hits) if all_count else (hits[-1] if hits else 0)
    failed = numbers.get("failed", 0) + numbers.get("errors", 0)
    if runner == "unittest":  # it counts each failing subtest, beside one test that ran
        failed = min(failed, len(set(re.findall(r"(?m)^(?:FAIL|ERROR): (\w+ \(\S+)", output))) or failed)
    passed = numbers["run"] - failed - numbers.get("skipped", 0) if "run" in numbers else numbers["passed"]
    return passed, failed


def find_failed_lines(output: str, directory: Path, tests: list[Path]) -> list[tuple[Path, int]]:
    """Return the lines of test files that the output of a red run names, each once, in the order they are named."""
    by_name: dict[str, list[Path]] = {}
    for path in tests:
        by_name.setdefault(path.name, []).append(path)
    found: dict[tuple[Path, int], None] = {}
    for name, line in re.findall(r"([\w./@+-]+\.\w+)(?:\"?,? line |:)(\d+)", output):
        candidates = by_name.get(Path(name).name, [])
        exact = [path for path in candidates if str(path.relative_to(directory)) == name or str(path).endswith(name)]
        for path in (exact or candidates)[:1]:
            found[path, int(line)] = None
    return list(found)


def find_failed_names(output: str) -> set[str]:
    """Return the names and titles of failed tests that the output of a red run names; others may be among them."""
    blocks = re.split(r"(?m)^(?=# )", output)  # tape: a title, and below it each assertion
    blocks = [block for block in blocks if not block.startswith("# ") or re.search(r"(?m)^not ok", block)]
    hits = (hit for block in blocks for hit in _FAILED_NAMES.findall(block))
    return {name for hit in hits for name in hit if len(name) > 2}
