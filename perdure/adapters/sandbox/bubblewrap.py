"""Grade `full` of the sandbox: commands in namespaces made by bubblewrap, started with an empty environment; here its
mounts, options and variables. The program is found in `program`, the process watched and ended in `supervision`. Used
by `grades` alone."""

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

from perdure.adapters.sandbox import bridge, confine, environment, setup
from perdure.adapters.sandbox.base import GitView, SandboxCommand, SandboxResult
from perdure.adapters.sandbox.environment import Binds
from perdure.adapters.sandbox.host_files import SYSTEM, prepare_private_etc
from perdure.adapters.sandbox.program import find_bubblewrap
from perdure.adapters.sandbox.reach import PORT, Reach, open_setup_proxy, proxy_variables
from perdure.adapters.sandbox.setup import ensure_tool_caches, make_mount_point, path_without_links
from perdure.adapters.sandbox.status import StatusFile
from perdure.adapters.sandbox.supervision import SupervisorLaunch, supervise_command
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.adapters.system.home import Home
from perdure.models.config.repository import SandboxGrade
from perdure.models.limits import (
    OUTPUT_FILE_BYTES,
    SANDBOX_FILE_BYTES,
    SANDBOX_NICE,
    SANDBOX_OOM_SCORE,
    SANDBOX_PROCESSES,
)

SANDBOX_TMPFS_BYTES = 1024**3
"""Size of each private /tmp, /dev/shm and home: they are memory, which no RLIMIT counts. /run gets a sixteenth of
it."""


USER = "65534"

READ_ONLY = (".git", ".venv", "node_modules")
"""Entries at the top of every worktree that the engine and setup own, shown read-only: an agent could patch pytest in a
writable one."""

HIDDEN = frozenset({"kcore", "key-users", "keys", "kmsg", "sched_debug", "timer_list"})
"""Entries of /proc that tell about the host's memory, keys, log and other processes to whoever looks like its root."""

_BRIDGE, _OUTSIDE = f"{environment.RUN}/bridge.py", f"{environment.RUN}/outside"

_UNPACK = "PATH=/usr/bin:/bin tar --no-same-owner -xf {} -C {} 2>/dev/null; "
"""Shell text that unpacks an archive into a directory. Its PATH is not the command's, which begins with the worktree's
own tools."""

PRELUDE = (
    f"{{ echo {SANDBOX_OOM_SCORE} >/proc/self/oom_score_adj; }} 2>/dev/null; "
    f"ulimit -c 0 -f {SANDBOX_FILE_BYTES // 1024}; "
    f"ulimit -u {SANDBOX_PROCESSES} 2>/dev/null; "
)


