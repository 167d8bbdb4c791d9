"""Python sources of one commit: parsed once, names followed to where the tree defines them. Nothing is imported."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator
from functools import cached_property

from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.pyexpressions import CHECKING, FAILING, is_skip
from perdure.adapters.project.tamper.pymodule import Facts, Found, Function, Module, dotted, parsed

_IMPORTS_MOST = 4  # files a name is passed on through until somebody defines it


class Sources:
    """The Python files of one commit. `module` is None for what is not there or cannot be parsed."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._modules: dict[str, Module | None] = {}
        self._found: dict[tuple[str, ast.ClassDef | None, str], Found | None] = {}
        self._notable: dict[ast.AST, tuple[ast.AST, ...]] = {}
        self._loud: dict[tuple[Function, ast.ClassDef | None, int], bool] = {}
        self.quiet: set[tuple[Function, int]] = set()
        """Functions that neither assert nor skip, read to a depth: most of what tests call, and read once."""

    def module(self, path: str) -> Module | None:
        if path not in self._modules:
            self.files.load(self._beside.get(posixpath.dirname(path), ()))
            self._modules[path] = self.files.once(path, parsed)
        return self._modules[path]

    @cached_property
    def _beside(self) -> dict[str, list[str]]:
        """Python files by directory: which of them will be needed shows one by one, and reading one takes as long as
        reading them all."""
        found: dict[str, list[str]] = {}
        for path in self.files.names:
            if path.endswith(".py"):
                found.setdefault(posixpath.dirname(path), []).append(path)
        return found

    def notable(self, node: ast.AST) -> tuple[ast.AST, ...]:
        """The names, calls and yields in a statement or expression, innermost first, lambdas left out."""
        if node not in self._notable:
            found: list[ast.AST] = []
            _collect(node, found)
            self._notable[node] = tuple(found)
        return self._notable[node]

    def find(self, module: Module, name: str, owner: ast.ClassDef | None = None) -> Found | None:
        """The function or class behind a name as code in `module` (in a method of `owner`) writes it."""
        key = module.path, owner, name
        if key not in self._found:
            self._found[key] = self._find(module, name, owner, _IMPORTS_MOST)
        return self._found[key]

    def loud(self, module: Module, owner: ast.ClassDef | None, function: Function, depth: int) -> bool:
        """Whether a function, or what it calls down to this depth, holds anything that could assert or skip. Most of
        what tests call does not, and need not be read."""
        key = function, owner, depth
        if key not in self._loud:
            facts = self.facts(module, function)
            self._loud[key] = facts.asserts or (
                depth > 0
                and any(
                    self.loud(found[0], found[1], found[2], depth - 1)
                    for found in (self.find(module, name, owner) for name in facts.calls)
                    if found is not None and isinstance(found[2], ast.FunctionDef | ast.AsyncFunctionDef)
                )
            )
        return self._loud[key]

    def facts(self, module: Module, function: Function) -> Facts:
        if function not in module.facts:
            module.facts[function] = facts(function)
        return module.facts[function]

    def _find(self, module: Module, name: str, owner: ast.ClassDef | None, depth: int) -> Found | None:
        first, _, rest = name.partition(".")
        if first in ("self", "cls") and owner is not None and rest and "." not in rest:
            return self.method(module, owner, rest, depth)
        if first in module.classes and rest:
            return self.method(module, module.classes[first], rest, depth)
        if not rest and (found := module.functions.get(first) or module.classes.get(first)):
            return module, None, found
        if first not in module.imports or depth <= 0:
            return None
        origin, _, attribute = module.imports[first].partition(":")
        wanted = ".".join(part for part in (attribute, rest) if part)
        while True:
            for path in self._places(module.path, origin):
                other = self.module(path)
                if other is not None and wanted:
                    found_there = self._find(other, wanted, None, depth - 1)
                    if found_there:
                        return found_there
            head, _, wanted = wanted.partition(".")  # `import a.b` and `from a import b`: b may be a module itself
            if not wanted:
                return None
            origin = f"{origin}{head}" if origin.endswith(".") else f"{origin}.{head}"

    def method(self, module: Module, owner: ast.ClassDef, name: str, depth: int = 4) -> Found | None:
        """A method of a class or of what it inherits from, as far as the tree defines it."""
        for node in reversed(owner.body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                return module, owner, node
        for base in owner.bases if depth > 0 else ():
            above = self._find(module, dotted(base), None, depth - 1)
            if above and isinstance(above[2], ast.ClassDef) and above[2] is not owner:
                found = self.method(above[0], above[2], name, depth - 1)
                if found:
                    return found
        return None

    def in_tree(self, path: str, name: str) -> str | None:
        """The file that `import name` in the file `path` would find in the tree, if any."""
        return next((place for place in self._places(path, name) if self.files.has(place)), None)

    def _places(self, path: str, name: str) -> Iterator[str]:
        here = posixpath.dirname(path)
        plain = name.lstrip(".")
        up = len(name) - len(plain)
        roots = [here]
        if up:
            for _ in range(up - 1):
                roots = [posixpath.dirname(root) for root in roots]
        else:
            while roots[-1]:
                roots.append(posixpath.dirname(roots[-1]))
            roots += ["src", "lib", "tests", "test"]
        for root in dict.fromkeys(roots):
            place = posixpath.join(root, plain.replace(".", "/")) if plain else root
            for file in (f"{place}.py", f"{place}/__init__.py"):
                if self.files.has(file.lstrip("/")):
                    yield file.lstrip("/")


def _collect(node: ast.AST, found: list[ast.AST]) -> None:
    for name in node._fields:
        value = getattr(node, name, None)
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, ast.AST) and not isinstance(
                part, ast.Lambda | ast.expr_context | ast.operator | ast.cmpop
            ):
                _collect(part, found)
    if isinstance(node, ast.Name | ast.Call | ast.Yield | ast.YieldFrom):
        found.append(node)


def facts(function: Function) -> Facts:
    calls: dict[str, None] = {}
    names: dict[str, None] = {}
    stores: dict[str, int] = {}
    asserts = False
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            names[node.id] = None
            if not isinstance(node.ctx, ast.Load):
                stores[node.id] = stores.get(node.id, 0) + 1
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            if name:
                calls[name] = None
            asserts = asserts or CHECKING.match(name.rpartition(".")[2]) is not None or is_skip(node)
        elif isinstance(node, ast.Assert):
            asserts = True
        elif isinstance(node, ast.Raise) and node.exc is not None:
            raised = dotted(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
            asserts = asserts or is_skip(node.exc) or raised.endswith(FAILING)
    return Facts(tuple(calls), tuple(names), stores, asserts)
