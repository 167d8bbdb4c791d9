"""The runners `python -m unittest` and Django's `manage.py test`, and canaries in Python for them and for pytest: the
same always-failing test, which tries each form of assertion, and a check that the product has replaced neither the
runner, nor its assertions, nor the tests.

The product runs in the same process. Code that knows this text can still hide from it; but then it is code whose
purpose a reviewer sees.
"""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from perdure.adapters.checks.globs import fnmatch_regex
from perdure.adapters.checks.runners.base import (
    Canaries,
    ConfiguredTestSide,
    Invocation,
    ReportRequest,
    Runner,
    StartupModule,
    translate_patterns,
)
from perdure.adapters.checks.runners.command_trace import CommandDirectory
from perdure.models.checks.report import TestCase
from perdure.text import shell_word

FORMS = """\
    import unittest
    from unittest import mock
    case = unittest.TestCase()
    def raising():
        with case.assertRaises(ValueError):
            pass
    def plain():
        assert [1, 2] == [1, 3]
    forms = [
        raising, plain, lambda: case.fail('x'), lambda: case.assertEqual(1, 2), lambda: case.assertNotEqual(1, 1),
        lambda: case.assertTrue(False), lambda: case.assertFalse(True), lambda: case.assertIs(1, None),
        lambda: case.assertIsNot(None, None), lambda: case.assertIsNone(1), lambda: case.assertIsNotNone(None),
        lambda: case.assertIn(1, []), lambda: case.assertNotIn(1, [1]), lambda: case.assertIsInstance(1, str),
        lambda: case.assertNotIsInstance(1, int), lambda: case.assertGreater(1, 2), lambda: case.assertLess(2, 1),
        lambda: case.assertGreaterEqual(1, 2), lambda: case.assertLessEqual(2, 1),
        lambda: case.assertAlmostEqual(1, 2), lambda: case.assertNotAlmostEqual(1, 1),
        lambda: case.assertRegex('a', 'b'), lambda: case.assertNotRegex('a', 'a'),
        lambda: case.assertListEqual([1], [2]), lambda: case.assertTupleEqual((1,), (2,)),
        lambda: case.assertDictEqual({1: 1}, {1: 2}), lambda: case.assertSetEqual({1}, {2}),
        lambda: case.assertMultiLineEqual('a', 'b'), lambda: case.assertSequenceEqual([1], [2]),
        lambda: case.assertCountEqual([1], [2]), lambda: case.assertRaises(ValueError, int),
        lambda: mock.Mock().assert_called(), lambda: mock.Mock().assert_called_once_with(1),
    ]
"""
"""Statements of a function's body that end with the list `forms`: each of its functions fails, unless somebody has
silenced it."""

ALL_FAIL = """\
    for form in forms:
        try:
            form()
        except BaseException:
            continue
        return
    assert 1 == 2
"""


def define_once(token: str, definitions: str) -> str:
    """Return the source of `define_<token>()` and its call: they define in a module what the text `definitions` does.

    The start-up module compiles a text once for all modules of a process; each module does where there is none.
    """
    return f"""\
def define_{token}():
    import builtins, sys
    snapshot = builtins.getattr(sys, 'library_snapshot', None)
    make_code = snapshot.compile_once if snapshot is not None else builtins.compile
    code = make_code({definitions!r}, '<canaries>', 'exec', dont_inherit=True)
    builtins.exec(code, builtins.globals())
define_{token}()
"""


def integrity_statements(token: str, is_last: bool, standing: str = "shape") -> str:
    """Return Python statements for the beginning of a canary (a test that must fail): they return early, so that it
    passes and is noticed, where somebody has replaced part of the runner, its assertions, or a test of this module.

    token     as in shape_function, whose functions they call
    is_last   for a canary of the last module: it compares each function's code as well, which takes longer than most
              tests
    standing  `<standing>_<token>` is a function whose source stands in the module itself
    """
    checks = _INTACT + (_CODE if is_last else "") + _TESTS.format(token)
    written = _WRITTEN.replace("SHAPE", f"'shape_{token}'").replace("STANDING", f"'{standing}_{token}'")
    checks = textwrap.indent(checks + written, "    ")
    return f"    try:\n{checks}    except Exception:\n        return\n"


