"""Another user of the host, and a web page in the owner's browser: what they reach of a running set-up."""
# ruff: noqa: E501 - one case a line reads as the table it is

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.adapters.host.home import Home
from tests.attack.table import GAP, LEFT, SECRET, Case, Ground, Seen, held

NOBODY = 65534
ROOT = Path(__file__).parents[2]
USER, PAGE = "other user of the host", "web page in the browser"


@contextmanager
def server(at: Ground) -> Iterator[tuple[Home, list[int]]]:
    """The embedded server of a home that others could read before, and every port it listens on."""
    import psutil

    from perdure.local.server import ensure_server, stop_server

    home = Home(Path(tempfile.mkdtemp(dir=at.root)) / "perdure")
    home.root.mkdir(mode=0o755)
    home.root.chmod(0o755)
    kept = {name: os.environ.get(name) for name in ("PERDURE_SQLITE_SYNCHRONOUS", "TEMPORAL_CONFIG_FILE")}
    os.environ |= {"PERDURE_SQLITE_SYNCHRONOUS": "1", "TEMPORAL_CONFIG_FILE": os.devnull}
    try:
        info = asyncio.run(ensure_server(home, say=lambda _: None))
        listening = [c for c in psutil.Process(info.pid).net_connections("inet") if c.status == psutil.CONN_LISTEN]
        yield home, sorted({c.laddr.port for c in listening} | {int(info.ui_url.rpartition(":")[2])})
    finally:
        asyncio.run(stop_server(home))
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _asks(port: int, path: str, headers: dict[str, str], data: bytes | None = None) -> tuple[int, str]:
    """Status and beginning of what a port answers; 0 when it does not speak HTTP."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read(300).decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read(300).decode(errors="replace")
    except (OSError, ValueError):
        return 0, ""


_START = b'{"workflowType":{"name":"Delivery"},"taskQueue":{"name":"perdure"},"input":[{"repository":"/r"}]}'
_EVIL = {"Host": "evil.example", "Origin": "http://evil.example", "Referer": "http://evil.example/"}


def _page(path: str, headers: dict[str, str], data: bytes | None = None) -> Callable[[Ground], Seen]:
    """Missed when any port of the server does what it is asked."""

    def attack(at: Ground) -> Seen:
        with server(at) as (_, ports):
            answers = {port: _asks(port, path, headers, data) for port in ports}
        done = {port: answer for port, answer in answers.items() if 200 <= answer[0] < 300}
        words = ", ".join(f"{port}: {status} {text[:40]}" for port, (status, text) in (done or answers).items())
        return held(not done, words)

    return attack


def _as_nobody(code: str) -> str:
    """What another user of the host sees; only root can become one."""
    ran = subprocess.run(
        ["/bin/sh", "-c", code], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True,
        check=False, timeout=30, cwd="/", env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return ran.stdout + ran.stderr


def _home_read(at: Ground) -> Seen:
    at.root.chmod(0o755)
    with server(at) as (home, _):
        home.root.parent.chmod(0o755)
        mode = home.root.stat().st_mode & 0o777
        if os.geteuid() != 0:
            return held(mode & 0o077 == 0, f"mode {mode:o}")
        said = _as_nobody(f"ls {home.root} && echo REACHED; find {home.root} -type f -readable | head -3")
        return held("REACHED" not in said, f"mode {mode:o}; {said}")


def _made_under_022(at: Ground) -> Seen:
    """What is made below a home while the owner's umask is the usual one."""
    before = os.umask(0o022)
    try:
        with server(at) as (home, _):
            open_to_all = [str(p.relative_to(home.root)) for p in home.root.rglob("*") if p.stat().st_mode & 0o007]
    finally:
        os.umask(before)
    closed = home.root.exists() and not home.root.stat().st_mode & 0o077
    return held(closed or not open_to_all, "closed above" if closed else ", ".join(open_to_all[:5]))


