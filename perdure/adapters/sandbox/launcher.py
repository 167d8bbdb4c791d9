"""The supervisor process of the grades without a pid namespace: starts one command and outlives its descendants.

Run by path with `python -I -S`, so it must not need site-packages; the working directory is never on its path,
because the agent writes there. Its first line of stdin is a JSON object (see Spec in launched.py); stdin's end means
that the worker is gone or wants it to stop. It reports in the status descriptor as bwrap does.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

LINUX = sys.platform == "linux"

if LINUX:
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    from perdure.adapters.sandbox import confine


def main() -> int:
    status = int(sys.argv[1])
    spec = json.loads(sys.stdin.buffer.readline())
    os.set_inheritable(status, False)
    wake, wakened = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if LINUX else os.pipe()
    os.set_blocking(wakened, False)
    signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if LINUX:
        confine.become_subreaper()
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        _say(status, {"child-pid": os.getpid(), "started": started})
    child, failure = _start(spec)
    if failure:
        os.waitpid(child, 0)
        _say(status, {"failure": failure})
        return 1
    code = _wait(child, wake)
    _end_descendants(child)
    if code is not None:
        _say(status, {"exit-code": code})
    return code or 0


def _start(spec: dict[str, Any]) -> tuple[int, str]:
    """Fork, confine, exec. The pipe carries the reason when that fails, and closes when it works."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _become(spec)
        except BaseException as error:  # noqa: BLE001 nothing may escape between fork and exec
            os.write(write, str(error).encode()[:4096])
        finally:
            os._exit(127)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        return child, pipe.read().decode(errors="replace")


def _become(spec: dict[str, Any]) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.nice(spec["nice"])
    if LINUX:
        with contextlib.suppress(OSError):  # it is higher already, and only the host's root may lower it
            Path("/proc/self/oom_score_adj").write_text(str(spec["oom_score"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (spec["file_bytes"],) * 2)
    os.chdir(spec["cwd"])
    if spec["confined"]:
        confine.confine(spec["readable"], spec["writable"], spec["tree"], network=spec["network"])
    os.execve("/bin/bash", ["bash", "-c", spec["script"]], spec["env"])  # noqa: S606 bash is the shell


def _wait(child: int, wake: int) -> int | None:
    """The command's exit code, 128+n for signal n; None when we are to stop before it ends."""
    while True:
        ready, _, _ = select.select([0, wake], [], [], 1.0)
        while True:  # orphans that ended are ours to bury, too
            try:
                pid, state = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 1
            if pid == child:
                return 128 + os.WTERMSIG(state) if os.WIFSIGNALED(state) else os.WEXITSTATUS(state)
            if pid == 0:
                break
        if wake in ready and signal.SIGTERM in os.read(wake, 512):
            return None
        if 0 in ready and not os.read(0, 512):
            return None


def _end_descendants(child: int) -> None:
    """Kill until nothing is left; what a killed process leaves behind becomes our child and is next."""
    while True:
        for pid in _children() if LINUX else [-child]:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        time.sleep(0.002)


def _children() -> list[int]:
    """All our descendants, so that a fork bomb's leaves die with its root."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
            parents[int(entry.parent.name)] = int(fields[1])
        except (OSError, ValueError):
            continue
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found - {os.getpid()})
        found |= more


def _say(status: int, entry: dict[str, Any]) -> None:
    os.write(status, json.dumps(entry).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
