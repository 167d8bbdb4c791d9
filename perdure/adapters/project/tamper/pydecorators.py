"""Decorators that the tree itself defines, put on tests."""

from __future__ import annotations

import ast

from perdure.adapters.project.tamper.pychecks import Reading
from perdure.adapters.project.tamper.pymodule import Function, Module, dotted, unparsed
from perdure.adapters.project.tamper.pysources import Sources


def swallows(sources: Sources, module: Module, node: ast.expr) -> bool:
    """Whether a decorator of the tree lets a failing test pass, or does not call it at all."""
    name = dotted(node.func if isinstance(node, ast.Call) else node)
    found = sources.find(module, name) if name else None
    if found is None or isinstance(found[2], ast.ClassDef):
        return False
    function = found[2]
    taken = {arg.arg for inner in ast.walk(function) if isinstance(inner, Function) for arg in inner.args.args}
    called = [part for part in ast.walk(function) if isinstance(part, ast.Call) and dotted(part.func) in taken]
    if not called:
        returned = {dotted(part.value) for part in ast.walk(function) if isinstance(part, ast.Return) and part.value}
        return not returned & taken and not any(
            isinstance(part, ast.Name) and part.id in taken and isinstance(part.ctx, ast.Load)
            for part in ast.walk(function)
        )
    asserting = ast.parse("assert unknown_result").body[0]
    probe = _Probe({dotted(part.func) for part in called}, asserting).visit(ast.parse(unparsed(function)))
    inner = [part for part in ast.walk(probe) if isinstance(part, Function)]
    return not any(Reading(sources, found[0], None, 1).read(part).checks for part in inner)


class _Probe(ast.NodeTransformer):
    """Puts an assertion where the decorated test is called."""

    def __init__(self, called: set[str], asserting: ast.stmt) -> None:
        self._called, self._asserting = called, asserting

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                block[:] = [new for part in block for new in ((self._asserting, part) if self._hit(part) else (part,))]
        return node

    def _hit(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.Expr | ast.Return | ast.Assign) and any(
            isinstance(part, ast.Call) and dotted(part.func) in self._called for part in ast.walk(node)
        )
