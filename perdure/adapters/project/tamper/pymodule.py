"""One Python file as a syntax tree, and what its names are bound to. Nothing is imported."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Found: TypeAlias = "tuple[Module, ast.ClassDef | None, Function | ast.ClassDef]"
"""Where a definition stands: its module, its class if it is a method, itself."""


def unparsed(node: ast.AST) -> str:
    """The source of a node; its structure where Python 3.11 has no way to write it (a backslash in an f-string)."""
    try:
        return ast.unparse(node)
    except ValueError:
        return ast.dump(node)


_CONSTANT = (ast.Constant, ast.UnaryOp, ast.USub, ast.UAdd, ast.Not, ast.Tuple, ast.Load)


def constant(node: ast.AST) -> bool:
    return all(isinstance(part, _CONSTANT) for part in ast.walk(node))


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or attribute; of anything else in front only what can be named (`.c`)."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


@dataclass(frozen=True)
class Facts:
    """What a function mentions. calls: what it calls, dotted; names: everything else included; stores: how often a name
    is bound; asserts: whether it can check or skip anything itself."""

    calls: tuple[str, ...]
    names: tuple[str, ...]
    stores: dict[str, int]
    asserts: bool


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
    facts: dict[Function, Facts] = field(default_factory=dict)

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
        if not isinstance(node, ast.stmt | ast.expr) or node.end_lineno is None or node.end_col_offset is None:
            return ""
        lines = [line.encode() for line in self.lines[node.lineno - 1 : node.end_lineno]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode()

    @cached_property
    def lines(self) -> list[str]:
        return self.source.split("\n")

    @cached_property
    def literals(self) -> dict[str, ast.expr]:
        """Names that stand for plain values."""
        return {name: value for name, value in self.values.items() if constant(value)}


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
