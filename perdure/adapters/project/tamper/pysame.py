"""Which Python tests surely say the same on two commits: their own source, and all of what they use, is the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perdure.adapters.project.tamper.pymodule import Found, Function, Module, dotted
from perdure.adapters.project.tamper.pysources import Sources
from perdure.models.ids import digest
from perdure.models.policy import TAMPER_DEPTH

_KNOWN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_NONE = "none"


class Prints:
    """Prints of tests: equal ones on two commits belong to tests that need not be read to know that they are equal.
    Different ones say nothing."""

    def __init__(self, sources: Sources, first: frozenset[str]) -> None:
        """`first`: names of functions that run before tests."""
        self._sources, self._first = sources, first
        self._own: dict[tuple[Function, ast.ClassDef | None], str] = {}
        self._around: dict[ast.ClassDef | str, str] = {}

    def of(self, module: Module, function: Function, owners: Sequence[ast.ClassDef]) -> str:
        """Of one test. `owners`: the classes around it, outermost first."""
        around = [self._file(module), *(self._class(module, owner) for owner in owners)]
        return digest(*around, self._reach(module, owners[-1] if owners else None, function))

    def _reach(self, module: Module, owner: ast.ClassDef | None, function: Function) -> str:
        """Of a function and everything it calls that could assert or skip, as deep as it would be read."""
        parts: dict[Function, str] = {}
        level: list[tuple[Module, ast.ClassDef | None, Function]] = [(module, owner, function)]
        for depth in range(TAMPER_DEPTH, -1, -1):
            deeper = []
            for here, own, node in level:
                if node not in parts:
                    parts[node] = self._function(here, own, node)
                    for name in self._sources.facts(here, node).calls:
                        found = self._sources.find(here, name, own)
                        if found and isinstance(found[2], Function) and self._sources.loud(*_turned(found), depth - 1):
                            deeper.append((found[0], found[1], found[2]))
            level = deeper
        return digest(*parts.values())

    def _function(self, module: Module, owner: ast.ClassDef | None, function: Function) -> str:
        """Of a function alone: its source, what its names are bound to, and where its calls lead."""
        key = function, owner
        if key not in self._own:
            facts = self._sources.facts(module, function)
            parts = [_source(module, function), *self._bound(module, facts.names)]
            for name in facts.calls:
                parts.append(f"{name} → {self._target(self._sources.find(module, name, owner))}")
            for decorator in function.decorator_list:
                parts += self._decorator(module, decorator)
            self._own[key] = digest(*parts)
        return self._own[key]

    def _target(self, found: Found | None) -> str:
        """What a name leads to: only whether it can matter; its contents are looked at by themselves."""
        if found is None:
            return _NONE
        if isinstance(found[2], ast.ClassDef):
            return "class"
        return (
            f"{found[0].path}:{found[1].name if found[1] else ''}:{self._sources.loud(*_turned(found), TAMPER_DEPTH)}"
        )

    def _bound(self, module: Module, names: Sequence[str]) -> Iterator[str]:
        todo, seen = list(names), set[str]()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in module.values:
                value = module.values[name]
                yield f"{name} = {module.line(value)}"
                todo += [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
            if name in module.imports:
                yield f"{name} from {module.imports[name]}"

    def _decorator(self, module: Module, node: ast.expr) -> Iterator[str]:
        """A decorator of the tree may do anything: the whole of it counts, as does a name for something longer."""
        todo, seen = [dotted(part) for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)], {""}
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in module.values:
                value = module.values[name]
                yield f"{name} = {module.line(value)}"
                todo += [dotted(part) for part in ast.walk(value) if isinstance(part, ast.Name | ast.Attribute)]
            found = self._sources.find(module, name)
            if found is not None:
                yield _source(found[0], found[2])
                if isinstance(found[2], Function):
                    yield self._reach(found[0], found[1], found[2])
            origin = module.imports.get(name, "")
            path = self._sources.in_tree(module.path, origin.partition(":")[0]) if origin and not found else None
            other = self._sources.module(path) if path else None
            there = other.values.get(origin.partition(":")[2]) if other else None
            yield f"{name}: {other.line(there) if other and there is not None else _NONE}"

    def _file(self, module: Module) -> str:
        """What the file does besides defining and importing: conditions around tests, marks, names taken away."""
        if module.path not in self._around:
            parts = [part for node in module.tree.body for part in self._statement(module, node, None)]
            self._around[module.path] = digest(*parts)
        return self._around[module.path]

    def _class(self, module: Module, owner: ast.ClassDef) -> str:
        if owner not in self._around:
            parts = [owner.name, *map(module.line, (*owner.bases, *(word.value for word in owner.keywords)))]
            for base in owner.bases:
                parts += self._above(module, base, TAMPER_DEPTH)
            for decorator in owner.decorator_list:
                names = [part.id for part in ast.walk(decorator) if isinstance(part, ast.Name)]
                parts += [module.line(decorator), *self._decorator(module, decorator), *self._bound(module, names)]
            for node in owner.body:
                parts += self._statement(module, node, owner)
            self._around[owner] = digest(*parts)
        return self._around[owner]

    def _above(self, module: Module, base: ast.expr, depth: int) -> Iterator[str]:
        """What a class inherits from, as far up as the tree defines it."""
        name = dotted(base)
        found = self._sources.find(module, name) if name and depth else None
        yield f"{name} {found[0].path if found else _NONE}"
        if found and isinstance(found[2], ast.ClassDef):
            for further in found[2].bases:
                yield from self._above(found[0], further, depth - 1)

    def _statement(self, module: Module, node: ast.stmt, owner: ast.ClassDef | None) -> Iterator[str]:
        """Of a file's or class's statement, whatever could decide about other tests than the one it may be."""
        if isinstance(node, Function):
            if node.name in self._first or any(isinstance(part, ast.Call) for part in node.decorator_list):
                names = [
                    word.arg for part in node.decorator_list if isinstance(part, ast.Call) for word in part.keywords
                ]
                if node.name in self._first or "autouse" in names:
                    yield self._reach(module, owner, node)
        elif not isinstance(node, _KNOWN) and not _plain(node):
            yield _source(module, node)


def _turned(found: Found) -> tuple[Module, ast.ClassDef | None, Function]:
    assert isinstance(found[2], Function)
    return found[0], found[1], found[2]


def _plain(node: ast.stmt) -> bool:
    """A name for something: it matters to those who use it."""
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name)
    if not isinstance(node, ast.Assign) or not all(isinstance(target, ast.Name) for target in node.targets):
        return False
    names = [target.id for target in node.targets if isinstance(target, ast.Name)]
    skips = isinstance(node.value, ast.Call) and "importorskip" in dotted(node.value.func)
    return not skips and not any(name == "pytestmark" or name.startswith(("__", "test")) for name in names)


def _source(module: Module, node: ast.stmt) -> str:
    """Whole lines, decorators included."""
    above = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
    first = min([node.lineno, *(part.lineno for part in above)])
    return "\n".join(module.lines[first - 1 : node.end_lineno])
