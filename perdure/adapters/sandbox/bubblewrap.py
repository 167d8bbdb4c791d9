"""Grade `full`: namespaces by bubblewrap, started with an empty environment."""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import shlex
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from perdure.adapters.sandbox import bridge, environment, packages, seccomp, setup
from perdure.adapters.sandbox.base import Command, Finished, GitView
from perdure.adapters.sandbox.etc import private_etc
from perdure.adapters.sandbox.outside import PORT, proxied, way_out
from perdure.adapters.sandbox.process import Launch, supervise
from perdure.adapters.sandbox.program import bubblewrap
from perdure.adapters.sandbox.reach import Reach
from perdure.adapters.sandbox.rules import SYSTEM
from perdure.adapters.sandbox.shared import caches, mount_point, unlinked
from perdure.adapters.sandbox.status import StatusFile
from perdure.adapters.sandbox.toolchain import Binds
from perdure.adapters.sandbox.usage import Caps
from perdure.adapters.system.home import Home
from perdure.models.config import SandboxGrade
from perdure.models.limits import (
    OUTPUT_FILE_BYTES,
    SANDBOX_FILE_BYTES,
    SANDBOX_NICE,
    SANDBOX_OOM_SCORE,
    SANDBOX_PROCESSES,
)

SANDBOX_TMPFS_BYTES = 1024**3
"""Of each private /tmp, /dev/shm and home: they are memory, which no RLIMIT counts; /run gets a sixteenth."""


USER = "65534"

READ_ONLY = (".git", ".venv", "node_modules")
"""At the top of every worktree: what the engine and setup own. An agent could patch pytest in a writable one."""

HIDDEN = frozenset({"kcore", "key-users", "keys", "kmsg", "sched_debug", "timer_list"})
"""Of /proc: what tells about the host's memory, keys, log and other processes to whoever looks like its root."""

_BRIDGE, _OUTSIDE = f"{environment.RUN}/bridge.py", f"{environment.RUN}/outside"

_UNPACK = "PATH=/usr/bin:/bin tar --no-same-owner -xf {} -C {} 2>/dev/null; "
"""Not the command's PATH: it begins with the worktree's own tools."""

PRELUDE = (
    f"{{ echo {SANDBOX_OOM_SCORE} >/proc/self/oom_score_adj; }} 2>/dev/null; "
    f"ulimit -c 0 -f {SANDBOX_FILE_BYTES // 1024}; "
    f"ulimit -u {SANDBOX_PROCESSES} 2>/dev/null; "
)


