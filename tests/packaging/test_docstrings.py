"""The product's docstrings say what a thing is or does; a question in front of that is one word too many."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("perdure", "workflows", "activities")
QUESTIONS = {"What", "Whether", "Which", "How", "Who", "Whom", "Whose", "When", "Where", "Why"}


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Every string that stands alone, with its line: of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def asks(text: str) -> bool:
    first = re.match(r"\w*", text.lstrip())
    return first is not None and first[0] in QUESTIONS


def test_no_docstring_begins_with_a_question_word() -> None:
    sources = [*ROOT.glob("*.py"), *(path for top in PRODUCT for path in (ROOT / top).rglob("*.py"))]
    assert len(sources) > 300
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]}"
        for path in sources
        for line, text in docstrings(path.read_text())
        if asks(text)
    ]
    assert not found, "\n".join(found)


def test_a_question_would_be_seen_wherever_it_stands() -> None:
    source = '"""What m is."""\nA = 1\n"""Why."""\nclass C:\n    """How c."""\n    def f(self):\n        """Whose."""'
    assert sum(asks(text) for _, text in docstrings(source)) == 4
    assert not any(map(asks, ("Whatever it is.", "Return what it is.", "")))
