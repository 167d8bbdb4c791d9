"""The supervisor process of the grades without a pid namespace: starts one command and outlives its descendants.

Run by path with `python -I -S`, so it must not need site-packages; the working directory is never on its path, because
the agent writes there. Its first line of stdin is a JSON object (see _launcher_spec in grades.py); stdin's end means
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


def run_launcher() -> int:
    """Start the command that stdin describes, wait for its end, kill all that it left behind, and return the exit code
    for this process: the command's, 1 when it could not start, 0 when it was killed.

    Pid and start time, then the command's exit code, or why it could not start, are written to the status descriptor
    (the first argument). No exit code is written when stdin was closed or SIGTERM came first: then the command was
    killed.
    """
    status = int(sys.argv[1])
    spec = json.loads(sys.stdin.buffer.readline())
    os.set_inheritable(status, False)
    wake, wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if LINUX else os.pipe()
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if LINUX:
        confine.become_subreaper()
        start_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        _report(status, {"child-pid": os.getpid(), "started": start_ticks})
    child, failure = _start_command(spec)
    if failure:
        os.waitpid(child, 0)
        _report(status, {"failure": failure})
        return 1
    code = _wait_for_command(child, wake)
    _kill_descendants(child)
    if code is not None:
        _report(status, {"exit-code": code})
    return code or 0


def _start_command(spec: dict[str, Any]) -> tuple[int, str]:
    """Start the command in a child process, and return the child's pid and why it failed; '' when it runs. A pipe
    carries the reason, and closes when the child becomes the command."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _exec_command(spec)
        except BaseException as error:  # noqa: BLE001 nothing may escape between fork and exec
            os.write(writer, str(error).encode()[:4096])
        finally:
            os._exit(127)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return child, pipe.read().decode(errors="replace")


def _exec_command(spec: dict[str, Any]) -> None:
    """Set up this child process as the spec says (session, standard input, niceness, limits, directory, confinement)
    and replace it by the command. Does not return; raises OSError or another error when a step fails."""
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
        options = {name: spec[name] for name in ("network", "trace")}
        confine.confine_process(spec["readable"], spec["writable"], spec["tree"], **options)
    os.execve("/bin/bash", ["bash", "-c", spec["script"]], spec["env"])  # noqa: S606 bash is the shell


def _wait_for_command(child: int, wake: int) -> int | None:
    """Wait for the command's end and return its exit code, 128+n for signal n; 1 when it cannot be waited for; None
    when stdin closes or SIGTERM comes before. Other children that end meanwhile are reaped.

    wake  descriptor that becomes readable when a signal arrives
    """
    while True:
        ready, _, _ = select.select([0, wake], [], [], 1.0)
        while True:  # orphans that ended are our children, too, and have to be reaped
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 1
            if pid == child:
                return 128 + os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else os.WEXITSTATUS(wait_status)
            if pid == 0:
                break
        if wake in ready and signal.SIGTERM in os.read(wake, 512):
            return None
        if 0 in ready and not os.read(0, 512):
            return None


def _kill_descendants(child: int) -> None:
    """Kill all descendants, again and again until none is left: whatever a killed process leaves behind becomes our
    child and is next. Without /proc (macOS) only the process group of `child` is killed."""
    while True:
        for pid in _list_descendants() if LINUX else [-child]:
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


def _list_descendants() -> list[int]:
    """List the pids of all our descendants, from /proc, so that a fork bomb's youngest die with its first process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
            parents[int(entry.parent.name)] = int(fields[1])
        except (OSError, ValueError):
            continue
    descendants = {os.getpid()}
    while True:
        next_level = {pid for pid, parent in parents.items() if parent in descendants} - descendants
        if not next_level:
            return sorted(descendants - {os.getpid()})
        descendants |= next_level


def _report(status: int, entry: dict[str, Any]) -> None:
    """Write one JSON object as a line to the status descriptor."""
    os.write(status, json.dumps(entry).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(run_launcher())
