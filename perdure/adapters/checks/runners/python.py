"""Canaries in Python: the same always-failing test for unittest and pytest, each form of assertion tried in it."""

from __future__ import annotations

import ast

from perdure.adapters.checks.runners import failing

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
"""Statements of a function's body that end with `forms`: each fails, unless somebody made it hold its tongue."""

ALL_FAIL = """\
    for form in forms:
        try:
            form()
        except BaseException:
            continue
        return
    assert 1 == 2
"""

INTACT = """\
    import sys, sysconfig, unittest
    from unittest import mock
    wanted = ('stdlib', 'platstdlib', 'purelib', 'platlib')
    libraries = tuple(path for key, path in sysconfig.get_paths().items() if key in wanted)
    def foreign(one):
        one = getattr(one, '__func__', getattr(one, 'fget', one))
        file = getattr(one, '__globals__', {}).get('__file__') or ''
        return isinstance(file, str) and file != '' and not file.startswith(libraries)
    names = ('unittest', 'unittest.', 'pytest', '_pytest.')
    found = [module for name, module in list(sys.modules.items()) if name in names or name.startswith(names[1::2])]
    found += [inner for module in found for inner in list(vars(module).values()) if isinstance(inner, type)]
    if any(foreign(one) for place in found for one in list(vars(place).values())):
        return
    assert 1 == 2
"""
"""Statements that fail as long as nobody has put a function of his own into the runner or its assertions."""


def planted(text: str, token: str, first: str, last: str) -> tuple[str, frozenset[str]] | None:
    """A module with `first` before its first statement that may be preceded, `last` at its end, and each of its own
    tests failing; with the names of these. None where it cannot be parsed."""
    for own in (True, False):
        changed, names = failing.python(text, token) if own else (text, frozenset())
        helper = failing.python_helper(token) if names else ""
        planting = _around(changed, helper + first, last)
        if planting is not None and _parsed(planting) is not None:
            return planting, names
    return None


def _around(text: str, first: str, last: str) -> str | None:
    module = _parsed(text)
    if module is None:
        return None
    at = 0
    for number, node in enumerate(module.body):
        docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not docstring and not future:
            break
        at = node.end_lineno or at
    lines = failing.lined(text)
    if at == 0:  # `#!` and the coding line stay where they are
        at = next((n for n, line in enumerate(lines[:2]) if not line.startswith("#")), min(2, len(lines)))
    head, rest = "".join(lines[:at]), "".join(lines[at:])
    glue = "" if head.endswith(("\n", "\r")) or not head else "\n"
    return f"{head}{glue}{first}\n{rest}\n{last}\n"


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
