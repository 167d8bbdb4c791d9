# mypy: ignore-errors
# It holds values of any type, in whatever Python the repository has.
"""Loaded as `sitecustomize` by each Python of a run with canaries (tests that must fail): records the contents of each
library module and its classes right after the module was loaded, before the product can reach it. A canary then asks
`sys.library_snapshot.find_replaced()` what is no longer what it was.

The runner in `runners.python` writes this file beside the report. Runs inside the sandbox, under the repository's
Python: nothing of Perdure is imported.
"""

import builtins
import contextlib
import functools
import os
import sys
import sysconfig
import types

_COMPARING = {"__eq__", "__ne__", "__bool__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__len__"}
_PLAIN = (int, float, complex, str, bytes, tuple, frozenset)
# The test runner sets these itself while a test runs.
_SET_BY_RUNNERS = {"sys", "warnings", "_warnings", "pdb", "faulthandler", "threading", "site", "sitecustomize"}
_USED_BY_RUNNERS = [
    "builtins",
    "unittest",
    "pytest",
    "_pytest",
    "operator",
    "functools",
    "ast",
    "re",
    "inspect",
    "importlib",
    "traceback",
    "io",
    "os",
]
_MISSING = object()
# This module's own names for builtins: those that it finds here are not what somebody has replaced them by.
globals().update({name: value for name, value in vars(builtins).items() if not name.startswith("__")})


