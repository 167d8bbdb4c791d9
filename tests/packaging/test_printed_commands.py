"""Commands that people are told to type: ids and paths in them are quoted for a shell, by one function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.text import shell_word

ROOT = Path(__file__).parents[2]

COMMAND = re.compile(
    r"(?:^|[\s`;&(:'])(perdure [a-z]|git [a-z-]|rm |cd |mv |cp |chmod |mkdir |export [A-Z_]+=)[^;,.`]*$"
)
"""The beginning of a command, as far as the value in it."""

SAFE = re.compile(r"shell_word\(|shlex\.join\(|quoted|[A-Z_]+$|.*\[:12\]$")
"""Values that are quoted, constants, and beginnings of hashes."""

KINDS = re.compile(r".*(\bid|_id|\.id|name|path|root|delivery|backlog|parent|url|directory|branch)$")
"""Expressions that hold what people or other programs have named."""


def unquoted_values(text: str) -> Iterator[str]:
    """Yield each named value in an f-string of a source that stands in a command and is not quoted."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = ast.unparse(part.value)
                if COMMAND.search(before) and KINDS.match(value) and not SAFE.match(value):
                    yield f"{before[-40:]}{{{value}}}"
                before += "X"
            elif isinstance(part, ast.Constant):
                before += str(part.value)


@pytest.mark.parametrize("folder", ["perdure", "workflows", "activities"])
def test_what_stands_in_a_printed_command_is_quoted(folder: str) -> None:
    found = {
        str(path.relative_to(ROOT)): values
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (values := [value for value in unquoted_values(path.read_text()) if not _is_quoted_above(path.name, value)])
    }
    assert found == {}


def _is_quoted_above(file: str, value: str) -> bool:
    """Return True for a value whose name was given to its quoted form."""
    return (file in ("summary.py", "text.py") and value.endswith("{id}")) or value.endswith("cd {test.directory}")


def test_an_id_with_blanks_is_one_word() -> None:
    assert list(unquoted_values('f"perdure watch {delivery.id}"')) == ["perdure watch {delivery.id}"]
    assert shell_word("take it; rm -r $HOME") == "'take it; rm -r $HOME'"
