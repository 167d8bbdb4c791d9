"""Test files in which every test fails at its end, whatever it returned: the bodies that code under test may know."""

from __future__ import annotations

import ast
import re
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from perdure.models.limits import SIDE_PATTERNS

EVERY = "*"
"""In the place of names: whatever a file reports is made to fail."""


class Body(NamedTuple):
    """A test function that fails at its end.

    place  `TestA::test_b` where nothing but the runner runs it and looks at how it ended: no decorator but marks, no
           class to inherit from, no other thing of its name; empty elsewhere
    end    the words of its failure, which nothing says before it came to its end
    """

    name: str
    place: str
    end: str


def parsed(text: str) -> ast.Module | None:
    """None where it is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def python(text: str, token: str) -> tuple[str, tuple[Body, ...]]:
    """With a decorator at each test function and method, and these; the text as it is where it cannot be.

    The decorator stands in a line of its own right above `def`, within whatever else decorates the test.
    """
    if (tree := parsed(text)) is None:
        return text, ()
    lines, found = lined(text), list[tuple[int, Body]]()
    left: list[tuple[ast.AST, str | None]] = [(tree, "")]
    while left:
        inside, above = left.pop()
        for node in ast.iter_child_nodes(inside):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{above}{node.name}" if above is not None and _is_plain(node) else ""
                found += [(node.lineno, Body(node.name, place, end()))] if node.name.startswith("test") else []
            elif isinstance(node, ast.ClassDef):
                plain = above is not None and not (node.bases or node.keywords or node.decorator_list)
                left.append((node, f"{above}{node.name}::" if plain else None))
            elif isinstance(node, ast.stmt | ast.excepthandler):
                left.append((node, above))
    for number, body in sorted(found, reverse=True):
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip(" \t\f"))]
        lines.insert(number - 1, f"{indent}@fails_{token}('{body.end}')\n")
    return "".join(lines), _told_apart([body for _, body in found], tree)


def end() -> str:
    """Words that nobody can know before."""
    return f"end {secrets.token_hex(8)}"


def _is_plain(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True where its decorators are marks of pytest, and its body runs where it is called."""
    marks = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    return isinstance(node, ast.FunctionDef) and all(
        re.fullmatch(r"(pytest\.)?mark\.\w+", ast.unparse(mark)) is not None for mark in marks
    )


def _told_apart(bodies: Sequence[Body], tree: ast.AST) -> tuple[Body, ...]:
    """Without the places of those that something else of their name may stand for."""
    often = Counter(body.place for body in bodies)
    other = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    other |= {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    other |= {(node.asname or node.name).partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.alias)}
    return tuple(
        body if often[body.place] == 1 and other.isdisjoint(body.place.split("::")) else body._replace(place="")
        for body in bodies
    )


def python_helper(token: str, error: str = "ended = AssertionError") -> str:
    """Plain code that waits for what a test waits for; a generator is left alone, for its body runs elsewhere. It fails
    no test whose code, or whose object's assertions, somebody has replaced.

    error  the statement of what is raised as `ended`
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


def lined(text: str) -> list[str]:
    """Lines with their ends, as Python counts them: no other character ends one."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def go(text: str, ends: dict[str, str]) -> tuple[str, frozenset[str]]:
    """Each test fails when it ends; its subtests do not. `ends`: takes what each says that has not failed before."""
    pattern = re.compile(r"^func (Test(?![a-z])\w*)\((\w+) \*testing\.T\) \{", re.MULTILINE)
    names = frozenset(found[1] for found in pattern.finditer(text) if found[2] != "_")

    def failing(found: re.Match[str]) -> str:
        name, t = found[1], found[2]
        said = f'if {t}.Failed() {{ {t}.Error("x") }} else {{ {t}.Error("{ends.setdefault(name, end())}") }}'
        return found[0] if t == "_" else f"{found[0]} defer func() {{ {said} }}();"

    return pattern.sub(failing, text), names