_INTACT = """\
    import builtins, functools, sys, sysconfig, types, unittest
    from unittest import mock
    wanted = ('stdlib', 'platstdlib', 'purelib', 'platlib')
    libraries = tuple(path for key, path in sysconfig.get_paths().items() if key in wanted)
    names = ('unittest', 'pytest', '_pytest', 'ast', 'functools', 'importlib', 'inspect', 'math', 'operator', 're')
    found = [module for name, module in list(sys.modules.items()) if name.partition('.')[0] in names]
    found += [module for name, module in list(sys.modules.items()) if name.endswith('.testing')]
    found += [inner for module in found for inner in list(vars(module).values()) if isinstance(inner, type)]
    places = list({id(one): one for one in found}.values())
    parts = [one for place in places for one in list(vars(place).values())] + [sys.gettrace(), sys.getprofile()]
    used = ('__build_class__', 'abs', 'all', 'any', 'getattr', 'isinstance', 'len', 'max', 'min', 'repr', 'round')
    used += ('iter', 'sorted', 'sum', 'zip', '__import__', 'compile', 'exec', 'hash', 'int', 'float', 'str', 'type')
    parts += [vars(builtins).get(name) for name in used]
    wrapping = {property: 'fget', classmethod: '__func__', staticmethod: '__func__', types.MethodType: '__func__'}
    wrapping[functools.partial] = 'func'
    kinds = set(map(type, parts))
    inner = {kind: inside for kind in kinds for outer, inside in wrapping.items() if issubclass(kind, outer)}
    parts += [getattr(one, inner[type(one)]) for one in parts if type(one) in inner]
    parts += [getattr(kind, '__call__', None) for kind in kinds]
    functions = [one for one in parts if type(one) is types.FunctionType]
    homes = {id(one.__globals__): one.__globals__ for one in functions}
    files = [home['__file__'] for home in homes.values() if isinstance(home.get('__file__'), str)]
    if any(file != '' and not file.startswith(libraries) for file in files):
        return
"""

_CODE = """\
    from importlib import machinery
    generated = ('init', 'repr', 'eq', 'hash', 'setattr', 'delattr', 'lt', 'le', 'gt', 'ge', 'getstate', 'setstate')
    compiled, codes = {}, getattr(getattr(sys, 'library_snapshot', None), 'codes', {})
    for number, home in homes.items():
        name, file = home['__name__'], home.get('__file__')
        if not str(file).endswith('.py') or '_bootstrap' in str(name):
            continue  # made by a function of a library, or frozen
        left = [] if file in codes else [machinery.SourceFileLoader(name, file).get_code(name)]
        compiled[number] = codes.setdefault(file, set())
        while left:
            code = left.pop()
            compiled[number].add(code)
            left += [inside for inside in code.co_consts if isinstance(inside, types.CodeType)]
    for one in functions:
        code = one.__code__
        made = code.co_filename.startswith('<') and code.co_name.strip('_') in generated
        if code not in compiled.get(id(one.__globals__), (code,)) and not made:
            return
"""
"""A dataclass makes its own methods, of no file. The start-up module keeps what was compiled for the next that asks."""

_WRITTEN = """\
    import ast, inspect
    text = sys.library_snapshot.read_file(__file__) if hasattr(sys, 'library_snapshot') else open(__file__, 'rb').read()
    whole = compile(text, __file__, 'exec', dont_inherit=True)
    def says(code):
        found, left = {*code.co_names, *code.co_varnames, *code.co_freevars}, list(code.co_consts)
        while left:
            one = left.pop()
            left += one if isinstance(one, (tuple, frozenset)) else ()
            if isinstance(one, (int, float, complex, str, bytes)) and not isinstance(one, bool):
                found.add(one)
        return found
    written, left = {}, [whole]
    while left:
        code = left.pop()
        written[code.co_name, code.co_firstlineno] = code
        left += [inside for inside in code.co_consts if isinstance(inside, types.CodeType)]
    for one, code in now.values():
        code = getattr(inspect.unwrap(one), '__code__', code)
        if code.co_filename == now['', STANDING][1].co_filename:
            was = written.get((code.co_name, code.co_firstlineno))
            if was is None or says(was) - says(code):
                return
    codes = [*written.values(), now['', SHAPE][1], sys._getframe().f_code]
    used = set().union(*(code.co_names for code in codes)) - {*whole.co_names} - {*whole.co_varnames}
    given = [globals()[name] for name in used if name in globals() and name in vars(builtins) and name[:2] != '__']
    if any(getattr(one, '__module__', '') not in (__name__, 'builtins') for one in given):
        return
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module.partition('.')[0] in names:
            for one in node.names:
                there = getattr(sys.modules[node.module], one.name, None)
                if one.name != '*' and globals().get(one.asname or one.name) is not there:
                    return
"""
"""A module has what its file says: its functions' names and values, those that it imports by name, and builtins that a
star brings others for. pytest makes more code of each function, and none less."""