class LibrarySnapshot:
    """The contents of library modules and their classes, the working directory, and functions to read a file with that
    nobody has replaced yet. It stands among the finders of `sys.meta_path`, and finds nothing itself."""

    def __init__(self):
        paths = sysconfig.get_paths()
        self.standard = tuple(paths[key] + os.sep for key in ("stdlib", "platstdlib"))
        self.packages = tuple(paths[key] + os.sep for key in ("purelib", "platlib"))
        self.directory, self.modules, self.contents, self.is_finding = os.getcwd(), {}, {}, False
        tops = [os.path.join(self.directory, name) for name in ("", "src", "lib")]
        below = [os.path.join(top, name) for top in tops if os.path.isdir(top) for name in os.listdir(top)]
        modules = [path for path in below if path.endswith(".py") or os.path.isfile(os.path.join(path, "__init__.py"))]
        self.products = {os.path.basename(path).partition(".")[0] for path in modules}
        self.open, self.read_bytes, self.close, self.codes = os.open, os.read, os.close, {}
        for name in sys.builtin_module_names:
            __import__(name)
        for module in list(sys.modules.values()):
            self.record_module(module)

    def find_spec(self, name, path=None, target=None):
        """Return the spec that the other finders give, its loader made to record the module after it has run."""
        if self.is_finding:
            return None
        self.is_finding = True
        try:
            specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if hasattr(finder, "find_spec"))
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self.is_finding = False
        loader = getattr(spec, "loader", None)
        if hasattr(loader, "exec_module") and not isinstance(loader, type) and self.kind_of(name, spec.origin):
            with contextlib.suppress(AttributeError):  # a loader that takes no attributes: its module is not recorded
                loader.exec_module = functools.partial(self.execute_module, loader)
        return spec

    def execute_module(self, loader, module):
        """Run a module's code by its loader, and record what is there then."""
        vars(loader).pop("exec_module", None)
        loader.exec_module(module)
        self.record_module(module)

    def kind_of(self, name, origin):
        """Return `standard` for a module of Python's own, `package` for an installed one, empty for any other."""
        if not isinstance(origin, str):
            return ""  # a namespace package, or made by code
        if origin.startswith(self.packages) or "-packages" + os.sep in origin:
            return "" if name.partition(".")[0] in self.products else "package"
        return "standard" if origin in ("built-in", "frozen") or origin.startswith(self.standard) else ""

    def record_module(self, module):
        """Keep the contents of a library module and of the classes that are its own; any other module is left out."""
        name, spec = getattr(module, "__name__", ""), getattr(module, "__spec__", None)
        kind = self.kind_of(name, getattr(spec, "origin", None)) if spec is not None else ""
        if not kind or name in _SET_BY_RUNNERS:
            return
        self.modules[name] = module, kind
        self.contents[name] = module, dict(vars(module)), kind
        for item in list(vars(module).values()):
            if isinstance(item, type) and item.__module__ == name:
                self.contents[name + "." + item.__qualname__] = item, dict(vars(item)), kind

    def find_replaced(self, mark):
        """Return the names of what is not as it was recorded in the libraries that tests use, sorted, at most 20: of
        builtins, of what test runners are made of, and of all that a module with the name `mark` in it has imported."""
        replaced, used = set(), set(_USED_BY_RUNNERS)
        for module in list(sys.modules.values()):
            if mark in getattr(module, "__dict__", ()):
                for item in list(vars(module).values()):
                    name = item.__name__ if isinstance(item, types.ModuleType) else getattr(item, "__module__", None)
                    used.add(str(name).partition(".")[0])
        for place, (holder, before, kind) in list(self.contents.items()):
            if place.partition(".")[0] not in used:
                continue
            now = vars(holder)
            for key, was in before.items():
                value = now.get(key, _MISSING)
                if value is not was and self.is_compared(key, was, kind) and not self.is_equivalent(was, value, kind):
                    replaced.add(place + "." + key)
            added = _COMPARING if isinstance(holder, type) else vars(builtins)
            if holder is not builtins:
                replaced.update(place + "." + key for key in now if key in added and key not in before)
        for name, (module, kind) in self.modules.items():
            if kind == "standard" and name in used and sys.modules.get(name, module) is not module:
                replaced.add("sys.modules[" + repr(name) + "]")
        for finder in sys.meta_path:
            home = sys.modules.get(getattr(finder, "__module__", None) or type(finder).__module__)
            file = getattr(home, "__file__", None)
            if finder is not self and file and not self.kind_of(home.__name__, file):
                replaced.add("sys.meta_path")
        if os.getcwd() != self.directory:
            replaced.add("the working directory")
        return sorted(replaced)[:20]

    def is_compared(self, key, was, kind):
        """Return whether a value matters: code, and plain values of Python's own modules. What libraries keep to
        themselves, and caches, change while they are used."""
        if kind == "package" and key.startswith("_") and not key.endswith("__"):
            return False
        if callable(was) or isinstance(was, (property, classmethod, staticmethod)) or hasattr(type(was), "__get__"):
            return not isinstance(was, types.ModuleType)
        plain = isinstance(was, _PLAIN) and not isinstance(was, bool)
        return plain and kind == "standard" and not key.startswith("_")

    def is_equivalent(self, was, value, kind):
        """Return whether a new value may stand for the old one: an equal plain value, the same code (a module loaded
        again), a module of that name; or code of an installed package, which for Python's own modules (`kind`
        standard) has to wrap the old one or to have its name."""
        if isinstance(value, types.ModuleType):
            return True
        if isinstance(was, _PLAIN):
            return type(was) is type(value) and was == value
        kinds = type(was), type(value)
        if kinds == (types.FunctionType,) * 2 and (was.__code__, id(was.__globals__)) == (
            value.__code__,
            id(value.__globals__),
        ):
            return True
        code = getattr(value, "__code__", None)
        home = (
            code.co_filename
            if code is not None
            else getattr(sys.modules.get(getattr(value, "__module__", None)), "__file__", None)
        )
        if not isinstance(home, str) or self.kind_of(getattr(value, "__module__", None) or "", home) != "package":
            return False
        if kind == "package":
            return True
        cells = getattr(value, "__closure__", None) or ()
        inner = [getattr(value, "__wrapped__", None), *(cell.cell_contents for cell in cells if cell != _EMPTY_CELL)]
        return any(item is was for item in inner) or getattr(value, "__name__", "") == getattr(was, "__name__", None)

    def compile_once(self, text, *options, **named):
        """Return the code of a text, as `compile` does; it is compiled once, though many canaries hold it."""
        if text not in self.codes:
            self.codes[text] = compile(text, *options, **named)
        return self.codes[text]

    def read_file(self, file):
        """Return a file's bytes, by the functions that were there first."""
        descriptor, parts = self.open(file, os.O_RDONLY), []
        try:
            while True:
                parts.append(self.read_bytes(descriptor, 1 << 20))
                if not parts[-1]:
                    return b"".join(parts)
        finally:
            self.close(descriptor)


_EMPTY_CELL = types.CellType() if hasattr(types, "CellType") else None


def main():
    """Put a snapshot in place as `sys.library_snapshot`, then load the `sitecustomize` that this one stands before."""
    sys.library_snapshot = LibrarySnapshot()
    sys.meta_path.insert(0, sys.library_snapshot)
    directory, own = os.path.dirname(os.path.abspath(__file__)), sys.modules.pop(__name__, None)
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != directory]
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault(__name__, own)


if __name__ == "sitecustomize":
    main()
