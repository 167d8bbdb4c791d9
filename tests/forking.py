"""The process that `tests.fork_server` asks: it has loaded what workers and commands need, and forks whenever asked."""

from __future__ import annotations

import array
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import coverage

LOADED = ("worker", "anthropic", "perdure.cli")
"""With all modules of the last one, what workers and commands load sooner or later; none of it starts a thread."""

_ROOT = Path(__file__).parent.parent
_REQUEST = 1 << 18


def _serve(listening: socket.socket) -> None:
    """Until nobody is left who asked."""
    place = Path(listening.getsockname())
    looking = select.poll()
    looking.register(listening, select.POLLIN)
    asking: dict[int, tuple[socket.socket, set[int]]] = {}
    while True:
        for number, _ in looking.poll():
            if number == listening.fileno():
                control, _ = listening.accept()
                asking[control.fileno()] = control, set()
                looking.register(control, select.POLLIN)
            elif not _answered(*asking[number]):
                looking.unregister(number)
                control, children = asking.pop(number)
                control.close()
                for child in children:
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
        if not asking:
            break
    for left in (place, place.with_suffix(".lock")):
        left.unlink(missing_ok=True)


def _answered(control: socket.socket, children: set[int]) -> bool:
    """Do what is asked for; False when who asked has ended, however it did."""
    try:
        return _answer(control, children)
    except OSError:
        return False


def _answer(control: socket.socket, children: set[int]) -> bool:
    message, told, _, _ = control.recvmsg(_REQUEST, socket.CMSG_SPACE(3 * 4))
    if not message:
        return False
    request = json.loads(message)
    if "reap" in request:
        _, status = os.waitpid(request["reap"], 0)
        children.discard(request["reap"])
        control.send(str(os.waitstatus_to_exitcode(status)).encode())
        return True
    if "program" not in request:
        control.send(b"0")
        return True
    files = array.array("i", told[0][2])
    pid = os.fork()
    if pid == 0:
        _become(request, files)
    for file in files:
        os.close(file)
    children.add(pid)
    control.send(str(pid).encode())
    return True


def _become(request: dict[str, Any], files: Iterable[int]) -> None:
    """Be the program, and end as it would."""
    code: Any = 1
    try:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, 1 << 16)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = [request["program"], *request["args"]]
        if os.environ.get("COVERAGE_PROCESS_CONFIG"):
            _measure().start()
        if request["program"].endswith(".py"):
            runpy.run_path(request["program"], run_name="__main__")
        else:
            runpy.run_module(request["program"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - as the interpreter does with what nobody caught
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


@cache
def _measure() -> coverage.Coverage:
    """Coverage as it would begin by itself in a new process, without two things that cost each a sixth of a second
    of a processor: reading its configuration, and listing the files that this process did not execute."""
    return coverage.Coverage(
        data_file=str(_ROOT / ".coverage"),
        data_suffix=True,
        config_file=str(_ROOT / "pyproject.toml"),
        source_pkgs=[],
        include=[str(_ROOT / name / "*") for name in ("perdure", "workflows", "activities")],
        messages=False,
    )


def _load() -> None:
    for name in LOADED:
        module = importlib.import_module(name)
    for found in pkgutil.walk_packages(module.__path__, f"{name}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    inspect.stack()  # coverage begins with it, and what it finds out about thousands of modules is remembered
    _measure()
    gc.freeze()  # children copy less


if __name__ == "__main__":
    _load()
    _serve(socket.socket(fileno=int(sys.argv[1])))