_TESTS = """\
    was, now = shape_{0}_was, shape_{0}()
    if any(now.get(key) != value for key, value in was.items()):
        return
    borrowed = ('setup', 'teardown', 'class')
    for key in now:
        if key[0] and hasattr(unittest.TestCase, key[1]) and not key[1].lower().endswith(borrowed):
            home = now[key][0].__globals__
            if key not in was or home is not globals() and not str(home.get('__file__')).startswith(libraries):
                return
"""
"""A class may borrow how it sets itself up; what it asserts with, and how it is run, is its own or the library's."""


def shape_function(token: str) -> str:
    """Return the source of `shape_<token>()`, which returns the functions that are a module's own at that time, and
    those of its classes."""
    return _SHAPE.format(token)


def shape_record(token: str) -> str:
    """Return the statement for the end of a module that records what `shape_<token>()` returns there."""
    return f"shape_{token}_was = shape_{token}()\n"


_SHAPE = """\
def shape_{0}():
    import types
    mine = [one for one in list(globals().values()) if isinstance(one, type) and one.__module__ == __name__]
    found = {{}}
    for where, place in [('', globals()), *((one.__qualname__, vars(one)) for one in mine)]:
        for name, one in list(place.items()):
            one = getattr(one, '__func__', one)
            if isinstance(one, types.FunctionType):
                found[where, name] = one, one.__code__
    return found
"""


def parse_python(text: str) -> ast.Module | None:
    """Return the syntax tree of a module; None where the text is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def split_lines(text: str) -> list[str]:
    """Split a text into lines with their ends, as Python counts them: no other character than CR and LF ends one."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def fail_python_tests(text: str, token: str) -> tuple[str, frozenset[str]]:
    """Put a decorator that makes it fail at its end at each test function and method of a module; return the new text
    and the names of these tests.

    The decorator (see python_fail_helper) stands in a line of its own right above `def`, within whatever else decorates
    the test. Functions inside functions are left alone. The text as it is, and no names, where it is no Python.
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

    error  the statement that binds the name `ended` to the class of what is raised

    A coroutine function is awaited first; a generator function is returned as it is, for its body runs elsewhere. A
    test is not failed where somebody has replaced its code, or assertions on its object.
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


@dataclass(frozen=True)
class PlantedModule:
    """A module with canaries.

    text       its new text
    own_names  the names of the functions of tests that were there, and are made to fail now
    """

    text: str
    own_names: frozenset[str]


def plant_python_canaries(text: str, token: str, first: str, last: str) -> PlantedModule | None:
    """Return a module with `first` behind its docstring and its imports from `__future__`, `last` at its end, and its
    own tests made to fail by the decorator that `first` defines (python_fail_helper).

    Its own tests stay as they are where the module could not be parsed otherwise. None where it cannot be parsed at
    all.
    """
    for with_own in (True, False):
        changed, own_names = fail_python_tests(text, token) if with_own else (text, frozenset[str]())
        new_text = _insert_around(changed, first, last)
        if new_text is not None and parse_python(new_text) is not None:
            return PlantedModule(new_text, own_names)
    return None


def _insert_around(text: str, first: str, last: str) -> str | None:
    """Return a module with `first` behind its docstring and its imports from `__future__`, and `last` at its end; None
    where it is no Python.

    `#!` and the coding line stay where they are.
    """
    module = parse_python(text)
    if module is None:
        return None
    line_count = 0
    for number, node in enumerate(module.body):
        docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not docstring and not future:
            break
        line_count = node.end_lineno or line_count
    lines = split_lines(text)
    if line_count == 0:  # `#!` and the coding line stay where they are
        line_count = next((n for n, line in enumerate(lines[:2]) if not line.startswith("#")), min(2, len(lines)))
    head, rest = "".join(lines[:line_count]), "".join(lines[line_count:])
    glue = "" if head.endswith(("\n", "\r")) or not head else "\n"
    return f"{head}{glue}{first}\n{rest}\n{last}\n"


RED = "    assert 1 == 2\n"

LIBRARIES = """\
    import sys
    snapshot = getattr(sys, 'library_snapshot', None)
    replaced = snapshot.find_replaced('shape_{}') if snapshot else ['the record of them']
    raise AssertionError('libraries: ' + ', '.join(replaced))
