"""docs/recovery.md says what the code does: the same crash points, and only tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from perdure.models.crash import CrashPoint

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "recovery.md").read_text(encoding="utf-8")
HOLES = 44


def _functions(path: Path, wanted: set[str]) -> set[str]:
    """Of a file that has any of the wanted in its text: reading all hundreds takes two seconds."""
    text = path.read_text(encoding="utf-8")
    if not any(f"def {name}(" in text for name in wanted):
        return set()
    tree = ast.parse(text)
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_crash_points_of_the_page_are_those_of_the_code() -> None:
    section = DOC.split("## Crash points")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(CrashPoint)


def test_every_test_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOC))
    existing = set().union(*(_functions(path, named) for path in (ROOT / "tests").rglob("test_*.py")))
    assert len(named) > HOLES
    assert named <= existing, sorted(named - existing)


def test_every_hole_has_its_line() -> None:
    numbers = [int(number) for number in re.findall(r"^\| H(\d+): ", DOC, re.MULTILINE)]
    assert sorted(numbers) == list(range(1, HOLES + 1))