class BubblewrapSandbox:
    """A sandbox of grade `full`: runs commands under bwrap.

    binds     what of the host they see, computed once after setup
    layering  path of the bwrap that can put a layer over package caches (probe_layers); '': caches are read-only
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
        caps: ResourceCaps | None = None,
    ) -> None:
        """Keep the arguments; find the bwrap to use unless `bwrap` names its path. `output_limit`: bytes of a command's
        output."""
        self._home = home
        self._binds = binds
        self._bwrap, self._layering = bwrap or find_bubblewrap().path, layering
        self._output_limit, self._caps = output_limit, caps

    async def run_command(self, command: SandboxCommand) -> SandboxResult:
        """Run a command in new namespaces and return its result; everything it started is dead then. With `network` a
        proxy to the hosts of its `reach` runs meanwhile. Whatever cannot be mounted or started gives a result with
        `failure`. Raises Superseded when somebody else owns the workspace, and what `command.fence` raises, before
        anything starts; RuntimeError outside of the main thread."""
        etc = await asyncio.to_thread(prepare_private_etc, self._home.root / "sandbox" / "etc")
        async with AsyncExitStack() as stack:
            status = stack.enter_context(await StatusFile.open_locked(command.lock))
            if command.fence is not None:
                command.fence()
            try:
                reach = await _setup_reach(command) if command.network else None
                proxy_socket = await stack.enter_async_context(_open_proxy(command, reach)) if reach else None
                package_mounts = setup.PackageMounts() if proxy_socket else self._package_mounts()
                options = [
                    *isolation_options(),
                    *self._bwrap_options(command, etc, proxy_socket, reach, package_mounts),
                ]
            except OSError as error:
                return SandboxResult(None, 0.0, failure=f"cannot prepare the sandbox: {error}")
            arguments = _memory_file(b"".join(os.fsencode(word) + b"\0" for word in options))
            system_calls = _memory_file(confine.filter_program(platform.machine(), trace=command.trace))
            try:
                guard = ("--seccomp", str(system_calls))
                options = ["--args", str(arguments), *guard, "--json-status-fd", "{status}"]
                bwrap = self._layering if package_mounts.layers else self._bwrap
                argv = [bwrap, *options, "--", *(_bridge_command() if proxy_socket else ()), *_shell_command(command)]
                # An empty environment: the command can read its pid 1's, which is bwrap's own.
                launch = SupervisorLaunch(argv, {}, (arguments, system_calls), layers=package_mounts.layers)
                return await supervise_command(launch, command, status, self._output_limit, self._caps)
            finally:
                os.close(arguments)
                os.close(system_calls)

    def _package_mounts(self) -> setup.PackageMounts:
        """Return how a command sees the package caches: below a layer, if a bwrap that can make one is known."""
        return setup.command_mounts(self._home, self._binds.cache, layered=bool(self._layering))

    def _bwrap_options(
        self,
        command: SandboxCommand,
        etc: Path,
        proxy_socket: Path | None,
        reach: Reach | None,
        package_mounts: setup.PackageMounts,
    ) -> Iterator[str]:
        """Yield bwrap's options for a command: its mounts, in the order that counts (a tmpfs mounted late would hide
        what lies below it), its directory, and its variables. Places to mount at and caches that are missing are made
        on disk. Raises OSError when that fails.

        etc             the private copy of /etc
        proxy_socket    with `reach`, for setup: the proxy's socket; setup's own mounts and variables are added
        package_mounts  for every other command: how the package caches are shown
        """
        variables = {
            **(environment.NO_RESULT_CACHES if package_mounts.options else {}),
            **environment.command_variables(command, self._binds),
        }
        yield from system_mounts()
        yield from ("--ro-bind", str(etc), "/etc")
        yield from tmpfs_mounts()
        for prefix in self._binds.prefixes:
            yield from ("--ro-bind-try", prefix, prefix)
        for path in command.visible_paths:
            yield from ("--ro-bind", str(path), str(path))
        if proxy_socket is not None and reach is not None:
            mounts, owner_variables = setup.setup_options(self._home, self._binds.cache, os.environ, Path.home())
            passed_variables = {
                name: value for name, value in owner_variables.items() if not name.lower().endswith("proxy")
            }
            variables = {**variables, **passed_variables, **command.env, **proxy_variables(reach)}
            yield from mounts
            yield from ("--ro-bind-try", sys.base_prefix, sys.base_prefix, "--ro-bind", bridge.__file__, _BRIDGE)
            yield from ("--ro-bind", str(proxy_socket), _OUTSIDE)
        else:
            yield from package_mounts.options
        yield from _git_mounts(command.git_dir)
        yield from _worktree_mounts(command)
        if command.results is not None:
            yield from ("--bind", str(command.results), str(command.results_at or command.results))
        if command.unpacked:
            yield from ("--size", str(SANDBOX_TMPFS_BYTES), "--tmpfs", environment.UNPACKED)
        for name in command.unpacked:
            yield from ("--dir", f"{environment.UNPACKED}/{name}")
        # Writable, /dev and / would be memory without a limit.
        yield from ("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(command.shown_at / command.directory))
        for name, value in variables.items():
            yield from ("--setenv", name, value)


async def _setup_reach(command: SandboxCommand) -> Reach:
    """Return the hosts that a setup command may reach: those of its `reach`, and as trusted ones the hosts that the
    owner's settings for packages name. Reads these settings."""
    owner_hosts = await asyncio.to_thread(setup.hosts_named_by_owner, os.environ, Path.home())
    return replace(command.reach, trusted=command.reach.trusted | owner_hosts)