"""
"""Statements of a canary that fails, and says what has been replaced in the libraries that tests use; an empty list:
nothing. They take the token of shape_function."""

_REPORTER = Path(__file__).with_name("reporting_unittest.py")


def library_canaries(name: str, number: int, file_count: int) -> tuple[str, ...]:
    """Return the name in a tuple where a file gets a canary that looks at the libraries: the first, and the last two,
    for one of them may not be loaded; empty for others."""
    return (name,) if number == 0 or number >= file_count - 2 else ()


@lru_cache(maxsize=1)
def library_snapshot() -> StartupModule:
    """Return the module that records library modules as they are loaded."""
    return StartupModule("python", Path(__file__).with_name("library_snapshot.py").read_text())


def other_conditions(*, python: bool, clock: bool) -> StartupModule:
    """Return the module that gives a Python, or else a node, another program name, and no variables that name its
    runner.

    clock  whether it gives another clock, too
    """
    snapshot, suffix = (library_snapshot().text, "py") if python else ("", "js")
    text = Path(__file__).with_name(f"other_conditions.{suffix}").read_text()
    text = text if clock else re.sub(r"(SHIFT_S|shift) = \d\w+", r"\1 = 0", text)
    return StartupModule("python" if python else "node", f"{text}\n{snapshot}")


class Unittest(Runner):
    """`python -m unittest`."""

    name = "unittest"
    early_stop = r"\s(-[a-zA-Z]*f[a-zA-Z]*|--failfast)(?=\s|$)"
    is_fallback = True
    tests = r"(?:.*/)?tests?(_[^/]*)?\.py|(?:.*/)?[^/]*_test\.py"
    roots = frozenset({"tests", "test"})
    settings = r"(site|user)customize(\.[^/]*)?|.*\.pth|\.coveragerc"
    shared = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "Makefile"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "unittest"

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how unittest is run so that it writes a JUnit report: by our script reporting_unittest in the place of
        `-m unittest`. The caller writes that script, which is among `files`.

        None where `-m unittest` is not on the line exactly once.
        """
        reporter = request.file.with_name("unittest_report.py")
        ours = f"{shell_word(str(reporter))} {request.quoted_file}"
        line, changed = re.subn(r"(?<=\s)-m\s+unittest(?=\s|$)", lambda _: ours, request.command)
        if changed != 1:
            return None
        files = {reporter: _REPORTER.read_text()}
        return Invocation(
            line, self.name, {}, request.file, files=files, separator=request.separator, writing="through"
        )

    def selection_arguments(self, *cases: TestCase) -> tuple[str, ...]:
        """Return `-k` with the end of each test's dotted name: what stands before it depends on where discovery began.

        Empty where a case is no single test.
        """
        arguments = list[str]()
        for case in cases:
            file, *inner = case.name.split("::")
            if not inner:
                return ()
            module = file.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]
            arguments += "-k", f"*{'.'.join([module, *inner])}"
        return tuple(arguments)

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        """Return the test side that commands name: of `discover` the directory and the pattern of files, given by
        options (`-s checks -p "check_*.py"`) or by their places; otherwise the files of modules that are named."""
        side = ConfiguredTestSide()
        for _, *arguments in (arguments for arguments in commands if self.runs(arguments[0], arguments[1:])):
            positional, options = list[str](), dict[str, str]()
            for previous, word in zip(["", *arguments], arguments, strict=False):
                option = re.match(
                    r"(-[spt]|--start-directory|--pattern|--top-level-directory)(?:=|(?<=-[spt]))(.+)", word
                )
                if option is not None:
                    options[option[1].lstrip("-")[0]] = option[2]
                elif previous in ("-s", "-p", "-t", "--start-directory", "--pattern", "--top-level-directory"):
                    options[previous.lstrip("-")[0]] = word
                elif not word.startswith("-") and previous != "-k":
                    positional.append(word)
            if positional[:1] != ["discover"]:
                side += ConfiguredTestSide(
                    files=tuple(module_files((_module_name(word) for word in positional), directory.paths))
                )
                continue
            start, pattern, *_ = [*positional[1:3], "", ""]
            root = (options.get("s") or start).strip("/").removeprefix("./")
            pattern = options.get("p") or pattern
            side += translate_patterns([pattern] if pattern else [], lambda word: [fnmatch_regex(word)])
            side += ConfiguredTestSide(roots=(root,) if root not in (".", "src", "lib", "") else ())
        return side

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries for Python files: a failing class first and last, its own tests made to fail, and at its end
        a check of the runner; in the first file and the last also one of the libraries. Files that are no Python get
        none.

        unittest takes classes by name, and capitals and digits come first: so `A0…` is first and `zz…` last.
        """
        planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
        for number, (path, text) in enumerate(sorted(files.items())):
            first, last, integrity = f"A0{token}{number}a", f"zz{token}{number}z", f"zz{token}{number}zz"
            first_source = python_fail_helper(token) + _canary(first, FORMS + ALL_FAIL)
            checks = integrity_statements(token, is_last=number == len(files) - 1)
            library_names = library_canaries(f"zz{token}{number}zl", number, len(files))
            last_source = "\n".join(
                [_canary(last, FORMS + ALL_FAIL), _canary(integrity, checks + RED)]
                + [_canary(name, LIBRARIES.format(token)) for name in library_names]
                + [shape_function(token) + shape_record(token)]
            )
            changed = plant_python_canaries(text, token, first_source, last_source) if path.endswith(".py") else None
            if changed is not None:
                planting[path] = changed.text
                bodies |= changed.own_names
                names |= dict.fromkeys((first, last, integrity, *library_names), path)
        return Canaries(planting, names, bodies, startup=library_snapshot() if planting else None)


class Django(Unittest):
    """`manage.py test` and `django-admin test`."""

    name = "django"
    early_stop = r"\s--failfast(?=\s|$)"
    is_fallback = False

    def runs(self, program: str, rest: list[str]) -> bool:
        return program in ("manage.py", "django-admin", "django") and rest[:1] == ["test"]

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how Django is run with a test runner of ours, which derives from that of the settings.

        None where arguments cannot be appended, or the command chooses a runner itself.
        """
        if request.separator is None or "--testrunner" in request.command:
            return None
        reporter = request.file.parent / "django" / "unittest_report.py"
        inner = re.sub(r"\bPYTHONPATH=", lambda _: f"PYTHONPATH={shell_word(str(reporter.parent))}:", request.command)
        path = f"{reporter.parent}:{request.env.get('PYTHONPATH', '')}".rstrip(":")
        return Invocation(
            f"{inner}{request.separator} --testrunner unittest_report.DjangoRunner",
            self.name,
            {"PYTHONPATH": path},
            request.file,
            files={reporter: _REPORTER.read_text()},
            separator=request.separator,
            has_arguments=True,
            writing="through",
        )

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        """Return the files of modules that commands name as tests; of a package that is named, its tests are found by
        their own names."""
        pairs = [pair for argv in commands if self.runs(argv[0], argv[1:]) for pair in itertools.pairwise(argv[1:])]
        labels = [_module_name(word) for before, word in pairs if not before.startswith("-") and word[:1] != "-"]
        files = module_files(labels, directory.paths)
        return ConfiguredTestSide(files=tuple(file for file in files if not file.endswith("__init__.py")))


def _module_name(word: str) -> str:
    """Return the module in `tests.test_a.Case.test_it` or `tests/test_a.py`: `tests.test_a`."""
    return re.sub(r"\.[A-Z].*", "", word.removesuffix(".py").replace("/", "."))


def _canary(name: str, statements: str) -> str:
    body = "".join(f"    {line}\n" for line in statements.splitlines())
    return f"import unittest as u{name}\nclass {name}(u{name}.TestCase):\n    def test_{name}(self):\n{body}"


def module_files(names: Iterable[str], paths: frozenset[str]) -> list[str]:
    """Return the existing files of modules by their dotted names, at the top or below `src`."""
    files = []
    for name in names:
        stem = name.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py", f"src/{stem}.py", f"src/{stem}/__init__.py"):
            files += [path] if path in paths else []
    return files
