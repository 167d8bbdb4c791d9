"""Setup of a workspace: the repository owner's own commands are run with network, before any model is called, and files
that git ignores are copied from the submitter's checkout (`[setup] copy`), along no link. The worker and `perdure init`
call it. Which commands they are comes from the configuration or `repository.detect`."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.adapters.git.checkouts import filtered_paths
from perdure.adapters.git.filters import configured_filters
from perdure.adapters.git.foreign_repository import foreign_git
from perdure.adapters.git.git_view import copy_for_setup, update_view
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.detect.commands import DEPENDENCIES
from perdure.adapters.sandbox.base import GitView, Sandbox, SandboxCommand, SandboxResult
from perdure.adapters.sandbox.reach import EVERYWHERE, Reach
from perdure.adapters.system.bounded import read_beginning
from perdure.adapters.system.directories import remove_path
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.opened_files import OpenedFiles, watch_opened_files
from perdure.adapters.system.output import flood_reason, follow_lines, last_lines, missing_command, read_tail
from perdure.adapters.system.threads import in_thread
from perdure.models.config.repository import SandboxGrade
from perdure.models.errors import SetupFailed
from perdure.models.limits import FAILURE_TAIL_CHARS
from perdure.text import shorten

_DEPTH = 3  # of directories looked through for dependencies: packages/<name>/node_modules


@dataclass(frozen=True)
class SetupBranch:
    """The branches that git shows to setup: `base` of the origin at `base_sha`, and the worktree's HEAD as `branch`."""

    base: str
    base_sha: str
    branch: str


async def run_setup_in_workspace(
    sandbox: Sandbox,
    workspace: Workspace,
    branch: SetupBranch,
    commands: Sequence[str],
    timeout_s: float,
    log_dir: Path,
    on_line: Callable[[str], None],
    *,
    inside: Path | None,
    reach: Reach,
    lock: Path | None = None,
    fence: Callable[[], None] = lambda: None,
    watched: Iterable[str] = (),
) -> OpenedFiles:
    """Run setup as `prepare` and `perdure init` do: the commands as in `run_setup`, with a repository of their own to
    read and write; then undo what they did to tracked files, and make git ignore directories of dependencies. Return
    what the commands opened in the directories `watched`.

    Raises what `run_setup` raises, and after the commands, too, what `fence` raises.
    """
    view = await in_thread(update_view, workspace, branch.base, branch.base_sha, branch.branch)
    view = await in_thread(copy_for_setup, workspace, view)
    with _point_git_at(view, workspace.path, sandbox.grade):
        async with watch_opened_files(workspace.path, watched) as opened:
            await run_setup(
                sandbox,
                workspace.path,
                commands,
                timeout_s,
                log_dir,
                on_line,
                inside=inside,
                git_dir=view,
                reach=reach,
                lock=lock,
                fence=fence,
            )
    fence()
    await in_thread(ignore_dependencies, workspace.path)
    await in_thread(_remove_submodule_git, workspace)
    await in_thread(workspace.reset_tracked_files)
    return opened


def _remove_submodule_git(workspace: Workspace) -> None:
    """Remove every `.git` in the submodules that setup has filled, along no link: they lead into setup's own git
    directory, which no later command sees, and git would fail at them."""
    for name in workspace.filled_submodules():
        for directory, directories, files in os.walk(workspace.path / name):
            if ".git" in (*directories, *files):
                directories[:] = [below for below in directories if below != ".git"]
                remove_path(Path(directory, ".git"))


@contextmanager
def _point_git_at(view: GitView, worktree: Path, grade: SandboxGrade) -> Iterator[None]:
    """Let a worktree's `.git` name the copy for setup while the block runs, in the grades that show nothing in another
    place; then name the vault again, whatever commands have put there."""
    pointer = worktree / ".git"
    original = pointer.read_bytes()
    try:
        if grade is not SandboxGrade.FULL:
            write_whole(pointer, f"gitdir: {view.admin}\n".encode(), mode=0o644, sync=False)
        yield
    finally:
        if grade is not SandboxGrade.FULL:
            remove_path(pointer)
            write_whole(pointer, original, mode=0o644)