def rust(text: str, token: str) -> tuple[str, frozenset[str]]:
    pattern = re.compile(
        r"(#\[(?:\w+::)*test(?:\([^)\n]{0,200}\))?\]\s{0,200}(?:#\[[^\]\n]{0,200}\]\s{0,200}){0,20}"
        r"(?:pub\s{1,20})?(?:async\s{1,20})?fn\s{1,20}(\w+)\s{0,20}\(\s{0,20}\)[^{;]{0,200}\{)"
    )
    names = frozenset(found[2] for found in pattern.finditer(text))
    return pattern.sub(lambda m: f"{m[1]} let _{token} = Fails{token};", text), names


def rust_helper(token: str) -> str:
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


def javascript(text: str, module: str, token: str, end: str = "") -> tuple[str, str]:
    """The lines in front of a test file, and the file, with its `test` and `it` in the place of those of `module`.

    Both empty where it does not take them in a way that is read here: `import * as`, names of its own.
    """
    late, names = _LATE[module], dict[str, str]()
    made = 0

    def kept(name: str) -> str:
        nonlocal made
        made += 1
        names[name] = f"r{token}{made}"
        return names[name]

    def shadows() -> list[str]:
        found = [f"{name} = f{token}(() => {real}, {late}, '{end}')" for name, real in names.items()]
        names.clear()
        return found

    def inner(listed: str, word: str) -> str:
        return ", ".join(_renamed(one, word, kept) for one in listed.split(",") if one.strip())

    def imported(found: re.Match[str]) -> str:
        default, listed = found[1], found[2]
        alone = kept(default) if default else ""
        wanted = [part for part in (alone, f"{{ {inner(listed, ' as ')} }}" if listed is not None else "") if part]
        shadowing = "".join(f" const {one};" for one in shadows())
        return f"import {', '.join(wanted)} from '{module}';{shadowing}"

    def required(found: re.Match[str]) -> str:
        listed = kept(found[2]) if found[2] else f"{{ {inner(found[3], ': ')} }}"
        return ", ".join([f"{found[1]}{listed} = require('{module}'){found[4] or ''}", *shadows()])

    quoted = rf"""["']{re.escape(module)}["']"""
    listing = r"""\{([^}"']{0,1000})\}"""
    head = rf"^[ \t]{{0,40}}import\s{{1,9}}(?!type\b)(\w+)?\s{{0,9}},?\s{{0,9}}(?:{listing})?\s{{0,9}}from\s{{0,9}}"
    mine = rf"^([ \t]{{0,40}}(?:const|let|var)\s{{1,9}})(?:(\w+)|{listing})\s{{0,9}}=\s{{0,9}}"
    changed, one = re.subn(rf"{head}{quoted};?", imported, text, flags=re.MULTILINE)
    behind = rf"require\({quoted}\)(\.(?:test|it)\b)?(?!\s{{0,99}}[.(\[])"
    changed, two = re.subn(rf"{mine}{behind}", required, changed, flags=re.MULTILINE)
    if one or two:
        return _helper(token), changed
    if module == "node:test" or re.search(rf"""["'](?:{re.escape(module)}|@jest/globals|bun:test)["']""", text):
        return "", ""
    own = set(
        re.findall(r"\b(?:const|let|var|function|class)\s{1,9}(?:\{[^}]{0,300}\b)?(test|it)\b", text)[:SIDE_PATTERNS]
    )
    for name in sorted({"test", "it"} - own):
        names[name] = f"globalThis.{name}"
    return (_helper(token) + "".join(f"const {one};\n" for one in shadows()), text) if names else ("", "")


def _renamed(one: str, word: str, kept: Callable[[str], str]) -> str:
    """`it as works` with another name for what is a test; the rest as it is."""
    name, _, own = (part.strip() for part in one.strip().partition(word.strip() if word == ": " else word))
    tests = name in ("test", "it", "default")
    return f"{name}{word}{kept(own or name)}" if tests else one.strip()


def _helper(token: str) -> str:
    return _HELPER.replace("const F =", f"const f{token} =", 1)
