"""Test files in which every test is made to fail at its end, whatever it returned: their bodies are those that the code
under test may know."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from perdure.models.limits import SIDE_PATTERNS

EVERY = "*"
"""Stands in the place of names: every test that a file reports is made to fail."""


def parse_python(text: str) -> ast.Module | None:
    """Return the syntax tree of a module; None where the text is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def fail_python_tests(text: str, token: str) -> tuple[str, frozenset[str]]:
    """Put a decorator at each test function and method of a module that makes it fail at its end; return the new text
    and the names of these tests.

    The decorator (see python_fail_helper) stands in a line of its own right above `def`, within whatever else decorates
    the test. The text as it is, and no names, where it is no Python.
    """
    if (tree := parse_python(text)) is None:
        return text, frozenset()
    lines, tests, pending = split_lines(text), list[tuple[int, str]](), list[ast.AST]([tree])
    while pending:
        for node in ast.iter_child_nodes(pending.pop()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                tests += [(node.lineno, node.name)] if node.name.startswith("test") else []
            elif isinstance(node, ast.stmt | ast.excepthandler):
                pending.append(node)
    for number, _ in sorted(tests, reverse=True):
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip(" \t\f"))]
        lines.insert(number - 1, f"{indent}@fails_{token}\n")
    return "".join(lines), frozenset(name for _, name in tests)


def python_fail_helper(token: str, error: str = "ended = AssertionError") -> str:
    """Return the source of the decorator `fails_<token>`, which raises an error when the test has ended.

    error  the statement that names, as `ended`, the class of what is raised

    It is plain code that waits for what a test waits for; a generator is left alone, for its body runs elsewhere. It
    fails no test whose code, or whose object's assertions, somebody has replaced.
    """
    return f"""\
def fails_{token}(real):
    import functools, inspect
    {error}
    code = getattr(real, '__code__', None)
    def whole(given):
        own = getattr(given[0], '__dict__', ()) if given else ()
        changed = any(name.startswith(('assert', 'fail')) for name in own)
        return getattr(real, '__code__', None) is code and not changed
    if inspect.iscoroutinefunction(real):
        @functools.wraps(real)
        async def failing(*given, **named):
            await real(*given, **named)
            if whole(given):
                raise ended('x')
    elif inspect.isgeneratorfunction(real) or inspect.isasyncgenfunction(real):
        return real
    else:
        @functools.wraps(real)
        def failing(*given, **named):
            real(*given, **named)
            if whole(given):
                raise ended('x')
    return failing
"""


