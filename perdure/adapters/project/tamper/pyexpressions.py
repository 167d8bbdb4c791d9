"""Python expressions and statements: what skips, what holds whatever happens, and what is never reached."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import TypeVar, cast

from perdure.adapters.project.tamper.pymodule import builtin_names, constant, dotted, unparsed

SKIPPING = {
    *("skip", "skipif", "xfail", "skipIf", "skipUnless", "skipTest", "SkipTest", "expectedFailure", "importorskip"),
    *("skip_if", "skip_unless", "only", "exit"),
}
CHECKING = re.compile(r"_*(assert|expect|fail|should|verify|check|ensure|raises|warns|deprecated_call|must)")
"""What functions that check something are called, wherever they come from."""
FAILING = ("AssertionError", "failureException", "Failed")
"""Exceptions that are a test's failure, when they are raised."""
_ROOTS = {"pytest", "unittest", "self", "cls", "mark", "case", "nose", "testcase"}
_WIDE = {"AssertionError", "Exception", "BaseException"}
_LEAVING = {"sys.exit", "os._exit", "exit", "quit", "pytest.exit", "os.abort"}
_LONG = 2000
_Node = TypeVar("_Node", bound=ast.AST)


def substituted(node: _Node, names: Mapping[str, ast.expr]) -> _Node:
    """A node with names replaced by what they stand for. The node itself stays as it is; what of it has none of the
    names is shared, not copied."""
    if not names:
        return node
    if isinstance(node, ast.Name):
        return cast(_Node, names.get(node.id, node)) if isinstance(node.ctx, ast.Load) else node
    fresh: dict[str, object] = {}
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            other = substituted(value, names)
            if other is not value:
                fresh[name] = other
        elif isinstance(value, list):
            others = [substituted(part, names) if isinstance(part, ast.AST) else part for part in value]
            if any(other is not part for other, part in zip(others, value, strict=True)):
                fresh[name] = others
    if not fresh:
        return node
    made: _Node = type(node)()
    made.__dict__.update(node.__dict__, **fresh)
    return made


def written(node: ast.AST, names: Mapping[str, ast.expr]) -> str:
    """A node in normal form, with names replaced by what they stand for, unless that becomes a novel."""
    full = substituted(node, names)
    text = unparsed(full)
    return text if full is node or len(text) <= _LONG else unparsed(node)


def is_skip(node: ast.AST) -> bool:
    """`pytest.mark.skip`, `skipIf(…)`, `self.skipTest(…)`, `SkipTest`; not a `skip` of anybody else."""
    name = dotted(node.func if isinstance(node, ast.Call) else node)
    parts = name.split(".")
    if parts[-1] == "exit":
        return name == "pytest.exit"
    return parts[-1] in SKIPPING and (len(parts) == 1 or bool(_ROOTS & set(parts[:-1])))


def skips_in(node: ast.AST) -> list[str]:
    """Everything in an expression or statement that skips or expects a failure, outermost only."""
    found: list[str] = []
    todo = [node]
    while todo:
        part = todo.pop(0)
        if isinstance(part, ast.Call | ast.Attribute | ast.Name) and is_skip(part):
            found.append(unparsed(part))
        else:
            todo = [*ast.iter_child_nodes(part), *todo]
    return found


def vacuous(test: ast.expr, env: Mapping[str, ast.expr]) -> bool:
    """Whether a condition holds whatever the program does: it names nothing of it, or compares a thing with itself."""
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    seen = substituted(test, {name: env[name] for name in names if name in env and constant(env[name])})
    if isinstance(seen, ast.BoolOp):
        parts = [vacuous(value, env) for value in seen.values]
        return any(parts) if isinstance(seen.op, ast.Or) else all(parts)
    if isinstance(seen, ast.Tuple) and seen.elts:
        return True
    if isinstance(seen, ast.Compare) and all(isinstance(how, ast.Eq | ast.Is | ast.LtE) for how in seen.ops):
        sides = {ast.dump(side) for side in (seen.left, *seen.comparators)}
        if len(sides) == 1:
            return True
    named = {node.id for node in ast.walk(seen) if isinstance(node, ast.Name)}
    return not false(seen) and named <= builtin_names()


def true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def false(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return true(node.operand)
    return (isinstance(node, ast.Constant) and not node.value) or dotted(node).rpartition(".")[2] == "TYPE_CHECKING"


def ends(node: ast.stmt) -> bool:
    """Whether nothing behind this statement is ever reached."""
    if isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return dotted(node.value.func) in (*_LEAVING, "pytest.skip", "self.skipTest", "pytest.xfail")
    if isinstance(node, ast.If):
        yes, no = any(map(ends, node.body)), any(map(ends, node.orelse))
        return (true(node.test) and yes) or (false(node.test) and no) or (yes and no)
    if isinstance(node, ast.With):
        return any(isinstance(inner, ast.Return) for inner in node.body)
    return False


def wide(node: ast.expr | None) -> bool:
    if node is None:
        return True
    if isinstance(node, ast.Tuple):
        return any(map(wide, node.elts))
    return dotted(node).rpartition(".")[2] in _WIDE