async def run_setup(
    sandbox: Sandbox,
    workspace_path: Path,
    commands: Sequence[str],
    timeout_s: float,
    log_dir: Path,
    on_line: Callable[[str], None],
    *,
    inside: Path | None = None,
    git_dir: GitView | None = None,
    env: Mapping[str, str] | None = None,
    reach: Reach = EVERYWHERE,
    lock: Path | None = None,
    fence: Callable[[], None] | None = None,
) -> None:
    """Run the commands one after the other in a worktree, with network, `timeout_s` for all of them; the output of each
    goes to a file in `log_dir`, which replaces that of an earlier run.

    on_line  called with each command and each line of its output
    inside   the path at which the commands see the worktree; None: its own
    git_dir  the repository that `.git` points to; None: none
    env      added to the sandbox's own small environment
    reach    the hosts that the commands may reach
    lock     a file that the sandbox holds locked while a command lives; None: none
    fence    called before each command starts; raises (Superseded) to refuse

    A command that a signal ended which somebody had sent is run once more. Raises SetupFailed for the first command
    that fails, with its last lines and the fix; the others are not run. Raises
    SandboxUnavailable or WorkCutOff when the sandbox, not the command, failed, and before either what `fence` raises.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    await in_thread(log_dir.mkdir, parents=True, exist_ok=True)
    for number, script in enumerate(commands, start=1):
        on_line(f"$ {script}")
        log = log_dir / f"setup-{number}.log"
        await in_thread(log.unlink, missing_ok=True)
        command = SandboxCommand(
            script=script,
            worktree=workspace_path,
            inside=inside,
            output=log,
            timeout_s=max(0.1, deadline - loop.time()),
            network=True,
            reach=reach,
            git_dir=git_dir,
            env=env or {},
            lock=lock,
            fence=fence,
        )
        async with follow_lines(log, on_line):
            finished = await sandbox.run_command(command)
            if finished.is_killed:  # not by what the command does, unless it happens again
                on_line("killed; once more")
                finished = await sandbox.run_command(replace(command, timeout_s=max(0.1, deadline - loop.time())))
        await in_thread(finished.raise_for_failure, command, f"[setup] {script}")
        if finished.exit_code != 0:
            raise _setup_error(script, finished, await in_thread(read_tail, log, FAILURE_TAIL_CHARS), timeout_s)


def _setup_error(script: str, finished: SandboxResult, output: str, timeout_s: float) -> SetupFailed:
    """Return the error for a setup command that failed, was too slow, wrote too much or was ended from outside: the
    reason, its last lines, and what to do about it."""
    failure = f"not finished after {timeout_s:g} s" if finished.timed_out else f"exit code {finished.exit_code}"
    failure = flood_reason() if finished.truncated else f"ended: {finished.over}" if finished.over else failure
    missing_program = missing_command(output) if finished.exit_code == 127 else ""
    fix = "run it in a fresh clone to see more, then correct [setup] commands in perdure.toml"
    if finished.timed_out:
        fix = 'make it faster, or set a longer time: [setup] timeout = "20m"'
    elif missing_program:
        fix = f"install {missing_program} on this host, or change [setup] commands in perdure.toml"
    return SetupFailed(f"setup failed: {failure}\n{last_lines(output)}".rstrip(), where=f"[setup] {script}", fix=fix)


def name_empty_submodules(workspace: Workspace) -> str:
    """Return one line that names the submodules at which no file is after setup; empty where there is none."""
    names = sorted(workspace.empty_submodules())
    return f"empty, for no [setup] command fills them: submodules {shorten(', '.join(names), 200)}" if names else ""


_STORED_FORMS = {
    "version https://git-lfs.github.com/spec/": "git-lfs pointers",
    "\0GITCRYPT\0": "git-crypt ciphertext",
}
"""Names for files as two well-known filters store them, by how these begin."""


def name_filtered_files(workspace: Workspace) -> str:
    """Return one line that names the files of the base which are pointers or ciphertext, because their filters do not
    run; all files of a filter that is not known here. Empty where there is none."""
    names: dict[str, list[str]] = {}
    running = configured_filters(workspace.vault.git)
    for path, name in filtered_paths(workspace.vault, workspace.record().base_sha).items():
        if name in running:
            continue
        beginning = read_beginning(workspace.path / path, 64)
        form = next((form for magic, form in _STORED_FORMS.items() if beginning.startswith(magic)), "")
        if form or name not in ("lfs", "git-crypt"):
            names.setdefault(form or f"what filter {name} stores", []).append(path)
    lines = (f"{form}, for filters are not run: {shorten(', '.join(paths), 120)}" for form, paths in names.items())
    return " · ".join(lines)


def ignore_dependencies(tree: Path) -> None:
    """Make git ignore everything in the directories setup fills, whatever the repository's own .gitignore says.

    Writes a .gitignore into each that has none.
    """
    for path in _find_dependencies(tree, _DEPTH):
        marker = path / ".gitignore"
        if not marker.exists() and not marker.is_symlink():
            marker.write_text("*\n")


def _find_dependencies(directory: Path, depth: int) -> Iterator[Path]:
    """Yield the paths of DEPENDENCIES directories (.venv, node_modules) down to this depth, following no link."""
    for path in directory.iterdir():
        if path.is_symlink() or path.name == ".git" or not path.is_dir():
            continue
        if path.name in DEPENDENCIES:
            yield path
        elif depth > 1:
            yield from _find_dependencies(path, depth - 1)


_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def copy_files(checkout: Path, tree: Path, names: Sequence[str]) -> None:
    """Copy the named files from the checkout to the same places in the tree, replacing files that are there.

    Modes and times are kept, but for set-user-id and its like. Nothing is copied unless all files can be.

    Raises SetupFailed for a name that is absolute, has `..`, is git's own, is no regular file, is not ignored by git in
    the checkout, or has a symbolic link on its way on either side. Each file is opened directory by directory: a link
    that somebody makes meanwhile is not followed either.
    """
    if not names:  # then there may be no checkout either
        return
    for name in names:
        _check_name(name)
        with _open_source(checkout, name), _open_target_directory(tree, name):
            pass
    stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
    ignored = foreign_git(checkout).execute("check-ignore", "-z", "--stdin", stdin=stdin, ok=(0, 1)).names
    for name in names:
        if name not in ignored:
            raise _copy_refusal(name, "is not ignored by git there: what is committed comes with the base branch")
    for name in names:
        with _open_source(checkout, name) as source, _open_target_directory(tree, name, make=True) as directory:
            _copy_file(source, directory, Path(name).name)


@contextmanager
def _open_source(checkout: Path, name: str) -> Iterator[int]:
    """Open a regular file of the checkout for reading while the block runs, and yield its descriptor.

    Raises SetupFailed where it is missing, is something else, or lies behind a symbolic link.
    """
    with _open_parent(checkout, name, make=False) as directory:
        if directory is None:
            raise _copy_refusal(name, f"does not exist in {checkout}")
        try:
            # Not blocking: opening a pipe would wait for whoever writes into it.
            file = os.open(
                Path(name).name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
            )
        except OSError as error:
            raise _copy_refusal(name, _error_reason(error, f"does not exist in {checkout}")) from None
    try:
        if not stat.S_ISREG(mode := os.fstat(file).st_mode):
            raise _copy_refusal(name, "is a directory" if stat.S_ISDIR(mode) else "is no file")
        yield file
    finally:
        os.close(file)


@contextmanager
def _open_target_directory(tree: Path, name: str, *, make: bool = False) -> Iterator[int | None]:
    """Open the directory that the copy goes into while the block runs, and yield its descriptor. With `make`, missing
    directories are made; else None is yielded where one is missing.

    Raises SetupFailed where a link or a directory has the file's name, or the way there leads over a link.
    """
    with _open_parent(tree, name, make=make) as directory:
        if directory is not None:
            with suppress(FileNotFoundError):
                status = os.stat(Path(name).name, dir_fd=directory, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    raise _copy_refusal(name, "is, or lies behind, a symbolic link or a directory in the repository")
        yield directory


@contextmanager
def _open_parent(root: Path, name: str, *, make: bool) -> Iterator[int | None]:
    """Open the directory that holds `name` below `root` while the block runs, following no link; yield its descriptor.

    make  directories that are missing are made; False: None is yielded where one is missing

    Raises SetupFailed where something on the way is no directory.
    """
    descriptor: int | None = os.open(root, _DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
    try:
        for part in Path(name).parent.parts:
            assert descriptor is not None
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            try:
                below: int | None = os.open(part, _DIRECTORY_FLAGS, dir_fd=descriptor)
            except FileNotFoundError:
                below = None
            except OSError as error:
                raise _copy_refusal(name, _error_reason(error, "cannot be reached")) from None
            os.close(descriptor)
            descriptor = below
            if descriptor is None:
                break
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _copy_file(source: int, directory: int | None, name: str) -> None:
    """Write the content of an open file under this name into an open directory, replacing a file of that name.

    Mode, without set-user-id and its like, and times are those of the source.
    """
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
    status = os.fstat(source)
    descriptor = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory
    )
    with open(descriptor, "wb") as target, open(source, "rb", closefd=False) as file:
        shutil.copyfileobj(file, target)
        os.fchmod(target.fileno(), status.st_mode & 0o777)
        target.flush()
        os.utime(target.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _check_name(name: str) -> None:
    """Raise SetupFailed for a name that is absolute, empty, has `..` or NUL, or is inside a `.git`."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise _copy_refusal(name, "is not a path inside the repository")
    if any(part.lower() == ".git" for part in path.parts):
        raise _copy_refusal(name, "belongs to git")


def _error_reason(error: OSError, otherwise: str) -> str:
    """Return, behind "it", why a file could not be opened; `otherwise` where it is neither a link nor a special
    file."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):  # a link where a directory was expected is "not a directory"
        return "is, or lies behind, a symbolic link"
    return "is no file" if error.errno == errno.ENXIO else otherwise


def _copy_refusal(name: str, reason: str) -> SetupFailed:
    """Return the error that a file cannot be copied. `reason`: the words behind "it"."""
    return SetupFailed(
        f"{name!r} cannot be copied: it {reason}", where="[setup] copy", fix="correct the list in perdure.toml"
    )
