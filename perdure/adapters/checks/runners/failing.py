"""Test files in which every test is made to fail at its end, whatever it returned: their bodies are those that the code
under test may know."""

from __future__ import annotations

import ast
import re
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from perdure.models.limits import SIDE_PATTERNS

EVERY = "*"
"""Stands in the place of names: every test that a file reports is made to fail."""


class FailingBody(NamedTuple):
    """A test function that is made to fail at its end.

    place        `TestA::test_b` where nothing but the runner runs it and looks at how it ended: no decorator but
                 marks, no class to inherit from, no other thing of its name; empty elsewhere
    end_message  the message of its failure, which nothing says before the body came to its end
    """

    name: str
    place: str
    end_message: str


def parse_python(text: str) -> ast.Module | None:
    """Return the syntax tree of a module; None where the text is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def fail_python_tests(text: str, token: str) -> tuple[str, tuple[FailingBody, ...]]:
    """Put a decorator at each test function and method of a module that makes it fail at its end; return the new text
    and these tests.

    The decorator (see python_fail_helper) stands in a line of its own right above `def`, within whatever else decorates
    the test. The text as it is and () where it is no Python.
    """
    if (tree := parse_python(text)) is None:
        return text, ()
    lines, tests = split_lines(text), list[tuple[int, FailingBody]]()
    pending: list[tuple[ast.AST, str | None]] = [(tree, "")]
    while pending:
        parent, prefix = pending.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{prefix}{node.name}" if prefix is not None and _is_plain(node) else ""
                tests += (
                    [(node.lineno, FailingBody(node.name, place, random_end_message()))]
                    if node.name.startswith("test")
                    else []
                )
            elif isinstance(node, ast.ClassDef):
                is_plain = prefix is not None and not (node.bases or node.keywords or node.decorator_list)
                pending.append((node, f"{prefix}{node.name}::" if is_plain else None))
            elif isinstance(node, ast.stmt | ast.excepthandler):
                pending.append((node, prefix))
    for number, body in sorted(tests, reverse=True):
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip(" \t\f"))]
        lines.insert(number - 1, f"{indent}@fails_{token}('{body.end_message}')\n")
    return "".join(lines), _drop_ambiguous_places([body for _, body in tests], tree)


def random_end_message() -> str:
    """Return a message that nobody can know before."""
    return f"end {secrets.token_hex(8)}"


def _is_plain(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function's body runs where it is called (it is not async) and its only decorators are marks of
    pytest."""
    marks = [decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in node.decorator_list]
    return isinstance(node, ast.FunctionDef) and all(
        re.fullmatch(r"(pytest\.)?mark\.\w+", ast.unparse(mark)) is not None for mark in marks
    )


def _drop_ambiguous_places(bodies: Sequence[FailingBody], tree: ast.AST) -> tuple[FailingBody, ...]:
    """Return the tests, with an empty `place` for each that something else of its name may stand for: another test, an
    assignment, an import."""
    counts = Counter(body.place for body in bodies)
    rebound_names = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    rebound_names |= {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    rebound_names |= {
        (node.asname or node.name).partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.alias)
    }
    return tuple(
        body
        if counts[body.place] == 1 and rebound_names.isdisjoint(body.place.split("::"))
        else body._replace(place="")
        for body in bodies
    )


def python_fail_helper(token: str, error: str = "ended = AssertionError") -> str:
    """Return the source of the decorator `fails_<token>(end)`, which raises an error with the message `end` when the
    test has ended.

    error  the statement that names, as `ended`, the class of what is raised

    It is plain code that waits for what a test waits for; a generator is left alone, for its body runs elsewhere. It
    fails no test whose code, or whose object's assertions, somebody has replaced.
    """
    return f"""\
def fails_{token}(end):
    import functools, inspect
    {error}
    def decorated(real):
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
                    raise ended(end)
        elif inspect.isgeneratorfunction(real) or inspect.isasyncgenfunction(real):
            return real
        else:
            @functools.wraps(real)
            def failing(*given, **named):
                real(*given, **named)
                if whole(given):
                    raise ended(end)
        return failing
    return decorated
"""


def split_lines(text: str) -> list[str]:
    """Split a text into lines with their ends, as Python counts them: no other character than CR and LF ends one."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def fail_go_tests(text: str, end_messages: dict[str, str]) -> tuple[str, frozenset[str]]:
    """Make each test function of a Go file fail when it ends, its subtests not; return the new text and the names of
    the tests.

    end_messages  filled here: by the name of each test, what it says at its end where it has not failed before
    """
    pattern = re.compile(r"^func (Test(?![a-z])\w*)\((\w+) \*testing\.T\) \{", re.MULTILINE)
    names = frozenset(match[1] for match in pattern.finditer(text) if match[2] != "_")

    def add_failure(match: re.Match[str]) -> str:
        name, t = match[1], match[2]
        statement = (
            f'if {t}.Failed() {{ {t}.Error("x") }} else '
            f'{{ {t}.Error("{end_messages.setdefault(name, random_end_message())}") }}'
        )
        return match[0] if t == "_" else f"{match[0]} defer func() {{ {statement} }}();"

    return pattern.sub(add_failure, text), names


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
const F = (get, late, end) => {
  const next = setImmediate;
  const fail = (name) => { throw new Error(end ? `${end} ${name}` : 'x'); };
  const body = (name) => (one) => typeof one !== 'function' ? one : new Proxy(one, { apply(target, self, given) {
    if (given.length > late && typeof given[late] === 'function') {
      const done = given[late];
      const failed = Object.assign((error) => done(error ?? new Error('x')), done);
      return Reflect.apply(target, self, [...given.slice(0, late), failed]);
    }
    for (const inner of given) {
      if (typeof inner?.test !== 'function') continue;
      const real = inner.test.bind(inner);
      try { inner.test = (...more) => real(...more.map(body(more[0]))); } catch {}
    }
    const found = Reflect.apply(target, self, given);
    if (end) return Promise.resolve(found).then(() => new Promise((go) => next(go))).then(() => fail(name));
    return typeof found?.then === 'function' ? found.then(fail) : fail();
  } });
  const call = (real, owner = () => undefined) => new Proxy(function () {}, {
    apply(_, self, given) {
      const found = Reflect.apply(real(), owner(), given.map(body(given[0])));
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
`late`: the place of the callback that ends a test, where a runner gives it one; `end`: what each says that came to its
end, with its name, a moment later, when what it left behind has failed."""

_LATE = {"node:test": 1, "@jest/globals": 0, "vitest": 99, "jest": 0}


def fail_javascript_tests(text: str, module: str, token: str, end_message: str = "") -> tuple[str, str]:
    """Return the lines to put in front of a test file, and the file, with its `test` and `it` replaced by ones that
    fail at each test's end.

    module       where its tests come from: `node:test`, `vitest`, `@jest/globals` or `jest`; but for the first,
                 they may be globals that the file does not import
    token        makes the names of the added helpers unlike those of the file; it is in no message
    end_message  what each test says that came to its end, with its name behind it; empty: nothing special

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
        declarations = [
            f"{name} = f{token}(() => {real}, {callback_index}, '{end_message}')" for name, real in names.items()
        ]
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
