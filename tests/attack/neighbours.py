"""Another user of the host: what they reach of a running set-up."""
# ruff: noqa: E501 - one case a line reads as the table it is

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.adapters.system.home import Home
from tests.attack.pages import server
from tests.attack.table import GAP, LEFT, SECRET, Case, Ground, Seen, held
from tests.repositories import make_target

NOBODY = 65534
ROOT = Path(__file__).parents[2]
USER = "other user of the host"


def _as_nobody(code: str) -> str:
    """The view of another user of the host; only root can become one."""
    ran = subprocess.run(
        ["/bin/sh", "-c", code], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True,
        check=False, timeout=30, cwd="/", env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return ran.stdout + ran.stderr


def _home_read(at: Ground) -> Seen:
    home = at.once(server)
    mode = home.root.stat().st_mode & 0o777
    if os.geteuid() != 0:
        return held(mode & 0o077 == 0, f"was 755, is {mode:o}")
    before = _as_nobody(f"ls -d {home.root.parent} && echo REACHED")
    said = _as_nobody(f"ls {home.root} && echo REACHED; find {home.root} -type f -readable | head -3")
    return held("REACHED" in before and "REACHED" not in said, f"was 755, is {mode:o}; {said}")


def _refused_home(at: Ground) -> Seen:
    """A directory with other things in it, open to all: closing it is not ours, so it is no home."""
    from perdure.models.errors import BadInput

    place = Path(tempfile.mkdtemp(dir=at.root))
    (place / "thesis.txt").write_text("mine")
    place.chmod(0o755)
    try:
        Home(place).key()
    except BadInput as error:
        return held(sorted(p.name for p in place.iterdir()) == ["thesis.txt"], f"refused: {error}")
    return Seen("MISSED", "a key was made there")


def _made_under_022(at: Ground) -> Seen:
    """Files made below a home while the owner's umask is the usual one."""
    home = at.once(server)
    made = [str(p.relative_to(home.root)) for p in home.root.rglob("*") if p.stat().st_mode & 0o007]
    secret = [
        p.name for p in (home.root / "key", *home.root.glob("temporal.db*")) if p.exists() and p.stat().st_mode & 0o077
    ]
    closed = not home.root.stat().st_mode & 0o077
    return held(
        closed and not secret, f"closed above, {len(made)} below with usual modes, none of the key and database"
    )


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


def _copied(name: str) -> Callable[[Ground], Seen]:
    """`[setup] copy` names a file that is not one of those git ignores in the checkout."""

    def attack(at: Ground) -> Seen:
        from perdure.adapters.repository.setup import copy_files
        from perdure.models.errors import SetupFailed

        place = Path(tempfile.mkdtemp(dir=at.root))
        for directory in ("owner", "tree"):
            (place / directory).mkdir()
        owner, tree = place / "owner", place / "tree"
        subprocess.run(["git", "init", "-q", str(owner)], check=True, timeout=60)
        for path in (place / "key", owner / "known", owner / "ignored"):
            path.write_text(SECRET)
        (owner / ".git/info/exclude").write_text("*\n!known\n")
        (owner / "link").symlink_to(place / "key")
        (owner / "up").symlink_to(place)
        copy_files(owner, tree, ("ignored",))
        if not (tree / "ignored").exists():
            return Seen("MISSED", "proves nothing: an ignored file is not copied either")
        try:
            copy_files(owner, tree, (name.replace("{place}", str(place)),))
        except SetupFailed as error:
            return held([p.name for p in tree.iterdir()] == ["ignored"], f"refused: {error}")
        return Seen("MISSED", "copied")

    return attack


def _source(at: Ground) -> Seen:
    """`source` of a start request that anybody could have sent names a checkout of the host."""
    from perdure.adapters.git.credentials import NO_KEYS
    from perdure.adapters.git.target import resolve_repository
    from perdure.adapters.repository.terms import find_source
    from perdure.models.delivery.request import DeliveryRequest
    from perdure.models.errors import InvalidRequest

    work = make_target(Path(tempfile.mkdtemp(dir=at.root)) / "calc.git").with_name("calc.git-work")
    target = resolve_repository(str(work), work, NO_KEYS)
    request = DeliveryRequest(repository=target.url, request="x", source=str(work))
    if find_source(request, True, target, True) != str(work):
        return Seen("MISSED", "proves nothing: its owner's is not taken either")
    try:
        find_source(request, False, target, True)
    except InvalidRequest as error:
        return held("only for requests that come from this PERDURE_HOME" in str(error), str(error))
    return Seen("MISSED", "it was taken")


def _starts(at: Ground) -> Seen:
    """The embedded Temporal asks nobody who he is; what a request may name is limited instead."""
    del at
    return Seen(
        GAP,
        "whoever can connect on this host starts and reads deliveries (gRPC; the UI behind, /proc/net/tcp): SECURITY.md",
    )


def _without_namespaces(at: Ground) -> Seen:
    """A host without user namespaces: made by limiting their number to none, in a namespace of our own."""
    del at
    script = "echo 0 > /proc/sys/user/max_user_namespaces && exec " + (
        f"{sys.executable} -c 'from perdure.adapters.sandbox.grades import probe; print(probe().error)'"
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
    Case(USER, "names a directory with other things, open to all, as PERDURE_HOME", "refused", _refused_home),
    Case(USER, "has a checkout of the host copied from (source)", "only with the home's proof", _source),
    *(Case(USER, f"has {what} copied ([setup] copy)", "only ignored files", _copied(name)) for what, name in (
        ("a file that git tracks", "known"), ("a link out of the checkout", "link"), ("a file behind a link", "up/key"),
        ("a file above the checkout", "../key"), ("a file by its whole path", "{place}/key"), ("git's own configuration", ".git/config"),
    )),
    Case(USER, "starts a delivery at the embedded Temporal", "a gap", _starts),
    Case("host", "has no user namespaces", "a gap", _without_namespaces),
)  # fmt: skip
