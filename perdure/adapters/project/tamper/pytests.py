"""The tests in a Python file, as pytest and unittest would find them."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.adapters.project.tamper.inventory import Inventory, Test
from perdure.adapters.project.tamper.pycases import bodies, rows
from perdure.adapters.project.tamper.pychecks import Reading
from perdure.adapters.project.tamper.pydecorators import swallows
from perdure.adapters.project.tamper.pyexpressions import skips_in
from perdure.adapters.project.tamper.pymarks import (
    SETUP,
    autouse,
    fixture,
    fixtures,
    idle,
    marks,
    module_skips,
    switched_off,
    taken_away,
)
from perdure.adapters.project.tamper.pymodule import Found, Function, Module, dotted, flat, unparsed
from perdure.adapters.project.tamper.pyodd import odd_lines
from perdure.adapters.project.tamper.pysame import Prints
from perdure.adapters.project.tamper.pysources import Sources

_CASES_READ = 50
_FILE = re.compile(r"test.*\.py|.*_tests?\.py")
_PLACE = re.compile(r"tests?|testing|spec")


def is_test_file(path: str) -> bool:
    return path.endswith(".py") and _FILE.fullmatch(posixpath.basename(path)) is not None


def supports_tests(path: str) -> bool:
    """Whether a Python file is loaded by tests rather than tested: by where it stands and what it is called."""
    *above, name = path.split("/")
    return path.endswith((".py", ".pth")) and (
        is_test_file(path) or name == "conftest.py" or any(_PLACE.fullmatch(part) for part in above)
    )


@dataclass(frozen=True)
class Collecting:
    """Which runners look for Python tests; both when that cannot be told."""

    pytest: bool = True
    unittest: bool = True
    others: bool = False
    """Whether settings or commands say that files called otherwise are tests, too."""

    def takes(self, path: str) -> bool:
        name = posixpath.basename(path)
        if self.pytest and (name.startswith("test_") or name.endswith("_test.py")):
            return True
        return name.startswith("test") if self.unittest else name == "tests.py"

    def may_take(self, path: str) -> bool:
        """`run_tests.py` is a program, unless somebody says otherwise."""
        name = posixpath.basename(path)
        return self.others or name.startswith("test") or not name.endswith("_tests.py")


def inventory(sources: Sources, path: str, collecting: Collecting, same: frozenset[str] = frozenset()) -> Inventory:
    """The tests of one file. Never raises for what stands in it. `same`: names of tests that need not be read; all
    that is said of them is that they are there."""
    module = sources.module(path)
    if module is None:
        return Inventory(broken="it cannot be read" if sources.files.has(path) else "it is not there")
    try:
        tests = tuple(_File(sources, module, collecting).tests(same)) if is_test_file(path) else ()
        if path not in sources.files.changed:  # what stands in it is no news
            return Inventory(tests)
        return Inventory(tests, tuple(odd_lines(module)), fixtures=fixtures(module))
    except RecursionError:
        return Inventory(broken="it is nested too deeply")


def same(old: Sources, new: Sources, path: str, collecting: Collecting) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the tests of a file that say the same on both commits, as far as that is sure without reading them; and
    of those that only the new one has."""
    before, now = (_opened(sources, path, collecting) for sources in (old, new))
    try:
        names = now.names() if now else frozenset[str]()
        if before is None or now is None:
            return frozenset(), names if before is None and not old.files.has(path) else frozenset()
        both = names & before.names()
        had, has = before.prints(both), now.prints(both)
        return frozenset(name for name in both if had[name] == has[name]), names - both
    except RecursionError:
        return frozenset(), frozenset()


def _opened(sources: Sources, path: str, collecting: Collecting) -> _File | None:
    module = sources.module(path) if is_test_file(path) else None
    return _File(sources, module, collecting) if module else None


@dataclass(frozen=True)
class _Place:
    """A test function, the classes around it (outermost first), and the condition in its class it stands under."""

    name: str
    function: Function
    owners: tuple[ast.ClassDef, ...] = ()
    condition: str = ""


