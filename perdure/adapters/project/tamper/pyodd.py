"""Lines in Python files that change how tests run, instead of being tests."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from perdure.adapters.project.tamper.inventory import Odd
from perdure.adapters.project.tamper.pymodule import Function, Module, dotted, flat, unparsed
from perdure.models.report import Tampering

FRAMEWORKS = {"pytest", "_pytest", "unittest", "pluggy", "builtins", "nose", "hypothesis"}
_LEAVES = {"os._exit", "sys.exit", "exit", "quit", "_exit"}
_ALWAYS = {"atexit.register", "pytest.exit"}
_TIDY = {"shutil.rmtree", "os.remove", "os.unlink", "os.rmdir", "logging.shutdown"}
_ENDS = {"_exit", "exit", "quit", "abort", "kill", "killpg", "SystemExit", "execv", "execve", "execvp", "raise_signal"}
_DARK = {"globals", "vars", "exec", "eval", "__import__", "delattr", "setattr"}
_CASE_METHODS = {
    *("run", "__call__", "debug", "countTestCases", "defaultTestResult", "_callTestMethod", "_callSetUp", "shouldStop"),
    *("failureException", "fail", "subTest"),
}


def odd_lines(module: Module, script: bool = False) -> Iterator[Odd]:
    """Everything of that kind in one file. What the base had too is no news: the caller compares. `script`: the file is
    run, so what it does only then counts as well."""
    alone = set[ast.AST]() if script else _alone(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            if node not in alone:
                yield from _call(module, node)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            for target in targets:
                yield from _assigned(module, target)
        elif isinstance(node, ast.ClassDef):
            yield from _class(node)
    for node, _ in flat(module.tree.body):
        if isinstance(node, ast.FunctionDef) and node.name == "load_tests":
            yield Odd(
                Tampering.CONFIGURATION, "def load_tests", node.lineno, "load_tests decides which tests there are"
            )
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from _dark(node.value)
        elif isinstance(node, ast.For | ast.While):
            for part in ast.walk(node):
                if isinstance(part, ast.Call):
                    yield from _dark(part)
        elif isinstance(node, ast.Raise) and _leaves(node):
            yield Odd(Tampering.COMMAND, unparsed(node), node.lineno, "SystemExit is raised when it is loaded")
        elif isinstance(node, ast.Delete):
            yield Odd(Tampering.GONE, unparsed(node), node.lineno, "something is deleted when the file is loaded")
    for name, origin in module.imports.items():
        root = origin.partition(":")[0].lstrip(".").partition(".")[0]
        if name in FRAMEWORKS and (root != name or origin.startswith(".")):
            yield Odd(Tampering.HOLLOW, f"{name} = {origin}", 1, f"`{name}` is not {name} in this file")
    for name in FRAMEWORKS & (set(module.values) | set(module.functions) | set(module.classes)):
        yield Odd(Tampering.HOLLOW, f"{name} = …", 1, f"`{name}` is not {name} in this file")


def on_import(module: Module) -> Iterator[Odd]:
    """What ends the process as soon as the file is loaded, or at the process's end: for files that are tested."""
    for node, _ in flat(module.tree.body):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _main(module, node):
            name = dotted(node.value.func)
            if name in _LEAVES or name == "atexit.register":
                yield Odd(Tampering.COMMAND, unparsed(node), node.lineno, f"{name} runs when it is loaded")
        elif isinstance(node, ast.Raise) and _leaves(node) and not _main(module, node):
            yield Odd(Tampering.COMMAND, unparsed(node), node.lineno, "SystemExit is raised when it is loaded")


def _leaves(node: ast.Raise) -> bool:
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return raised is not None and dotted(raised) == "SystemExit"


def _main(module: Module, node: ast.stmt) -> bool:
    return any(found is node and "__name__" in condition for found, condition in flat(module.tree.body))


def _alone(module: Module) -> set[ast.AST]:
    """What only runs where the file is the program: below `if __name__ == "__main__"`, without its `else`."""
    return {
        part
        for node in module.tree.body
        if isinstance(node, ast.If) and unparsed(node.test) == "__name__ == '__main__'"
        for inner in node.body
        for part in ast.walk(inner)
    }


