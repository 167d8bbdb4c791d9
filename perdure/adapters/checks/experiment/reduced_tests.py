"""Cut definitions out of test files, for `commit_pair`: the base's files without the functions and tests that the
change has deleted from them, and without imports that only these needed. Also find one test's text in a file, as the
base has it and as the change does, which `run_experiment` shows to a reviewer.

A test file that names a deleted function does not even load, and all its other tests fail with it. Nothing of the
change is put into it: what stays is the base's own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from perdure.adapters.checks.runners.python import parse_python
from perdure.adapters.checks.tamper.source_tests import blank_source, find_tests

_GO_FUNCTION = re.compile(r"(?m)^func (?:\([^)\n]{0,80}\) )?(\w{1,200})")
_GO_IMPORT = re.compile(r'(?m)^(?:import )?[ \t]{0,8}(\w{1,80} )?"([^"\n]{1,200})"\n')
_JS_IMPORT = re.compile(r"(?m)^import \{([^}]{1,2000})\} from")


def defined_names(path: str, text: str) -> set[str]:
    """Return the names of what a test file defines and can be cut out of it: Python's functions, classes and methods
    (`Class.method`), Go's functions, and tests in other languages. Empty for Python that cannot be parsed."""
    if path.endswith(".py"):
        tree = parse_python(text)
        return {name for name, _, _ in _python_definitions(tree)} if tree is not None else set()
    if path.endswith("_test.go"):
        return set(_GO_FUNCTION.findall(blank_source(text, "go").bare))
    return {test.leaf for test in find_tests(path, text)}


def remove_definitions(path: str, text: str, kept_names: Collection[str]) -> str:
    """Return a test file's text without the definitions whose names are not in `kept_names`; as it is where there are
    none, or it cannot be parsed.

    Imports that only these needed go too, in Python, Go and JavaScript. Tests of other languages are replaced by `0`.
    """
    if defined_names(path, text) <= set(kept_names):
        return text
    if path.endswith(".py"):
        return _cut_python(text, kept_names)
    if path.endswith("_test.go"):
        return _cut_go(text, kept_names)
    for test in find_tests(path, text):
        if test.leaf not in kept_names:
            text = text.replace(test.text, "0", 1)
    return _JS_IMPORT.sub(lambda match: _narrow_import(match, text), text)


def _python_definitions(tree: ast.Module) -> list[tuple[str, ast.stmt, bool]]:
    """Return (name, node, is it a method) of each function and class of a module, and of each method as
    `Class.method`."""
    definitions = list[tuple[str, ast.stmt, bool]]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            definitions.append((node.name, node, False))
        if isinstance(node, ast.ClassDef):
            inner = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
            definitions += [(f"{node.name}.{part.name}", part, True) for part in inner]
    return definitions


def _cut_python(text: str, kept_names: Collection[str]) -> str:
    """Return a Python text without the definitions whose names are not in `kept_names`, and without names in `from …
    import` that nothing uses any more.

    What goes becomes blank lines, a method `pass`, so that line numbers stay. The text as it is where it cannot be
    parsed, before or afterwards.
    """
    tree = parse_python(text)
    lines = text.splitlines(keepends=True)
    if tree is None:
        return text
    for name, node, is_method in _python_definitions(tree):
        if name not in kept_names and node.end_lineno is not None:
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(mark.lineno for mark in decorators)])
            lines[first - 1 : node.end_lineno] = [
                *([" " * node.col_offset + "pass\n"] if is_method else ["\n"]),
                *["\n"] * (node.end_lineno - first),
            ]
    remaining = parse_python("".join(lines))
    if remaining is None:
        return text
    used = {part.id for part in ast.walk(remaining) if isinstance(part, ast.Name)}
    used |= {part.arg for part in ast.walk(remaining) if isinstance(part, ast.arg)}
    for node in remaining.body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__" and node.end_lineno is not None:
            used_imports = [name for name in node.names if name.name == "*" or (name.asname or name.name) in used]
            if len(used_imports) < len(node.names):
                node.names = used_imports
                new_line = f"{ast.unparse(node)}\n" if used_imports else "\n"
                lines[node.lineno - 1 : node.end_lineno] = [new_line, *["\n"] * (node.end_lineno - node.lineno)]
    return "".join(lines)


