"""Python sources of one commit: parsed once, names followed to where the tree defines them. Nothing is imported."""

from __future__ import annotations

import ast
import posixpath
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from perdure.adapters.project.tamper.files import Files

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Found: TypeAlias = "tuple[Module, ast.ClassDef | None, Function | ast.ClassDef]"
"""Where a definition stands: its module, its class if it is a method, itself."""


def unparsed(node: ast.AST) -> str:
    """The source of a node; its structure where Python 3.11 has no way to write it (a backslash in an f-string)."""
    try:
        return ast.unparse(node)
    except ValueError:
        return ast.dump(node)


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or attribute; of anything else in front only what can be named (`.c`)."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


@dataclass
class Module:
    """One file: its statements, those below top-level `if` and `try` included, and what its names are bound to."""

    path: str
    tree: ast.Module
    source: str
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    values: dict[str, ast.expr] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node, _ in flat(self.tree.body):
            self._bind(node)

    def _bind(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.functions[node.name] = node
            self.classes.pop(node.name, None)
        elif isinstance(node, ast.ClassDef):
            self.classes[node.name] = node
            self.functions.pop(node.name, None)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            for name in (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)):
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    self.functions.pop(name, None)
                    self.classes.pop(name, None)
                    self.values.pop(name, None)
                    if not isinstance(node, ast.Delete) and node.value is not None:
                        self.values[name] = node.value
        elif isinstance(node, ast.Import):
            for alias in node.names:
                self.imports[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self.imports[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}:{alias.name}"

    def line(self, node: ast.AST) -> str:
        """The source of a node; of a decorated one without its decorators."""
        return ast.get_source_segment(self.source, node) or ""


def flat(body: list[ast.stmt], condition: str = "") -> Iterator[tuple[ast.stmt, str]]:
    """Statements with those inside `if`, `try` and `with`, each with the condition it stands under."""
    for node in body:
        yield node, condition
        if isinstance(node, ast.If):
            told = f"if {unparsed(node.test)}"
            yield from flat(node.body, told)
            yield from flat(node.orelse, f"not {told}")
        elif isinstance(node, ast.Try):
            for part in (node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody):
                yield from flat(part, condition)
        elif isinstance(node, ast.With):
            yield from flat(node.body, condition)


class Sources:
    """The Python files of one commit. `module` is None for what is not there or cannot be parsed."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._modules: dict[str, Module | None] = {}
        self.quiet: set[tuple[Function, int]] = set()
        """Functions that neither assert nor skip, read to a depth: most of what tests call, and read once."""

    def module(self, path: str) -> Module | None:
        if path not in self._modules:
            self._modules[path] = parsed(path, self.files.text(path))
        return self._modules[path]

    def find(self, module: Module, name: str, owner: ast.ClassDef | None = None, depth: int = 4) -> Found | None:
        """The function or class behind a name as code in `module` (in a method of `owner`) writes it."""
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
                    found_there = self.find(other, wanted, None, depth - 1)
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
            above = self.find(module, dotted(base), None, depth - 1)
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


def parsed(path: str, source: str | None) -> Module | None:
    """A module; None where there is no text, or none that Python could parse."""
    if source is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Module(path, ast.parse(source), source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@cache
def builtin_names() -> frozenset[str]:
    import builtins

    return frozenset(dir(builtins))