_PROGRAM = """
import subprocess, sys
from perdure import secrets
secrets.take()
subprocess.run(["env"])
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def _program() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program of ours that was started with a key, and what a child of it has in its environment."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "ANTHROPIC_API_KEY": SECRET}
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            if line == "ready\n":
                break
            lines.append(line)
        try:
            yield process, "".join(lines)
        finally:
            process.kill()


def _environ(_: Ground) -> Seen:
    with _program() as (process, _):
        try:
            seen = Path(f"/proc/{process.pid}/environ").read_bytes()
        except PermissionError:
            return held(True, "may not be looked at")
    return held(SECRET.encode() not in seen, "looked at: the key is not in it")


def _child(_: Ground) -> Seen:
    with _program() as (_, inherited):
        return held("PATH=" in inherited and SECRET not in inherited, "it has PATH and no key")


def _core(_: Ground) -> Seen:
    with _program() as (process, _):
        limits = Path(f"/proc/{process.pid}/limits").read_text()
    size = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
    return held(size.split()[4] == "0", size)


def _copied(at: Ground) -> Seen:
    """`source` and `[setup] copy` of a start request name a file of the host that is in no repository."""
    from perdure.adapters.project.copying import copy_files
    from perdure.models.errors import PerdureError

    place = Path(tempfile.mkdtemp(dir=at.root))
    for name in ("owner", "tree"):
        (place / name).mkdir()
    subprocess.run(["git", "init", "-q", str(place / "owner")], check=True, timeout=60)
    (place / "owner" / "key").write_text(SECRET)
    with contextlib.suppress(PerdureError):
        copy_files(place / "owner", place / "tree", ("key",))
    return held(not (place / "tree" / "key").exists(), "copied" if (place / "tree" / "key").exists() else "not copied")


def _starts(at: Ground) -> Seen:
    """The embedded Temporal asks nobody who he is; what a request may name is limited instead."""
    del at
    return Seen(GAP, "whoever can connect on this host can start deliveries; SECURITY.md and doctor say so")


def _without_namespaces(at: Ground) -> Seen:
    """A host without user namespaces: made by limiting their number to none, in a namespace of our own."""
    del at
    script = "echo 0 > /proc/sys/user/max_user_namespaces && exec " + (
        f"{sys.executable} -c 'from perdure.adapters.sandbox.probe import probe; print(probe().error)'"
    )
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "HOME": "/nonexistent"}
    ran = subprocess.run(
        ["unshare", "-Ur", "bash", "-c", script], capture_output=True, text=True, check=False, timeout=60, env=env
    )
    said = (ran.stdout or ran.stderr).strip()
    if ran.returncode or said == "None":
        return Seen(LEFT, f"cannot be tried here: {said}")
    return Seen(GAP, f"only the weaker grade reduced, and that only when asked for: {said}")


CASES = (
    Case(USER, "reads a PERDURE_HOME that was open to all", "0700 or refused", _home_read),
    Case(USER, "reads what was made there under umask 022", "closed", _made_under_022),
    Case(USER, "reads a program's key in /proc/PID/environ", "not in it", _environ),
    Case(USER, "reads the key in a child's environment", "not in it", _child),
    Case(USER, "finds the key in a core file", "none is written", _core),
    Case(USER, "has a file of the host copied (source, [setup] copy)", "only ignored files of a checkout", _copied),
    Case(USER, "starts a delivery at the embedded Temporal", "a gap", _starts),
    Case("host", "has no user namespaces", "a gap", _without_namespaces),
    Case(PAGE, "starts a delivery by a text/plain POST", "no port does it",
         _page("/api/v1/namespaces/default/workflows/x", {"Content-Type": "text/plain", "Origin": "http://evil.example"}, _START)),
    Case(PAGE, "starts a delivery through the Web UI's port", "no port does it",
         _page("/api/v1/namespaces/default/workflows/y", {"Content-Type": "text/plain", **_EVIL}, _START)),
    Case(PAGE, "reads deliveries under a name of its own (DNS rebinding)", "no port answers",
         _page("/api/v1/namespaces/default/workflows", _EVIL)),
    Case(PAGE, "reads the Web UI under a name of its own", "no port answers", _page("/", _EVIL)),
    Case(PAGE, "asks for namespaces from another origin", "no port answers",
         _page("/api/v1/namespaces", {"Origin": "http://evil.example", "Host": "evil.example:80"})),
)  # fmt: skip
