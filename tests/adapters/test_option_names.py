"""An error that a worker raises is read by programs, too: it names a field of the request, not an option of the command
line, unless it quotes a whole command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTIONS = ("--id", "--base", "--branch", "--repo", "--model", "--agent", "--gate", "--phases", "--label", "--tokens")
OPTIONS += ("--plan", "--issue", "--attempts", "--source", "--config")
OPTION = re.compile(rf"(?<![\w-])(?:{'|'.join(OPTIONS)})(?![\w-])")
ASKED_BY_THE_COMMAND_LINE = ("resolve_repository",)


def _raised_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each string that a module raises, or hands over as `fix` or `where`."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if function.name in ASKED_BY_THE_COMMAND_LINE:
            continue
        for node in ast.walk(function):
            parts: list[ast.AST] = []
            if isinstance(node, ast.Raise) and node.exc is not None:
                parts = [node.exc]
            elif (isinstance(node, ast.keyword) and node.arg in ("fix", "where")) or (
                isinstance(node, ast.Assign) and any(getattr(to, "id", "") in ("fix", "where") for to in node.targets)
            ):
                parts = [node.value]
            for part in (piece for whole in parts for piece in ast.walk(whole)):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def test_no_error_of_a_worker_names_an_option_of_the_command_line() -> None:
    places = [*ROOT.glob("activities/*.py"), *ROOT.glob("workflows/*.py"), *ROOT.glob("perdure/adapters/**/*.py")]
    places += ROOT.glob("perdure/models/**/*.py")
    assert len(places) > 100
    assert [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in places
        for line, text in _raised_texts(path)
        if OPTION.search(text) and "perdure " not in text
    ] == []
