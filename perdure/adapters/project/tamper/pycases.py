"""The cases of a parametrised Python test, written out: each as the plain test that does the same."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

from perdure.adapters.project.tamper.pyexpressions import substituted
from perdure.adapters.project.tamper.pymodule import Function, Module, dotted, unparsed
from perdure.models.ids import digest

_CASES_MOST = 500
_MARKS = "\0marks"
_Row = dict[str, ast.expr]


def rows(module: Module, decorators: Sequence[ast.expr]) -> list[_Row]:
    """What the parameters are in each case, as far as it stands in the file; one empty row where nothing is known."""
    found: list[_Row] = [{}]
    for decorator in decorators:
        more = _rows(module, decorator)
        if more is not None:
            found = [row | other for row, other in itertools.islice(itertools.product(found, more), _CASES_MOST)]
    return found


def bodies(module: Module, function: Function, decorators: Sequence[ast.expr]) -> tuple[str, ...]:
    """One hash a case: of what it does, with the parameters' values put in; not of its name or docstring."""
    others = [text for part in decorators if _rows(module, part) is None for text in _kept(part)]
    arguments = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    plain = [part for part in function.body if not _docstring(part)]
    made = []
    for row in rows(module, decorators):
        body = [substituted(part, row) for part in plain]
        left = sorted(name for name in arguments if name not in row and name not in ("self", "cls"))
        marks = [row[_MARKS]] if _MARKS in row else []
        made.append(digest(*sorted(others), *left, "\0", *map(unparsed, (*marks, *body)))[:20])
    return tuple(made)


def _kept(decorator: ast.expr) -> list[str]:
    """What belongs to a body: patches and examples do; marks do not, a class and its file may carry them as well."""
    name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return [] if "mark" in name.split(".") or name in ("staticmethod", "classmethod") else [unparsed(decorator)]


def _rows(module: Module, decorator: ast.expr) -> list[_Row] | None:
    """The rows of a `parametrize` whose values stand in the file; None for anything else."""
    if not isinstance(decorator, ast.Call) or dotted(decorator.func).rpartition(".")[2] != "parametrize":
        return None
    given = {word.arg: word.value for word in decorator.keywords}
    names = given.get("argnames", decorator.args[0] if decorator.args else None)
    values = given.get("argvalues", decorator.args[1] if len(decorator.args) > 1 else None)
    if isinstance(values, ast.Name):
        values = module.values.get(values.id)
    wanted = _names(names)
    if not wanted or "indirect" in given or not isinstance(values, ast.List | ast.Tuple):
        return None
    found = []
    for value in values.elts[:_CASES_MOST]:
        row = _row(wanted, value)
        if row is None:
            return None
        found.append(row)
    return found


def _names(node: ast.expr | None) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [name.strip() for name in node.value.split(",") if name.strip()]
    if isinstance(node, ast.List | ast.Tuple):
        return [part.value for part in node.elts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return []


def _row(names: list[str], value: ast.expr) -> _Row | None:
    marks: _Row = {}
    parts: list[ast.expr]
    if isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] == "param":
        marks.update((_MARKS, word.value) for word in value.keywords if word.arg == "marks")
        parts = value.args
    elif len(names) == 1:
        parts = [value]
    elif isinstance(value, ast.Tuple | ast.List):
        parts = value.elts
    else:
        return None
    if len(parts) != len(names) or any(isinstance(part, ast.Starred) for part in parts):
        return None
    return dict(zip(names, parts, strict=True)) | marks


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
