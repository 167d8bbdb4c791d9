"""Python expressions and statements: what skips, what holds whatever happens, and what is never reached."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from perdure.adapters.project.tamper.pymodule import builtin_names, dotted, unparsed

SKIPPING = {
    *("skip", "skipif", "xfail", "skipIf", "skipUnless", "skipTest", "SkipTest", "expectedFailure", "importorskip"),
    *("skip_if", "skip_unless", "only", "exit"),
}
_ROOTS = {"pytest", "unittest", "self", "cls", "mark", "case", "nose", "testcase"}
_WIDE = {"AssertionError", "Exception", "BaseException"}
_LEAVING = {"sys.exit", "os._exit", "exit", "quit", "pytest.exit", "os.abort"}
_CONSTANT = (ast.Constant, ast.UnaryOp, ast.USub, ast.UAdd, ast.Not, ast.Tuple, ast.Load)
_LONG = 2000


class Substitute(ast.NodeTransformer):
    """Names replaced by what they stand for."""

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:  # the visitor's own spelling
        return self._names.get(node.id, node) if isinstance(node.ctx, ast.Load) else node


def written(node: ast.AST, names: Mapping[str, ast.expr]) -> str:
    """A node in normal form, with names replaced by what they stand for, unless that becomes a novel."""
    plain = unparsed(node)
    if not any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node)):
        return plain
    full = unparsed(Substitute(names).visit(copy.deepcopy(node)))
    return full if len(full) <= _LONG else plain


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
    simple = {name: value for name, value in env.items() if constant(value)}
    seen = Substitute(simple).visit(copy.deepcopy(test))
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


def constant(node: ast.AST) -> bool:
    return all(isinstance(part, _CONSTANT) for part in ast.walk(node))


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