def _cut_go(text: str, kept_names: Collection[str]) -> str:
    """Return a Go text without the functions whose names are not in `kept_names`, and with an empty line for each
    import of a package that the rest does not use."""
    source = blank_source(text, "go")
    parts, position = list[str](), 0
    for match in _GO_FUNCTION.finditer(source.bare):
        opening = source.bare.find("{", match.end())
        if match[1] not in kept_names and opening >= 0 and match.start() >= position:
            parts.append(text[position : match.start()])
            position = source.block_end(opening)
    return remove_unused_go_imports("".join([*parts, text[position:]]))


def remove_unused_go_imports(text: str) -> str:
    """Return a Go text with an empty line for each import of a package that it does not use."""
    bare = blank_source(text, "go").bare

    def keep_if_used(match: re.Match[str]) -> str:
        """Return a matched import as it is where the remaining text uses its package, else an empty line."""
        name = (match[1] or match[2].rpartition("/")[2]).strip()
        return match[0] if name in ("_", ".") or re.search(rf"\b{re.escape(name)}\.", bare) else "\n"

    return _GO_IMPORT.sub(keep_if_used, text)


def _narrow_import(match: re.Match[str], text: str) -> str:
    """Return the head of a JavaScript import (`import { a, b } from`), with only those of its names that the text uses
    elsewhere."""
    names = [name.strip() for name in match[1].split(",") if name.strip()]
    used = [name for name in names if len(re.findall(rf"\b{re.escape(name.split(' ')[-1])}\b", text)) > 1]
    return f"import {{ {', '.join(used)} }} from"


EXPERIMENT_FILE_CHARS = 4_000
"""Characters of each version of a test beside a changed promise: as much as a reviewer reads."""


_CLOSES = (")", "]", "}")
_BELONGS = ("@", "#[")
"""Beginnings of lines that say something about the line below them: decorators, attributes."""


def versions_of_test(name: str, before: str, after: str) -> tuple[str, str]:
    """Return a test's text out of the base's file and out of the change's, each cut to EXPERIMENT_FILE_CHARS; both
    files from their beginning where one of them does not show the test."""
    both = find_test_text(name, before), find_test_text(name, after)
    old, new = both if all(both) else (before, after)
    return old[:EXPERIMENT_FILE_CHARS], new[:EXPERIMENT_FILE_CHARS]


def find_test_text(name: str, text: str) -> str:
    """Return the lines of a test, from its decorators and the line that names it to the end of its block, by
    indentation; empty when its name, or a suite's that is part of it, is not found."""
    lines, first = text.splitlines(), 0
    for part in split_name(name):
        rest = range(first, len(lines))
        line_numbers = [n for defines in (True, False) for n in rest if _line_names(part, lines[n], defines=defines)]
        if not line_numbers:
            return ""
        first = line_numbers[0]
    last = first + 1
    while last < len(lines) and _continues_block(lines[last], _indentation(lines[first])):
        last += 1
    while (
        first
        and lines[first - 1].lstrip().startswith(_BELONGS)
        and _indentation(lines[first - 1]) == _indentation(lines[first])
    ):
        first -= 1
    return "\n".join(lines[first:last]).rstrip()


_FILE_OR_PACKAGE = re.compile(r"/|\.(?:py|[cm]?[jt]sx?|rs|go)$")


def split_name(name: str) -> list[str]:
    """Split a test's name into the names that its source has: `Calc`, `test_add` of
    `tests/test_calc.py::Calc::test_add[1]`; likewise suites and tests of other runners."""
    file, _, rest = name.partition("::")
    inside = rest if rest and _FILE_OR_PACKAGE.search(file) else name
    parts = re.split(r"::| > ", inside)
    return [part for part in (re.sub(r"\[.*\]$", "", raw).split("/", 1)[0].strip() for raw in parts) if part]


def _line_names(part: str, line: str, *, defines: bool) -> bool:
    """Return whether a line has a name as a word; with `defines`, as the name of something it defines, or as a whole
    string."""
    if part not in line:  # most are not: to search each line for a pattern takes ten times as long
        return False
    word = re.escape(part)
    sought = rf"""\b(?:def|class|func|fn|function)\s+{word}\b|(["'`]){word}\1""" if defines else rf"(?<!\w){word}(?!\w)"
    return re.search(sought, line) is not None


def _continues_block(line: str, indent: int) -> bool:
    """Return whether a line still belongs to a block whose first line has this indentation: it is blank, deeper, or a
    closing bracket."""
    return (
        not line.strip()
        or _indentation(line) > indent
        or (_indentation(line) == indent and line.lstrip().startswith(_CLOSES))
    )


def _indentation(line: str) -> int:
    """Return the number of blank characters at the beginning of a line."""
    return len(line) - len(line.lstrip())