@asynccontextmanager
async def _open_proxy(command: SandboxCommand, reach: Reach) -> AsyncIterator[Path]:
    """Run setup's proxy while the block runs, and yield its socket's path. Hosts that it refuses are named in the
    command's output file."""

    def write_refusal(line: str) -> None:
        """Append a line to the command's output file."""
        with open(command.output, "ab") as output:
            output.write(f"perdure: {line}\n".encode())

    async with open_setup_proxy(reach, os.environ, write_refusal) as proxy_socket:
        yield proxy_socket


def _bridge_command() -> Sequence[str]:
    """Return the arguments that start the bridge inside, before the command's own."""
    return (os.path.realpath(sys.executable), "-I", "-S", _BRIDGE, _OUTSIDE, str(PORT))


def isolation_options() -> list[str]:
    """Return bwrap's options for isolation: every namespace, nobody's user, no capabilities, no way to make namespaces
    inside, death with the worker."""
    return [
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        *("--unshare-net", "--disable-userns", "--uid", USER, "--gid", USER, "--cap-drop", "ALL"),
        *("--hostname", "sandbox", "--die-with-parent", "--new-session"),
    ]


def system_mounts() -> Iterator[str]:
    """Yield bwrap's options that show /usr and what the host keeps beside it, as links or as directories like on the
    host, a new /proc with its kernel settings and its first process covered, and a new /dev."""
    for root in SYSTEM:
        if os.path.islink(root):
            yield from ("--symlink", os.readlink(root), root)
        elif os.path.isdir(root):
            yield from ("--ro-bind", root, root)
    # Whoever can write to the memory of pid 1, or to its descriptors, says how a command has ended.
    first_process = ("--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1")
    yield from ("--proc", "/proc", *_proc_covers(), *first_process, "--dev", "/dev")


@functools.cache
def _proc_covers() -> tuple[str, ...]:
    """Return bwrap's options that cover the parts of /proc that belong to the kernel and not to a process.

    Entries that somebody may write are mounted over themselves read-only; those in HIDDEN are covered by /dev/null;
    others that nobody may write are left as they are.

    A root worker's commands are the host's root to these files' permission checks, capabilities or not: without this,
    `echo > /proc/sys/kernel/core_pattern` was seen to change the host's. bwrap's own cover looks at the directory's
    mode and leaves /proc/sys out. Computed once for each process of ours.
    """
    options: list[str] = []
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if (
            entry.name.isdigit() or entry.is_symlink() or entry.name == "sysvipc"
        ):  # sysvipc: of the sandbox's own namespace
            continue
        if entry.name in HIDDEN:
            options += ["--ro-bind", "/dev/null", entry.path]
        elif entry.is_dir() or entry.stat().st_mode & 0o222:
            options += ["--ro-bind-try", entry.path, entry.path]
    return tuple(options)