class _File:
    def __init__(self, sources: Sources, module: Module, collecting: Collecting) -> None:
        self._sources, self._module, self._collecting = sources, module, collecting
        self._conditions = dict(flat(module.tree.body))
        self._parents = {dotted(base) for node in module.classes.values() for base in node.bases}
        self._removed = set(taken_away(module))
        self._skips: dict[tuple[ast.ClassDef, ...], list[str]] = {}

    def tests(self, same: frozenset[str]) -> Iterator[Test]:
        for place in self._places():
            if place.name in same:
                function = place.function
                yield Test(self._module.path, place.name, function.name, function.lineno)
            else:
                yield self._test(place)

    def names(self) -> frozenset[str]:
        return frozenset(place.name for place in self._places())

    def prints(self, names: frozenset[str]) -> dict[str, str]:
        """A print for each of these tests: see Prints."""
        prints = Prints(self._sources, frozenset(SETUP))
        places = {place.name: place for place in self._places() if place.name in names}
        return {name: prints.of(self._module, place.function, place.owners) for name, place in places.items()}

    def _places(self) -> Iterator[_Place]:
        if switched_off(self._module.tree.body) or not self._collecting.may_take(self._module.path):
            return
        for name, function in self._module.functions.items():
            if name.startswith("test") and self._collecting.pytest and not self._lost(name, function):
                yield _Place(name, function)
        for name, node in self._module.classes.items():
            if name not in self._removed and f"__test__ {name}" not in self._removed:
                yield from self._class(name, (node,))

    def _class(self, name: str, owners: tuple[ast.ClassDef, ...]) -> Iterator[_Place]:
        node = owners[-1]
        if not self._collected(node) or switched_off(node.body):
            return
        methods: dict[str, tuple[Function, str]] = {}
        for part, condition in flat(node.body):
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                methods[part.name] = part, condition
            elif isinstance(part, ast.Assign | ast.Delete):
                for target in part.targets:
                    methods.pop(dotted(target), None)
            elif isinstance(part, ast.ClassDef) and part.name.startswith("Test"):
                yield from self._class(f"{name}::{part.name}", (*owners, part))
        for method, (function, condition) in methods.items():
            if method.startswith("test") and not self._lost(f"{name}.{method}", function):
                yield _Place(f"{name}::{method}", function, owners, condition)

    def _around(self, owners: tuple[ast.ClassDef, ...]) -> list[str]:
        """What skips everything in a class, or in the file."""
        if owners not in self._skips:
            if not owners:
                found = [*module_skips(self._module), *self._setup_skips(self._module.tree.body, None)]
            else:
                node = owners[-1]
                found = [*self._around(owners[:-1]), *(self._condition(node) if len(owners) == 1 else [])]
                found += [skip for part in node.decorator_list for skip in self._decorator(part)]
                found += [*marks(node.body), *self._setup_skips(node.body, node)]
            self._skips[owners] = found
        return self._skips[owners]

    def _collected(self, node: ast.ClassDef) -> bool:
        case = self._is_case(self._module, node, 3)
        named = node.name.startswith("Test") and self._collecting.pytest
        own = any(isinstance(part, ast.FunctionDef) and part.name in ("__init__", "__new__") for part in node.body)
        return case or (named and not own) or node.name in self._parents

    def _is_case(self, module: Module, node: ast.ClassDef, depth: int) -> bool:
        """Whether it is a TestCase, or inherits from something nobody here knows."""
        for base in node.bases:
            name = dotted(base)
            found: Found | None = self._sources.find(module, name) if name else None
            if found is None:
                if name not in ("object", "ABC", "abc.ABC", "Protocol", "Generic", "Enum"):
                    return True
            elif isinstance(found[2], ast.ClassDef) and depth and self._is_case(found[0], found[2], depth - 1):
                return True
        return False

    def _lost(self, name: str, function: Function) -> bool:
        return name in self._removed or f"__test__ {name}" in self._removed or fixture(function)

    def _condition(self, node: ast.stmt) -> list[str]:
        condition = self._conditions.get(node, "")
        return [condition] if condition else []

    def _test(self, place: _Place) -> Test:
        function = place.function
        owner = place.owners[-1] if place.owners else None
        decorators = [*(part for node in place.owners for part in node.decorator_list), *function.decorator_list]
        cases = rows(self._module, decorators)
        cases = cases if len(cases) <= _CASES_READ else [{}]
        readings = [Reading(self._sources, self._module, owner).read(function, case) for case in cases] or [
            Reading(self._sources, self._module, owner).read(function)
        ]
        reading = readings[0]
        skips = [*self._around(place.owners), *([] if owner else self._condition(function))]
        skips += [place.condition] if place.condition else []
        skips += [*(skip for part in function.decorator_list for skip in self._decorator(part)), *reading.skips]
        stops = list(reading.stops)
        checks = [check for one in readings for check in one.checks]
        if isinstance(function, ast.AsyncFunctionDef) and owner is not None and self._never_awaited(owner):
            stops.append("async in a class that does not await it")
        for part in function.decorator_list:
            if swallows(self._sources, self._module, part):
                checks = []
        return Test(
            file=self._module.path,
            name=place.name,
            leaf=function.name,
            line=function.lineno,
            text="\n".join([*(f"@{unparsed(part)}" for part in function.decorator_list), self._module.line(function)]),
            bodies=bodies(self._module, function, decorators),
            checks=tuple(checks),
            skips=tuple(skips),
            stops=tuple(stops),
            blank=not checks and all(idle(part) for part in function.body),
        )

    def _never_awaited(self, owner: ast.ClassDef) -> bool:
        return any(dotted(base) in ("unittest.TestCase", "TestCase") for base in owner.bases)

    def _decorator(self, node: ast.expr, depth: int = 2) -> list[str]:
        """What a decorator skips, looked up where it is a name for something longer."""
        found = skips_in(node)
        name = dotted(node.func if isinstance(node, ast.Call) else node)
        if found or not name or depth <= 0:
            return found
        if name in self._module.values:
            return self._decorator(self._module.values[name], depth - 1)
        where = self._sources.find(self._module, name)
        if where is not None:
            return skips_in(ast.Module(where[2].body, []))
        origin = self._module.imports.get(name, "")
        path = self._sources.in_tree(self._module.path, origin.partition(":")[0]) if origin else None
        other = self._sources.module(path) if path else None
        value = other.values.get(origin.partition(":")[2]) if other else None
        return skips_in(value) if value is not None else []

    def _setup_skips(self, body: Sequence[ast.stmt], owner: ast.ClassDef | None) -> list[str]:
        """Skips in what runs before every test here."""
        return [
            skip
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.name in SETUP or autouse(node))
            for skip in Reading(self._sources, self._module, owner).read(node).skips
        ]