class Bubblewrap:
    """Runs commands under bwrap.

    binds     what of the host they see, computed once after setup
    layering  the bwrap that can put a layer over package caches (probe_layers); '': they are read-only
    """

    grade = SandboxGrade.FULL

    def __init__(
        self,
        home: Home,
        binds: Binds,
        *,
        bwrap: str = "",
        layering: str = "",
        output_limit: int = OUTPUT_FILE_BYTES,
        caps: Caps | None = None,
    ) -> None:
        self._home = home
        self._binds = binds
        self._bwrap, self._layering = bwrap or bubblewrap().path, layering
        self._limit, self._caps = output_limit, caps

    async def run(self, command: Command) -> Finished:
        """See Sandbox.run. Superseded: someone else owns the workspace, or `command.fence` said so."""
        etc = await asyncio.to_thread(private_etc, self._home.root / "sandbox" / "etc")
        async with AsyncExitStack() as stack:
            status = stack.enter_context(await StatusFile.open(command.lock))
            if command.fence is not None:
                command.fence()
            try:
                reach = await _reach(command) if command.network else None
                out = await stack.enter_async_context(_way_out(command, reach)) if reach else None
                shown = packages.Shown() if out else self._packages()
                options = [*isolation(), *self._options(command, etc, out, reach, shown)]
            except OSError as error:
                return Finished(None, 0.0, failure=f"cannot prepare the sandbox: {error}")
            arguments = _memory_file(b"".join(os.fsencode(word) + b"\0" for word in options))
            system_calls = _memory_file(seccomp.program(platform.machine()))
            try:
                guard = ("--seccomp", str(system_calls))
                options = ["--args", str(arguments), *guard, "--json-status-fd", "{status}"]
                bwrap = self._layering if shown.layers else self._bwrap
                argv = [bwrap, *options, "--", *(_bridge() if out else ()), *_shell(command)]
                # An empty environment: the command can read its pid 1's, which is bwrap's own.
                launch = Launch(argv, {}, (arguments, system_calls), layers=shown.layers)
                return await supervise(launch, command, status, self._limit, self._caps)
            finally:
                os.close(arguments)
                os.close(system_calls)

    def _packages(self) -> packages.Shown:
        return packages.for_commands(self._home, self._binds.cache, layered=bool(self._layering))

    def _options(
        self, command: Command, etc: Path, out: Path | None, reach: Reach | None, shown: packages.Shown
    ) -> Iterator[str]:
        """Mounts in the order that counts: a tmpfs mounted late would hide what lies below it."""
        variables = {**(environment.ANEW if shown.options else {}), **environment.inside(command, self._binds)}
        yield from system()
        yield from ("--ro-bind", str(etc), "/etc")
        yield from tmpfs()
        for prefix in self._binds.prefixes:
            yield from ("--ro-bind-try", prefix, prefix)
        for path in command.shown:
            yield from ("--ro-bind", str(path), str(path))
        if out is not None and reach is not None:
            mounts, extra = setup.openings(self._home, self._binds.cache, os.environ, Path.home())
            kept = {name: value for name, value in extra.items() if not name.lower().endswith("proxy")}
            variables = {**variables, **kept, **command.env, **proxied(reach)}
            yield from mounts
            yield from ("--ro-bind-try", sys.base_prefix, sys.base_prefix, "--ro-bind", bridge.__file__, _BRIDGE)
            yield from ("--ro-bind", str(out), _OUTSIDE)
        else:
            yield from shown.options
        yield from _git(command.git_dir)
        yield from _worktree(command)
        if command.results is not None:
            yield from ("--bind", str(command.results), str(command.results_at or command.results))
        if command.unpacked:
            yield from ("--size", str(SANDBOX_TMPFS_BYTES), "--tmpfs", environment.UNPACKED)
        for name in command.unpacked:
            yield from ("--dir", f"{environment.UNPACKED}/{name}")
        # Both are memory without a limit otherwise.
        yield from ("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(command.seen / command.directory))
        for name, value in variables.items():
            yield from ("--setenv", name, value)


async def _reach(command: Command) -> Reach:
    """The hosts that setup may reach, with those that the owner's own settings for packages name."""
    named = await asyncio.to_thread(setup.named_hosts, os.environ, Path.home())
    return replace(command.reach, trusted=command.reach.trusted | named)


@asynccontextmanager
async def _way_out(command: Command, reach: Reach) -> AsyncIterator[Path]:
    """The proxy's socket; what it refuses is said in the command's output."""

    def tell(line: str) -> None:
        with open(command.output, "ab") as output:
            output.write(f"perdure: {line}\n".encode())

    async with way_out(reach, os.environ, tell) as out:
        yield out


def _bridge() -> Sequence[str]:
    return (os.path.realpath(sys.executable), "-I", "-S", _BRIDGE, _OUTSIDE, str(PORT))


def isolation() -> list[str]:
    """Every namespace, nobody's user, no capabilities, no way to make namespaces inside, death with the worker."""
    return [
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        *("--unshare-net", "--disable-userns", "--uid", USER, "--gid", USER, "--cap-drop", "ALL"),
        *("--hostname", "sandbox", "--die-with-parent", "--new-session"),
    ]


def system() -> Iterator[str]:
    """/usr and what the host keeps beside it, as links or as directories, like the host itself."""
    for root in SYSTEM:
        if os.path.islink(root):
            yield from ("--symlink", os.readlink(root), root)
        elif os.path.isdir(root):
            yield from ("--ro-bind", root, root)
    yield from ("--proc", "/proc", *_kernel_settings(), "--dev", "/dev")


@functools.cache
def _kernel_settings() -> tuple[str, ...]:
    """Cover the parts of /proc that belong to the kernel and not to a process, read-only.

    A root worker's commands are the host's root to these files' permission checks, capabilities or not: without
    this, `echo > /proc/sys/kernel/core_pattern` was seen to change the host's. bwrap's own cover looks at the
    directory's mode and leaves /proc/sys out.
    """
    options: list[str] = []
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.name.isdigit() or entry.is_symlink() or entry.name == "sysvipc":  # the last: of our own namespace
            continue
        if entry.name in HIDDEN:
            options += ["--ro-bind", "/dev/null", entry.path]
        elif entry.is_dir() or entry.stat().st_mode & 0o222:
            options += ["--ro-bind-try", entry.path, entry.path]
    return tuple(options)


def tmpfs() -> Iterator[str]:
    for path, size in (
        (environment.TMP, SANDBOX_TMPFS_BYTES),
        ("/dev/shm", SANDBOX_TMPFS_BYTES),  # noqa: S108
        (environment.HOME, SANDBOX_TMPFS_BYTES),
        (environment.RUN, SANDBOX_TMPFS_BYTES // 16),
    ):
        yield from ("--size", str(size), "--tmpfs", path)


def _git(found: Path | GitView | None) -> Iterator[str]:
    if isinstance(found, GitView):
        yield from ("--ro-bind", str(found.history), str(found.history))
        yield from ("--ro-bind", str(found.shown), str(found.at), "--ro-bind", str(found.admin), str(found.admin))
    elif found is not None:
        yield from ("--ro-bind", str(found), str(found))


def _worktree(command: Command) -> Iterator[str]:
    """The working directory, always at the same path: virtual environments hold absolute paths."""
    root, shown = command.worktree, command.source or command.worktree
    yield from ("--bind" if command.writable else "--ro-bind", str(shown), str(command.seen))
    for name in sorted(command.held):
        if (place := unlinked(shown, name)) is not None:
            yield from ("--ro-bind", str(place), str(command.seen / name))
    kept = {".git", *command.shared} if command.source else {*READ_ONLY, *command.shared}
    if command.network:  # setup makes them
        kept -= {*READ_ONLY[1:], *command.shared}
    for name in sorted(kept):
        real = unlinked(root, name)
        if real is None:
            continue
        if command.source is not None:
            mount_point(command.source, name, real.is_dir())
        yield from ("--ro-bind", str(real), str(command.seen / name))
        yield from _caches(real, command.seen / name) if real.name == "node_modules" else ()


_CACHED = 100
"""Entries of a `.cache` that are shown one by one: bwrap takes some thousand options, tools have one directory each."""


def _caches(modules: Path, seen: Path) -> Iterator[str]:
    """Each empty, in memory and gone with the command; what setup fetched into a `.cache` is there to read."""
    for cache in caches(modules):
        kept = [one for one in cache.iterdir() if not one.is_symlink()] if cache.name == ".cache" else []
        if len(kept) <= _CACHED:
            yield from ("--size", str(SANDBOX_TMPFS_BYTES // 16), "--tmpfs", str(seen / cache.name))
            for one in sorted(kept):
                yield from ("--ro-bind", str(one), str(seen / cache.name / one.name))


def _shell(command: Command) -> Sequence[str]:
    nice = ("/usr/bin/nice", "-n", str(SANDBOX_NICE)) if os.path.exists("/usr/bin/nice") else ()
    where = ((str(archive), f"{environment.UNPACKED}/{name}") for name, archive in command.unpacked.items())
    unpack = "".join(_UNPACK.format(*map(shlex.quote, pair)) for pair in where)
    return ("/bin/bash", "-c", f'{PRELUDE}{unpack}exec "$@"', "bash", *nice, "/bin/bash", "-c", command.script)


def _memory_file(content: bytes) -> int:
    """bwrap's options as a descriptor: variables of setup may be secret, and argv is everyone's to read."""
    fd = os.memfd_create("options")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