def tmpfs_mounts() -> Iterator[str]:
    """Yield bwrap's options for the sandbox's private /tmp, /dev/shm, home and /run: file systems in memory, of limited
    size."""
    for path, size in (
        (environment.TMP, SANDBOX_TMPFS_BYTES),
        ("/dev/shm", SANDBOX_TMPFS_BYTES),  # noqa: S108
        (environment.HOME, SANDBOX_TMPFS_BYTES),
        (environment.RUN, SANDBOX_TMPFS_BYTES // 16),
    ):
        yield from ("--size", str(size), "--tmpfs", path)


def _git_mounts(git_dir: Path | GitView | None) -> Iterator[str]:
    """Yield bwrap's options that show what `.git` points to: a view in the vault's place, read-only unless it is a copy
    for setup, or a repository as it is, read-only; none for None."""
    if isinstance(git_dir, GitView):
        bind, admin = (
            "--bind" if git_dir.writable else "--ro-bind",
            git_dir.vault_path / "worktrees" / git_dir.admin.name,
        )
        yield from ("--ro-bind", str(git_dir.history), str(git_dir.history))
        yield from (bind, str(git_dir.view_path), str(git_dir.vault_path), bind, str(git_dir.admin), str(admin))
    elif git_dir is not None:
        yield from ("--ro-bind", str(git_dir), str(git_dir))


def _worktree_mounts(command: SandboxCommand) -> Iterator[str]:
    """Yield bwrap's options for the working directory: itself, and over it what commands may only read. It has the same
    path for every command, because virtual environments hold absolute paths.

    Where a clean checkout is shown, directories that setup made come from the real worktree; places to mount them at
    are made in the checkout, on disk. What is absent or reached by a link is not mounted.
    """
    worktree, source = command.worktree, command.source or command.worktree
    yield from ("--bind" if command.writable else "--ro-bind", str(source), str(command.shown_at))
    if command.linked_at is not None:
        yield from ("--symlink", str(command.shown_at), str(command.linked_at))
    for name in sorted(command.read_only_paths):
        if (path := path_without_links(source, name)) is not None:
            yield from ("--ro-bind", str(path), str(command.shown_at / name))
    read_only = {".git", *command.shared} if command.source else {*READ_ONLY, *command.shared}
    if command.network:  # setup makes these itself
        read_only -= {*READ_ONLY[1:], *command.shared}
    for name in sorted(read_only):
        real_path = path_without_links(worktree, name)
        if real_path is None:
            continue
        if command.source is not None:
            make_mount_point(command.source, name, real_path.is_dir())
        yield from ("--ro-bind", str(real_path), str(command.shown_at / name))
        yield from _cache_mounts(real_path, command.shown_at / name) if real_path.name == "node_modules" else ()


_CACHE_ENTRIES = 100
"""The most entries of a `.cache` that are shown one by one: bwrap takes some thousand options, tools have one directory
each."""


def _cache_mounts(modules: Path, shown_at: Path) -> Iterator[str]:
    """Yield bwrap's options for the caches of tools below a `node_modules`: each is empty, in memory, and gone with the
    command. Entries that setup left in a `.cache` are shown there read-only, links not. Cache directories are made on
    disk where they are missing.

    shown_at  path at which commands see `modules`

    A `.cache` with more than _CACHE_ENTRIES entries is not covered: it stays read-only.
    """
    for cache in ensure_tool_caches(modules):
        entries = [entry for entry in cache.iterdir() if not entry.is_symlink()] if cache.name == ".cache" else []
        if len(entries) <= _CACHE_ENTRIES:
            yield from ("--size", str(SANDBOX_TMPFS_BYTES // 16), "--tmpfs", str(shown_at / cache.name))
            for entry in sorted(entries):
                yield from ("--ro-bind", str(entry), str(shown_at / cache.name / entry.name))


def _shell_command(command: SandboxCommand) -> Sequence[str]:
    """Return the arguments that run the command's script inside: bash that sets limits, unpacks the command's archives,
    and becomes `nice` with a bash for the script."""
    nice = ("/usr/bin/nice", "-n", str(SANDBOX_NICE)) if os.path.exists("/usr/bin/nice") else ()
    targets = ((str(archive), f"{environment.UNPACKED}/{name}") for name, archive in command.unpacked.items())
    unpack = "".join(_UNPACK.format(*map(shlex.quote, pair)) for pair in targets)
    return ("/bin/bash", "-c", f'{PRELUDE}{unpack}exec "$@"', "bash", *nice, "/bin/bash", "-c", command.script)


def _memory_file(content: bytes) -> int:
    """Return a descriptor of a new file in memory that holds `content`, at its beginning; the caller closes it. bwrap's
    options go this way: variables of setup may be secret, and everybody can read a process's arguments."""
    fd = os.memfd_create("options")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