def split_lines(text: str) -> list[str]:
    """Split a text into lines with their ends, as Python counts them: no other character than CR and LF ends one."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def fail_go_tests(text: str) -> tuple[str, frozenset[str]]:
    """Make each test function of a Go file fail when it ends, its subtests not; return the new text and the names of
    the tests."""
    pattern = re.compile(r"^func (Test(?![a-z])\w*)\((?!_ )(\w+) \*testing\.T\) \{", re.MULTILINE)
    names = frozenset(match[1] for match in pattern.finditer(text))
    return pattern.sub(lambda match: f'{match[0]} defer {match[2]}.Error("x");', text), names


def fail_rust_tests(text: str, token: str) -> tuple[str, frozenset[str]]:
    """Put a guard into each test function of a Rust file that makes it fail when it ends; return the new text and the
    names of the tests.

    The guard's type is `Fails<token>` (see rust_helper). Functions with parameters are left as they are.
    """
    pattern = re.compile(
        r"(#\[(?:\w+::)*test(?:\([^)\n]{0,200}\))?\]\s{0,200}(?:#\[[^\]\n]{0,200}\]\s{0,200}){0,20}"
        r"(?:pub\s{1,20})?(?:async\s{1,20})?fn\s{1,20}(\w+)\s{0,20}\(\s{0,20}\)[^{;]{0,200}\{)"
    )
    names = frozenset(match[2] for match in pattern.finditer(text))
    return pattern.sub(lambda m: f"{m[1]} let _{token} = Fails{token};", text), names


def rust_helper(token: str) -> str:
    """Return the source of the type `Fails<token>`: a value of it panics when it is dropped, unless its thread already
    panics."""
    guarded = 'if !std::thread::panicking() { panic!("x") }'
    return f"struct Fails{token};\nimpl Drop for Fails{token} {{ fn drop(&mut self) {{ {guarded} }} }}\n"


_HELPER = """\
const F = (get, late) => {
  const fail = () => { throw new Error('x'); };
  const body = (one) => typeof one !== 'function' ? one : new Proxy(one, { apply(target, self, given) {
    if (given.length > late && typeof given[late] === 'function') {
      const done = given[late];
      const failed = Object.assign((error) => done(error ?? new Error('x')), done);
      return Reflect.apply(target, self, [...given.slice(0, late), failed]);
    }
    for (const inner of given) {
      if (typeof inner?.test !== 'function') continue;
      const real = inner.test.bind(inner);
      try { inner.test = (...more) => real(...more.map(body)); } catch {}
    }
    const found = Reflect.apply(target, self, given);
    return typeof found?.then === 'function' ? found.then(fail) : fail();
  } });
  const call = (real, owner = () => undefined) => new Proxy(function () {}, {
    apply(_, self, given) {
      const found = Reflect.apply(real(), owner(), given.map(body));
      return typeof found === 'function' ? call(() => found) : found;
    },
    get(_, key) {
      const found = real()[key];
      const tests = /^(test|it|only|each|concurrent|sequential|skipIf|runIf|for|extend)$/.test(String(key));
      return tests && typeof found === 'function' ? call(() => real()[key], real) : found;
    },
  });
  return call(get);
};
"""
"""A test function that fails at the end of each body. `get`: the real one, asked for at each use, as the file would;
`late`: the place of the callback that ends a test, where a runner gives it one."""

_LATE = {"node:test": 1, "@jest/globals": 0, "vitest": 99, "jest": 0}


def fail_javascript_tests(text: str, module: str, token: str) -> tuple[str, str]:
    """Return the lines to put in front of a test file, and the file, with its `test` and `it` replaced by ones that
    fail at each test's end.

    module  where its tests come from: `node:test`, `vitest`, `@jest/globals` or `jest`; but for the first, they may
            be globals that the file does not import
    token   makes the names of the added helpers unlike those of the file; it is in no message

    Both empty where the file does not take its tests in a way that is read here: `import * as`, names of its own.
    """
    callback_index, names = _LATE[module], dict[str, str]()
    alias_count = 0

    def new_alias(name: str) -> str:
        nonlocal alias_count
        alias_count += 1
        names[name] = f"r{token}{alias_count}"
        return names[name]

    def pop_declarations() -> list[str]:
        declarations = [f"{name} = f{token}(() => {real}, {callback_index})" for name, real in names.items()]
        names.clear()
        return declarations

    def rename_list(items: str, separator: str) -> str:
        return ", ".join(_rename_import(item, separator, new_alias) for item in items.split(",") if item.strip())

    def rewrite_import(match: re.Match[str]) -> str:
        default, listed = match[1], match[2]
        default_alias = new_alias(default) if default else ""
        clauses = [
            part
            for part in (default_alias, f"{{ {rename_list(listed, ' as ')} }}" if listed is not None else "")
            if part
        ]
        shadowing = "".join(f" const {declaration};" for declaration in pop_declarations())
        return f"import {', '.join(clauses)} from '{module}';{shadowing}"

    def rewrite_require(match: re.Match[str]) -> str:
        listed = new_alias(match[2]) if match[2] else f"{{ {rename_list(match[3], ': ')} }}"
        return ", ".join([f"{match[1]}{listed} = require('{module}'){match[4] or ''}", *pop_declarations()])

    quoted = rf"""["']{re.escape(module)}["']"""
    listing = r"""\{([^}"']{0,1000})\}"""
    import_head = (
        rf"^[ \t]{{0,40}}import\s{{1,9}}(?!type\b)(\w+)?\s{{0,9}},?\s{{0,9}}(?:{listing})?\s{{0,9}}from\s{{0,9}}"
    )
    declaration_head = rf"^([ \t]{{0,40}}(?:const|let|var)\s{{1,9}})(?:(\w+)|{listing})\s{{0,9}}=\s{{0,9}}"
    changed, import_count = re.subn(rf"{import_head}{quoted};?", rewrite_import, text, flags=re.MULTILINE)
    require_call = rf"require\({quoted}\)(\.(?:test|it)\b)?(?!\s{{0,99}}[.(\[])"
    changed, require_count = re.subn(rf"{declaration_head}{require_call}", rewrite_require, changed, flags=re.MULTILINE)
    if import_count or require_count:
        return _javascript_helper(token), changed
    if module == "node:test" or re.search(rf"""["'](?:{re.escape(module)}|@jest/globals|bun:test)["']""", text):
        return "", ""
    own_names = set(
        re.findall(r"\b(?:const|let|var|function|class)\s{1,9}(?:\{[^}]{0,300}\b)?(test|it)\b", text)[:SIDE_PATTERNS]
    )
    for name in sorted({"test", "it"} - own_names):
        names[name] = f"globalThis.{name}"
    return (
        (_javascript_helper(token) + "".join(f"const {import_count};\n" for import_count in pop_declarations()), text)
        if names
        else ("", "")
    )


def _rename_import(item: str, separator: str, new_alias: Callable[[str], str]) -> str:
    """Return an item of an import list, with its local name replaced by a new alias where it is a test function (`it as
    works`); any other as it is."""
    name, _, own = (
        part.strip() for part in item.strip().partition(separator.strip() if separator == ": " else separator)
    )
    tests = name in ("test", "it", "default")
    return f"{name}{separator}{new_alias(own or name)}" if tests else item.strip()


def _javascript_helper(token: str) -> str:
    """Return the source of the function `f<token>` that wraps a test function so that each of its tests fails."""
    return _HELPER.replace("const F =", f"const f{token} =", 1)
