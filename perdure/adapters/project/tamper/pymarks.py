"""Around Python tests: marks, fixtures, what a file skips as a whole and takes away again."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perdure.adapters.project.tamper.pyexpressions import skips_in
from perdure.adapters.project.tamper.pymodule import Function, Module, constant, dotted, flat, unparsed

SETUP = {
    *("setUp", "tearDown", "setUpClass", "tearDownClass", "asyncSetUp", "setUpModule", "tearDownModule"),
    *("setup", "setup_method", "setup_class", "setup_module", "setup_function", "teardown_method"),
}


def marks(body: Sequence[ast.stmt]) -> list[str]:
    return [
        skip
        for node in body
        if isinstance(node, ast.Assign) and any(dotted(target) == "pytestmark" for target in node.targets)
        for skip in skips_in(node.value)
    ]


def module_skips(module: Module) -> list[str]:
    """Skips that hold for a whole file: `pytestmark`, and whatever runs when it is loaded."""
    found = marks(module.tree.body)
    for node, condition in flat(module.tree.body):
        if isinstance(node, ast.Expr | ast.Raise):
            found += [f"{condition}: {skip}" if condition else skip for skip in skips_in(node)]
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and "importorskip" in dotted(node.value.func)
        ):
            found += skips_in(node.value)
    return found


def taken_away(module: Module) -> Iterator[str]:
    """Names of tests that statements of the file remove or replace afterwards: `Class.test_x`, `__test__ test_x`."""
    for node, _ in flat(module.tree.body):
        if isinstance(node, ast.Assign | ast.Delete):
            for target in node.targets:
                name = dotted(target)
                if name.endswith(".__test__"):
                    yield f"__test__ {name.removesuffix('.__test__')}"
                elif "." in name:
                    yield name
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if dotted(call.func) in ("delattr", "setattr") and len(call.args) > 1 and constant(call.args[1]):
                yield f"{dotted(call.args[0])}.{ast.literal_eval(call.args[1])}"


def switched_off(body: Sequence[ast.stmt]) -> bool:
    return any(
        isinstance(node, ast.Assign)
        and any(dotted(target) == "__test__" for target in node.targets)
        and isinstance(node.value, ast.Constant)
        and not node.value.value
        for node in body
    )


def fixture(function: Function) -> bool:
    names = (dotted(part.func if isinstance(part, ast.Call) else part) for part in function.decorator_list)
    return any(name.rpartition(".")[2] in ("fixture", "overload", "property") for name in names)


def autouse(function: Function) -> bool:
    return any(
        isinstance(part, ast.Call) and any(word.arg == "autouse" for word in part.keywords)
        for part in function.decorator_list
    )


def fixtures(module: Module) -> dict[str, tuple[int, str]]:
    found = {}
    for owner in (None, *module.classes.values()):
        for node in owner.body if owner else module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.name in SETUP or fixture(node)):
                name = f"{owner.name}::{node.name}" if owner else node.name
                found[name] = node.lineno, unparsed(node)
    return found


def idle(node: ast.stmt) -> bool:
    if isinstance(node, ast.Pass | ast.Return | ast.Assert):
        return not any(isinstance(part, ast.Call) for part in ast.walk(node))
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
