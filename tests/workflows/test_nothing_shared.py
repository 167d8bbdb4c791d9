"""What the SDK's sandbox would see to if it loaded `workflows` for each run (docs/adr/0014): nothing is shared between
runs, and nothing in reach answers differently when a history is replayed."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from datetime import date, timedelta, tzinfo
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import pytest
from temporalio.common import RetryPolicy, SearchAttributeKey

import workflows

MODULES = ["workflows", *(found.name for found in pkgutil.iter_modules(workflows.__path__, "workflows."))]

IMPORTED = {
    *("__future__", "collections.abc", "contextlib", "dataclasses", "difflib", "types", "typing"),
    *("asyncio", "datetime", "perdure.models", "pydantic", "temporalio", "workflows"),
}
"""Packages whose modules may be imported whole: they read no clock, draw nothing and touch nothing outside."""

OF = {
    "asyncio": {"CancelledError", "Task", "TimeoutError", "create_task", "gather", "shield", "sleep"},
    "datetime": {"UTC", "datetime", "timedelta"},
}
"""Names of two that do more than a workflow may. `wait` and `as_completed` answer in no order."""

OUTSIDE = {"now", "utcnow", "today", "fromtimestamp", "unsafe"}
"""Attributes that read this host's clock or leave the SDK's checks; `workflow.now` is the one that may be asked."""

BUILT_IN = {"__import__", "compile", "eval", "exec", "globals", "input", "open", "print"}
CALLED = {"hash", "id"}  # where they are not called these are names of somebody's own

FIXED = (str, bytes, int, float, type(None), Enum, date, timedelta, tzinfo, RetryPolicy, SearchAttributeKey, TypeVar)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_workflows_keeps_nothing_between_runs(name: str) -> None:
    module = importlib.import_module(name)
    kept = {key: value for key, value in vars(module).items() if not key.startswith("__")}
    kept.pop("annotations", None)  # of `__future__`
    for each in [one for one in kept.values() if isinstance(one, type) and one.__module__ == module.__name__]:
        kept |= {f"{each.__name__}.{key}": value for key, value in vars(each).items() if not key.startswith("__")}
    assert [key for key, value in kept.items() if not fixed(value)] == []


def fixed(value: object) -> bool:
    """True for what nobody can put anything into; functions, classes and modules are looked at where they are made."""
    if isinstance(value, (tuple, frozenset)):
        return all(fixed(one) for one in value)
    if isinstance(value, MappingProxyType):
        return all(fixed(one) for one in value.values())
    if isinstance(value, FIXED) or hasattr(value, "cache_clear"):
        return not hasattr(value, "cache_clear")
    return (
        callable(value) or isinstance(value, (property, staticmethod, classmethod)) or type(value).__name__ == "module"
    )


@pytest.mark.parametrize("name", MODULES)
def test_nothing_in_reach_of_a_workflow_answers_differently_when_it_is_replayed(name: str) -> None:
    assert said(Path(str(importlib.import_module(name).__file__)).read_text()) == []


@pytest.mark.parametrize(
    "code",
    [
        "import random",
        "from time import time",
        "from perdure.adapters.git import vault",
        "from datetime import date",
        "from asyncio import to_thread",
        "import asyncio\nasyncio.wait(())",
        "from datetime import datetime\ndatetime.now()",
        "from temporalio import workflow\nworkflow.unsafe.is_replaying()",
        "def f():\n    global x",
        "def f(x=[]):\n    pass",
        "open('/etc/hosts')",
        "sorted(x, key=lambda one: id(one))",
    ],
)
def test_what_would_answer_differently_is_named(code: str) -> None:
    assert said(code)


def said(code: str) -> list[str]:
    """Each line that the sandbox would have stopped, or that shares something."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, _KINDS) and _bad(node)
    ]


_KINDS = (
    ast.Import,
    ast.ImportFrom,
    ast.Attribute,
    ast.Name,
    ast.Global,
    ast.Call,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
)


def _bad(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(not _may(name.name) for name in names)
        case ast.ImportFrom(module=module, names=names):
            of = OF.get(module or "")
            return not _may(module or "") or (of is not None and not {name.name for name in names} <= of)
        case ast.Attribute(value=ast.Name(id=module), attr=attr) if module in OF and module != "datetime":
            return attr not in OF[module]
        case ast.Attribute(value=ast.Name(id="workflow"), attr="now"):
            return False
        case ast.Attribute(attr=attr):
            return attr in OUTSIDE
        case ast.Name(id=name):
            return name in BUILT_IN
        case ast.Call(func=called):
            return isinstance(called, ast.Name) and called.id in CALLED
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
            given = [*args.defaults, *(one for one in args.kw_defaults if one is not None)]
            return any(isinstance(one, (ast.List, ast.Dict, ast.Set, ast.ListComp)) for one in given)
    return True  # a global


def _may(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in IMPORTED)