def _tidies(module: Module, node: ast.Call) -> bool:
    """`atexit.register` of something that only cleans up: of the standard library, or defined here, never leaving."""
    name = dotted(node.args[0]) if node.args else ""
    origin = module.imports.get(name.partition(".")[0], "")
    if f"{origin.replace(':', '.')}.{name.partition('.')[2]}".rstrip(".") in _TIDY:
        return True
    leaf = name.rpartition(".")[2]
    if name not in (leaf, f"self.{leaf}", f"cls.{leaf}"):
        return False
    here = [part for part in ast.walk(module.tree) if isinstance(part, Function) and part.name == leaf]
    inside = [part for function in here for part in ast.walk(function)]
    calls = [dotted(part.func) for part in inside if isinstance(part, ast.Call)]
    refers = [dotted(part) for part in inside if isinstance(part, ast.Attribute | ast.Name)]
    leaves = any(call.rpartition(".")[2] in _ENDS for call in (*calls, *refers))
    dark = any(not call or call in ("getattr", "exec", "eval", "__import__") for call in calls)
    return bool(here) and not leaves and not dark and all(_known(module, call) for call in calls)


def _known(module: Module, call: str) -> bool:
    """Not a function of the tree, which could be anything."""
    first = call.partition(".")[0]
    origin = module.imports.get(first, "")
    return first not in module.functions and not origin.startswith(".") and (not origin or _standard(origin))


def _standard(origin: str) -> bool:
    return origin.partition(":")[0].partition(".")[0] in sys.stdlib_module_names


def _call(module: Module, node: ast.Call) -> Iterator[Odd]:
    name = dotted(node.func)
    if name == "atexit.register" and _tidies(module, node):
        return
    if name in _ALWAYS or (name in _LEAVES and _succeeds(node)):
        yield Odd(Tampering.COMMAND, unparsed(node), node.lineno, f"{name} can end the run before a test fails")
    elif name in ("setattr", "delattr", "monkeypatch.setattr", "mocker.patch.object") and node.args:
        target = dotted(node.args[0]).partition(".")[0]
        if target in FRAMEWORKS - {"hypothesis", "builtins"}:
            yield Odd(Tampering.CONFIGURATION, unparsed(node), node.lineno, "the test framework itself is changed")


def _succeeds(node: ast.Call) -> bool:
    """`os._exit(0)`, `sys.exit()`: an exit code that does not come from somewhere, and is no failure."""
    return all(isinstance(argument, ast.Constant) and not argument.value for argument in node.args)


def _assigned(module: Module, target: ast.expr) -> Iterator[Odd]:
    name = dotted(target)
    if "." in name:
        origin = module.imports.get(name.partition(".")[0], "")
        if origin.lstrip(".").partition(":")[0].partition(".")[0] in FRAMEWORKS and "hypothesis" not in origin:
            text = f"{unparsed(target)} = …"
            yield Odd(Tampering.CONFIGURATION, text, target.lineno, "the test framework itself is changed")
    elif isinstance(target, ast.Subscript) and dotted(target.value) == "sys.modules":
        text = f"{unparsed(target)} = …"
        yield Odd(Tampering.CONFIGURATION, text, target.lineno, "a module is replaced by another one")
    elif isinstance(target, ast.Subscript) and unparsed(target.value) in ("globals()", "vars()"):
        yield Odd(Tampering.GONE, unparsed(target), target.lineno, "names are replaced when the file is loaded")


def _class(node: ast.ClassDef) -> Iterator[Odd]:
    if not any(dotted(base).endswith(("TestCase", "TestResult", "TestRunner")) for base in node.bases):
        return
    for part in node.body:
        names = [part.name] if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) else []
        if isinstance(part, ast.Assign):
            names = [dotted(target) for target in part.targets]
        for name in names:
            known = name.startswith("assert") and hasattr(_case(), name)
            if name in _CASE_METHODS or known:
                text = f"{node.name}.{name}"
                yield Odd(Tampering.HOLLOW, text, part.lineno, f"`{name}` of the test framework is replaced")


def _case() -> type:
    import unittest

    return unittest.TestCase


def _dark(node: ast.Call) -> Iterator[Odd]:
    name = dotted(node.func)
    inner = (
        dotted(node.func.value.func)
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)
        else ""
    )
    if name in _DARK or inner in _DARK:
        yield Odd(Tampering.CONFIGURATION, unparsed(node), node.lineno, "names are changed when the file is loaded")
