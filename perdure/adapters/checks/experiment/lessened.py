"""Test files of the base without what the change has deleted from them by name, and without imports of it alone.

A test file that names a deleted function does not even load, and all its other tests with it. Nothing of the change is
put into it: what stays is the base's own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from perdure.adapters.checks.runners.failing import parse_python
from perdure.adapters.checks.tamper.names import tests
from perdure.adapters.checks.tamper.sources import read

_GO_FUNCTION = re.compile(r"(?m)^func (?:\([^)\n]{0,80}\) )?(\w{1,200})")
_GO_IMPORT = re.compile(r'(?m)^(?:import )?\s{0,8}(\w{1,80} )?"([^"\n]{1,200})"\n')
_JS_IMPORT = re.compile(r"(?m)^import \{([^}]{1,2000})\} from")


def names_of(path: str, text: str) -> set[str]:
    """The names a test file defines, as far as it may be cut: functions, classes, and tests that are calls."""
    if path.endswith(".py"):
        tree = parse_python(text)
        return {name for name, _, _ in _python(tree)} if tree is not None else set()
    if path.endswith("_test.go"):
        return set(_GO_FUNCTION.findall(read(text, "go").bare))
    return {test.leaf for test in tests(path, text)}


def lessened(path: str, text: str, kept: Collection[str]) -> str:
    """The file without definitions that are not among `kept`; as it is where nothing is to be cut or it is not read."""
    if names_of(path, text) <= set(kept):
        return text
    if path.endswith(".py"):
        return _without_python(text, kept)
    if path.endswith("_test.go"):
        return _without_go(text, kept)
    for test in tests(path, text):
        if test.leaf not in kept:
            text = text.replace(test.text, "0", 1)
    return _JS_IMPORT.sub(lambda found: _narrowed(found, text), text)


def _python(tree: ast.Module) -> list[tuple[str, ast.stmt, bool]]:
    """Name, node, and True inside a class."""
    found = list[tuple[str, ast.stmt, bool]]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append((node.name, node, False))
        if isinstance(node, ast.ClassDef):
            inner = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
            found += [(f"{node.name}.{part.name}", part, True) for part in inner]
    return found


def _without_python(text: str, kept: Collection[str]) -> str:
    tree = parse_python(text)
    lines = text.splitlines(keepends=True)
    if tree is None:
        return text
    for name, node, inside in _python(tree):
        if name not in kept and node.end_lineno is not None:
            marks = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(mark.lineno for mark in marks)])
            lines[first - 1 : node.end_lineno] = [
                *([" " * node.col_offset + "pass\n"] if inside else ["\n"]),
                *["\n"] * (node.end_lineno - first),
            ]
    left = parse_python("".join(lines))
    if left is None:
        return text
    used = {part.id for part in ast.walk(left) if isinstance(part, ast.Name)}
    used |= {part.arg for part in ast.walk(left) if isinstance(part, ast.arg)}
    for node in left.body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__" and node.end_lineno is not None:
            had = [name for name in node.names if name.name == "*" or (name.asname or name.name) in used]
            if len(had) < len(node.names):
                node.names = had
                told = f"{ast.unparse(node)}\n" if had else "\n"
                lines[node.lineno - 1 : node.end_lineno] = [told, *["\n"] * (node.end_lineno - node.lineno)]
    return "".join(lines)


def _without_go(text: str, kept: Collection[str]) -> str:
    source = read(text, "go")
    parts, at = list[str](), 0
    for found in _GO_FUNCTION.finditer(source.bare):
        opening = source.bare.find("{", found.end())
        if found[1] not in kept and opening >= 0 and found.start() >= at:
            parts.append(text[at : found.start()])
            at = source.block(opening)
    left = "".join([*parts, text[at:]])
    bare = read(left, "go").bare

    def needed(found: re.Match[str]) -> str:
        name = (found[1] or found[2].rpartition("/")[2]).strip()
        return found[0] if name in ("_", ".") or re.search(rf"\b{re.escape(name)}\.", bare) else "\n"

    return _GO_IMPORT.sub(needed, left)


def _narrowed(found: re.Match[str], text: str) -> str:
    names = [name.strip() for name in found[1].split(",") if name.strip()]
    used = [name for name in names if len(re.findall(rf"\b{re.escape(name.split(' ')[-1])}\b", text)) > 1]
    return f"import {{ {', '.join(used)} }} from"
