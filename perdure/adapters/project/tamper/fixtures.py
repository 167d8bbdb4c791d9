"""What a conftest.py does besides offering fixtures."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence

from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.inventory import hit, is_now, only_new, was
from perdure.adapters.project.tamper.pymodule import Function, Module, dotted, flat, parsed, unparsed
from perdure.models.report import Hit, Tampering

_DECIDES = {"collect_ignore", "collect_ignore_glob", "pytest_plugins", "pytestmark"}
_BUILT_IN = {
    *("request", "monkeypatch", "tmp_path", "tmpdir", "capsys", "capfd", "caplog", "recwarn", "pytestconfig", "cache"),
    *("tmp_path_factory", "doctest_namespace", "mocker", "event_loop", "record_property"),
}


def conftest_hits(before: Files, after: Files, paths: Sequence[str]) -> list[Hit]:
    """Hits in conftest.py files that differ. Plain fixtures may be added, moved and removed; one that stays and does
    something else is a hit, because every test that uses it now says something else."""
    hits: list[Hit] = []
    old = {path: parsed(path, before.text(path)) for path in paths if before.has(path)}
    new = {path: parsed(path, after.text(path)) for path in paths if after.has(path)}
    for path in new:
        if new[path] is None or after.is_link(path):
            hits.append(hit(Tampering.CONFIGURATION, f"{path} cannot be read", path))
    had = [(text, why) for module in old.values() if module for _, text, why in _risks(module)]
    has = [(text, why) for module in new.values() if module for _, text, why in _risks(module)]
    added = only_new([text for text, _ in has], [text for text, _ in had])
    for path, module in new.items():
        for line, text, why in _risks(module) if module else ():
            if text in added:
                added.remove(text)
                hits.append(hit(Tampering.CONFIGURATION, f"{path}: {why}", path, line, is_now(text)))
    lost = [text for text, why in had if why.startswith("hook")]
    for text in only_new(lost, [text for text, _ in has]):
        title = f"{', '.join(paths)}: a hook is gone or changed"
        hits.append(hit(Tampering.CONFIGURATION, title, paths[0], None, was(text)))
    for path, module in old.items():
        other = new.get(path)
        if module and other:
            hits += _changed(path, module, other)
    return hits


def _changed(path: str, old: Module, new: Module) -> list[Hit]:
    hits = []
    for name, function in old.functions.items():
        now = new.functions.get(name)
        if now is not None and not name.startswith("pytest_") and _plain(function) != _plain(now):
            evidence = was(old.line(function)), is_now(new.line(now))
            title = f"{path}: `{name}`, which tests use, is changed"
            hits.append(hit(Tampering.CONFIGURATION, title, path, now.lineno, *evidence))
    return hits


def _risks(module: Module) -> Iterator[tuple[int, str, str]]:
    """(line, text, what it is)."""
    for node, _ in flat(module.tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("pytest_") and not all(map(_declares, node.body)):
                yield node.lineno, _plain(node), f"hook `{node.name}` is new or changed"
            elif autouse(node):
                yield node.lineno, _plain(node), f"fixture `{node.name}` is used by every test (autouse)"
            elif node.name in _BUILT_IN:
                yield node.lineno, _plain(node), f"fixture `{node.name}` stands in for one of the runner's own"
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else node.targets
            names = {dotted(target) or unparsed(target) for target in targets}
            if names & _DECIDES:
                yield node.lineno, unparsed(node), f"`{sorted(names & _DECIDES)[0]}` decides what is collected"
            elif any(not isinstance(target, ast.Name) for target in targets) or isinstance(node, ast.Delete):
                yield node.lineno, unparsed(node), "something is changed when it is loaded"
        elif _runs(node):
            yield node.lineno, unparsed(node), "something runs when it is loaded"


def _runs(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        call = node.value.func if isinstance(node.value, ast.Call) else node.value
        return not isinstance(node.value, ast.Constant) and dotted(call) != "pytest.register_assert_rewrite"
    return isinstance(node, ast.For | ast.While | ast.Raise | ast.Assert | ast.With)


def _declares(node: ast.stmt) -> bool:
    """A docstring, a marker or an option of the repository's own: nothing runs differently for it."""
    if not isinstance(node, ast.Expr):
        return False
    call = node.value
    if not isinstance(call, ast.Call) or any(isinstance(part, ast.Call) for part in ast.walk(call) if part is not call):
        return isinstance(call, ast.Constant)
    if dotted(call.func) == "config.addinivalue_line":
        return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == "markers"
    name = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else ""
    return dotted(call.func) == "parser.addoption" and str(name).startswith("--")


def autouse(function: Function) -> bool:
    return any(
        isinstance(part, ast.Call) and any(word.arg == "autouse" and not _false(word.value) for word in part.keywords)
        for part in function.decorator_list
    )


def _false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _plain(function: Function) -> str:
    """Without docstring and types, which change nothing."""
    function = copy.deepcopy(function)
    function.returns = None
    for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
        arg.annotation = None
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(function.body) > 1:
        del function.body[0]
    return unparsed(function)
