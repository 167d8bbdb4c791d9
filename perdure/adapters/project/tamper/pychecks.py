"""What a Python test really checks: assertions that can be reached, can fail, and whose failure is not swallowed."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from perdure.adapters.project.tamper.pyexpressions import (
    CHECKING,
    FAILING,
    ends,
    false,
    is_skip,
    substituted,
    true,
    vacuous,
    wide,
    written,
)
from perdure.adapters.project.tamper.pymodule import Function, Module, dotted, unparsed
from perdure.adapters.project.tamper.pysources import Sources
from perdure.models.policy import TAMPER_DEPTH

_NODES_MOST = 300
_HELPERS_MOST = 50  # readings of helpers for one test: a hundred calls of a hundred calls would not end


class Reading:
    """One function, read as far as it can get.

    checks  assertions in normal form; one that only some runs reach starts with `if`
    skips   what would skip it on the way
    stops   returns and yields that end it, or a generator that never begins
    """

    def __init__(
        self,
        sources: Sources,
        module: Module,
        owner: ast.ClassDef | None,
        depth: int = TAMPER_DEPTH,
        budget: list[int] | None = None,
    ) -> None:
        self._sources, self._module, self._owner, self._depth = sources, module, owner, depth
        self.checks: list[str] = []
        self.skips: list[str] = []
        self.stops: list[str] = []
        self._env: dict[str, ast.expr] = {}
        self._once: set[str] = set()
        self._inner: dict[str, Function] = {}
        self._loops = ""
        self._budget = budget if budget is not None else [_HELPERS_MOST]
        self._sizes: dict[str, int] = {}

    def read(self, function: Function, given: Mapping[str, ast.expr] | None = None) -> Reading:
        stores = self._sources.facts(self._module, function).stores
        arguments = {arg.arg for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        self._once = {name for name, count in stores.items() if count == 1} - arguments
        self._env = {n: v for n, v in self._module.literals.items() if n not in stores and n not in arguments} | dict(
            given or {}
        )
        body = function.body
        trailing = isinstance(body[-1], ast.Return)
        self._block(body[:-1] if trailing else body, True)
        if trailing:
            self._expression(body[-1], True)
        return self

    def _block(self, body: Sequence[ast.stmt], counted: bool) -> None:
        for node in body:
            self._statement(node, counted)
            if ends(node):
                break

    def _statement(self, node: ast.stmt, counted: bool) -> None:
        if isinstance(node, ast.Assert):
            self._check(node.test, counted)
            self._expression(node.test, counted)
        elif isinstance(node, ast.If):
            self._if(node, counted)
        elif isinstance(node, ast.Try | ast.TryStar):
            self._try(node, counted)
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._with(node, counted)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._for(node, counted)
        elif isinstance(node, ast.While):
            if not false(node.test):
                self._block(node.body, counted)
            self._block(node.orelse, counted)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                self._block(case.body, counted)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._inner[node.name] = node
        elif isinstance(node, ast.Raise):
            self._raise(node, counted)
        elif not isinstance(node, ast.ClassDef):
            if isinstance(node, ast.Return):
                self.stops.append("return")
            self._expression(node, counted)
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._remember(node.targets[0].id, node.value)

    def _remember(self, name: str, value: ast.expr) -> None:
        """What a name that is bound once stands for, unless it is long: doubled line by line, it would fill memory."""
        size = sum(self._sizes.get(n.id, 1) if isinstance(n, ast.Name) else 1 for n in ast.walk(value))
        if name in self._once and size <= _NODES_MOST:
            self._sizes[name] = size
            self._env[name] = substituted(value, self._env)

    def _raise(self, node: ast.Raise, counted: bool) -> None:
        raised = node.exc
        if raised is not None and is_skip(raised):
            self.skips.append(unparsed(raised))
        elif raised is not None and counted:
            name = dotted(raised.func if isinstance(raised, ast.Call) else raised)
            if name.endswith(FAILING):
                self.checks.append(self._loops + unparsed(node))

    def _if(self, node: ast.If, counted: bool) -> None:
        if false(node.test):
            self._block(node.orelse, counted)
        elif true(node.test):
            self._block(node.body, counted)
        else:
            self._expression(node.test, counted)
            at = len(self.checks)
            self._block(node.body, counted)
            middle = len(self.checks)
            self._block(node.orelse, counted)
            if at == middle or middle == len(self.checks):  # nothing is checked where the condition is otherwise
                told = f"if {written(node.test, self._env)}: "
                self.checks[at:] = [told + check for check in self.checks[at:]]

    def _try(self, node: ast.Try | ast.TryStar, counted: bool) -> None:
        caught = any(wide(handler.type) and self._forgives(handler) for handler in node.handlers)
        caught = caught or any(isinstance(part, ast.Return) for last in node.finalbody for part in ast.walk(last))
        self._block(node.body, counted and not caught)
        for handler in node.handlers:
            self._block(handler.body, counted)
        self._block(node.orelse, counted)
        self._block(node.finalbody, counted)

    def _forgives(self, handler: ast.ExceptHandler) -> bool:
        inside = Reading(self._sources, self._module, self._owner, self._depth - 1, self._budget)
        inside._block(handler.body, True)
        return not inside.checks and not any(isinstance(part, ast.Raise) for n in handler.body for part in ast.walk(n))

    def _with(self, node: ast.With | ast.AsyncWith, counted: bool) -> None:
        inner = counted
        for item in node.items:
            call = item.context_expr
            name = dotted(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""
            broad = isinstance(call, ast.Call) and any(wide(arg) for arg in call.args[:5])
            if name == "suppress" and broad:
                inner = False
            elif name in ("raises", "assertRaises", "assertRaisesRegex") and broad and _asserts(node.body):
                inner = False  # the assertion must fail now
                continue
            self._expression(call, counted)
        self._block(node.body, inner)

    def _for(self, node: ast.For | ast.AsyncFor, counted: bool) -> None:
        self._expression(node.iter, counted)
        over = substituted(node.iter, self._env)
        if isinstance(over, ast.List | ast.Tuple | ast.Set) and not over.elts:
            return
        before = self._loops
        self._loops += f"for {unparsed(node.target)} in {written(node.iter, self._env)}: "
        self._block(node.body, counted)
        self._loops = before
        self._block(node.orelse, counted)

    def _check(self, test: ast.expr, counted: bool, told: ast.AST | None = None) -> None:
        if counted and not vacuous(test, self._env):
            self.checks.append(self._loops + written(told or test, self._env))

    def _expression(self, node: ast.AST, counted: bool) -> None:
        """The calls and names in a statement or expression."""
        for part in self._sources.notable(node):
            if isinstance(part, ast.Call):
                self._call(part, counted)
            elif isinstance(part, ast.Yield | ast.YieldFrom):
                self.stops.append("yield")
            elif isinstance(part, ast.Name) and part.id in self._inner:
                outer = len(self.stops)
                self._block(self._inner.pop(part.id).body, counted)
                del self.stops[outer:]

    def _call(self, node: ast.Call, counted: bool) -> None:
        name = dotted(node.func)
        if is_skip(node):
            self.skips.append(unparsed(node))
            return
        deeper = bool(name) and self._depth > 0 and self._budget[0] > 0
        found = self._sources.find(self._module, name, self._owner) if deeper else None
        function = found[2] if found is not None else None
        if found is not None and isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            module, owner, _ = found
            if not self._sources.loud(module, owner, function, self._depth - 1):
                return
            if (function, self._depth) in self._sources.quiet:
                return
            self._budget[0] -= 1
            inside = Reading(self._sources, module, owner, self._depth - 1, self._budget)
            inside.read(function, bound(function, node, self._env, owner is not None))
            if not inside.checks and not inside.skips and self._budget[0] > 0:
                self._sources.quiet.add((function, self._depth))
            self.skips += inside.skips
            if counted:
                self.checks += [self._loops + check for check in inside.checks]
        elif CHECKING.match(name.rpartition(".")[2]):
            values = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg != "msg")]
            leaf = name.rpartition(".")[2]
            if leaf in ("assertTrue", "assert_", "assertEqual", "assertIs", "assertFalse", "assertIsNotNone"):
                equal = len(values) > 1 and leaf != "assertTrue" and ast.dump(values[0]) == ast.dump(values[1])
                looked = values[:1] if leaf in ("assertTrue", "assert_", "assertFalse", "assertIsNotNone") else values
                if equal or all(vacuous(value, self._env) for value in looked):
                    return
            if counted:
                self.checks.append(self._loops + written(node, self._env))


def bound(function: Function, call: ast.Call, env: Mapping[str, ast.expr], method: bool) -> dict[str, ast.expr]:
    """What a helper's parameters stand for in one call, as far as that can be seen."""
    names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)][1 if method else 0 :]
    given: dict[str, ast.expr] = {}
    for name, value in zip(names, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        given[name] = value
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    found = {name: substituted(value, env) for name, value in given.items()}
    return {name: value for name, value in found.items() if sum(1 for _ in ast.walk(value)) <= _NODES_MOST}


def _asserts(body: Sequence[ast.stmt]) -> bool:
    return any(
        isinstance(part, ast.Assert)
        or (isinstance(part, ast.Call) and dotted(part.func).rpartition(".")[2].startswith("assert"))
        for node in body
        for part in ast.walk(node)
    )
