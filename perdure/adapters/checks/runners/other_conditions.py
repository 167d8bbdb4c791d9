# mypy: ignore-errors
# It runs in whatever Python the repository has.
"""Loaded as `sitecustomize` by each Python of a run under other conditions, in front of `library_snapshot`: gives the
repository's own code another clock and program name, its place by the path that is no link, and no variables that name
the test runner.

Runs inside the sandbox, under the repository's Python: nothing of Perdure is imported.
"""

import contextlib
import ctypes
import datetime
import gc
import os
import sys
import time

SHIFT_S = 86_425_620
PROGRAM = "/usr/local/bin/program"


def is_hidden(name):
    """Return whether a variable tells that tests run, and the repository's own code asks for it."""
    if not str(name).startswith("PYTEST_") and name != "CI":
        return False
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(("<frozen ", os.__file__, __file__)):
        frame = frame.f_back
    file = frame.f_code.co_filename if frame is not None else ""
    return file.startswith(DIRECTORY) and "-packages" + os.sep not in file


class Environment(type(os.environ)):
    """The environment without what is hidden."""

    def __getitem__(self, key):
        if is_hidden(key):
            raise KeyError(key)
        return super().__getitem__(key)

    def __iter__(self):
        return iter([key for key in super().__iter__() if not is_hidden(key)])


class Arguments(list):
    """Arguments of a program, the first of which nobody replaces: runpy would, by the runner's name."""

    def __setitem__(self, index, value):
        if index != 0:
            super().__setitem__(index, value)

    def __reduce__(self):
        return list, (list(self),)


class Shifted:
    """A function of `time`, with the shifted time where it is given none; a class's attribute, it takes no `self`."""

    def __init__(self, name, position, make_time):
        self.real, self.position, self.make_time = getattr(time, name), position, make_time
        setattr(time, name, self)

    def __call__(self, *given):
        if len(given) == self.position or given[self.position] is None:
            given = (*given[: self.position], self.make_time())
        return self.real(*given)


def shift_method(holder, name):
    """Make a method such as `datetime.now` of a class that is written in C return the shifted time."""
    contents = gc.get_referents(vars(holder))[0]
    real = contents[name]
    delta = datetime.timedelta(seconds=SHIFT_S)
    contents[name] = classmethod(lambda cls, *given, **named: real.__get__(None, cls)(*given, **named) + delta)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(holder))


def resolve_place(path):
    """Return a path into the repository's directory without links, and any other as it is."""
    real = os.path.realpath(path)
    return real if path and (real + os.sep).startswith(DIRECTORY) else path


def change_conditions():
    """Change the paths of modules, environment, arguments and clock."""
    sys.path[:] = [resolve_place(path) for path in sys.path]
    for name, finder in list(sys.modules.items()):
        if name.startswith("__editable__"):
            finder.MAPPING.update({package: resolve_place(path) for package, path in finder.MAPPING.items()})
    os.environ.__class__ = Environment
    sys.argv = Arguments([PROGRAM, *sys.argv[1:]])
    sys.orig_argv = [sys.executable, PROGRAM]
    if SHIFT_S:
        real_time, real_time_ns = time.time, time.time_ns
        time.time = type("Clock", (), {"__call__": lambda self: real_time() + SHIFT_S})()
        time.time_ns = type("Clock", (), {"__call__": lambda self: real_time_ns() + SHIFT_S * 10**9})()
        for name in ("localtime", "gmtime", "ctime"):
            Shifted(name, 0, time.time)
        Shifted("strftime", 1, time.localtime)
        Shifted("asctime", 0, time.localtime)
        shift_method(datetime.datetime, "now")
        shift_method(datetime.datetime, "utcnow")


DIRECTORY = os.getcwd() + os.sep
with contextlib.suppress(Exception):  # what this Python does not allow stays as it is
    change_conditions()
