"""The shape of a tool, the toolbox it works with, and the files it may touch: those of the worktree, never its `.git`,
nothing that leads out of it. Used by the other tools; the worker's session makes the toolbox.

File tools run outside the sandbox, so the path rules are the wall. No process of the agent that can write here lives
while one runs (background commands see the worktree read-only), so a path that was resolved stays what it is; the last
component is still opened without following links.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from perdure.adapters.agents.builtin.model_request import closed_schema
from perdure.adapters.agents.builtin.tools.background import BackgroundCommand
from perdure.adapters.sandbox.base import GitView, Sandbox, SandboxCommand
from perdure.adapters.system.threads import in_thread
from perdure.models.base import UserInputModel
from perdure.models.delivery.decisions import Question
from perdure.models.delivery.steps import STEPS
from perdure.models.limits import READ_FILE_BYTES
from perdure.models.phases import Step
from perdure.text import shorten

READ_ONLY_DIRECTORIES = (".venv", "node_modules")
"""Directories that setup installs, at any depth."""

_PATH_CHARS = 4096


class ToolError(Exception):
    """A mistake the model can mend: becomes a tool result with `is_error`, never an exception of the turn."""


def resolve_path(
    worktree: Path,
    requested: str,
    seen_root: Path | None = None,
    *,
    writing: bool = False,
    installed: Collection[str] = (),
) -> tuple[Path, str]:
    """Return the resolved path of what the model named, and its path relative to the worktree. The file need not exist.

    seen_root  where commands see the worktree, so what an absolute path may begin with; None: where it is
    writing    the file is to be written, which is refused for what setup installed
    installed  paths that setup made: read-only to commands, so to writing here, for other deliveries may run the same
               files

    Raises ToolError for a text that is no path, one that leads out of the worktree or into a `.git`, one that the
    system cannot look up, and with `writing` one below `installed` or READ_ONLY_DIRECTORIES.
    """
    if not requested or len(requested) > _PATH_CHARS or not requested.isprintable():
        raise ToolError("path must be 1 to 4096 printable characters")
    root = Path(os.path.realpath(worktree))
    path = Path(os.path.realpath(root / _relative_to_root((seen_root or worktree, root), requested)))
    if not path.is_relative_to(root):
        raise ToolError(f"{requested}: outside the repository; use paths relative to its root")
    relative = path.relative_to(root)
    if any(part.lower() == ".git" for part in relative.parts):
        raise ToolError(
            f"{requested}: .git is the engine's; commits are made for you, use `git log` or `git diff` in bash"
        )
    is_installed = any(part in READ_ONLY_DIRECTORIES for part in relative.parts) or any(
        map(relative.is_relative_to, installed)
    )
    if writing and is_installed:
        raise ToolError(f"{requested}: installed by setup and read-only")
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # may be about to be made
    except OSError as error:  # a name that is too long, a directory that nobody may enter
        raise ToolError(f"{shorten(requested, 200)}: {error.strerror}") from None
    return path, relative.as_posix()


def _relative_to_root(roots: tuple[Path, ...], requested: str) -> str:
    """Return an absolute path below one of the worktree's names relative to that name; any other path as it is."""
    for root in roots:
        if Path(requested).is_relative_to(root):
            return os.path.relpath(requested, root)
    return requested


def read_bytes(path: Path, shown_path: str) -> bytes:
    """Return the bytes of a regular file. Raises ToolError, with what to do instead, when there is no such file, it is
    a link, a directory or a special file, is larger than READ_FILE_BYTES, or cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                raise ToolError(f"{shown_path}: a directory; list it with glob")
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(f"{shown_path}: not a regular file")
            if status.st_size > READ_FILE_BYTES:
                raise ToolError(
                    f"{shown_path}: {status.st_size} bytes; look at parts of it with grep, or sed -n in bash"
                )
            with open(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise ToolError(f"{shown_path}: no such file{_similar_names_hint(path)}") from None
    except OSError as error:
        raise ToolError(f"{shown_path}: {error.strerror}") from None


def write_bytes(path: Path, data: bytes, shown_path: str) -> None:
    """Replace or create a regular file and the directories above it; an existing one keeps its mode. Raises ToolError
    when it is a link or no regular file, or cannot be written.

    It is written in place: what is half written when the process dies is undone with the turn.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, flags, 0o644)
        with open(fd, "wb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ToolError(f"{shown_path}: not a regular file")
            file.truncate(0)
            file.write(data)
    except OSError as error:
        raise ToolError(f"{shown_path}: {error.strerror}") from None


def content_version(data: bytes) -> str:
    """Return a short hash that names a file's content between reading and editing it."""
    return hashlib.sha256(data).hexdigest()[:12]


def has_nul_byte(data: bytes) -> bool:
    """Return whether the first 8 KiB hold a NUL byte, as in binary files."""
    return b"\0" in data[:8192]


def _similar_names_hint(path: Path) -> str:
    """Return a question that names up to three files of similar name in the same directory; empty: there are none."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return ""
    similar = difflib.get_close_matches(path.name, names, n=3)
    return f"; did you mean {', '.join(similar)}?" if similar else ""


def _nothing() -> None: ...


def _no_hint(output: str, exit_code: int | None) -> str | None:
    return None


@dataclass
class Toolbox:
    """The place, the sandbox and the memory that the tools of one turn work with.

    worktree         the only directory they touch
    inside           where commands see it, and so what the model calls it; None: where it is
    log_dir          where whole outputs of commands are kept, one file a call
    read_files       version of every file the conversation has read or written, by relative path: see
                     conversation.known_file_versions; tools add to it
    check            called before every tool; raises Superseded when this attempt has lost the worktree
    on_spawn         called once a sandboxed command has been started
    git_dir, env, lock, writable, shared   as in perdure.adapters.sandbox.base.SandboxCommand
    explain_missing  says why a command was not found inside the sandbox, from its output and exit code; None: no reason
    background       commands that run on between the calls of one reply, by their handle
    questions        whether a person may be asked; question, assumptions: what a tool asked, or assumed instead
    """

    worktree: Path
    sandbox: Sandbox
    log_dir: Path
    check: Callable[[], None]
    inside: Path | None = None
    read_files: dict[str, str] = field(default_factory=dict)
    on_spawn: Callable[[], None] = _nothing
    git_dir: Path | GitView | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    lock: Path | None = None
    writable: bool = True
    shared: tuple[str, ...] = ()
    explain_missing: Callable[[str, int | None], str | None] = _no_hint
    background: dict[str, BackgroundCommand] = field(default_factory=dict)
    questions: bool = True
    question: Question | None = None
    assumptions: list[str] = field(default_factory=list)

    def make_command(
        self, script: str, output: Path, timeout_s: float, *, writable: bool = False, shown: tuple[Path, ...] = ()
    ) -> SandboxCommand:
        """Return a command that runs a script at the top of the worktree. `output`: the file for its output; `shown`:
        more paths of the host that it can read."""
        return SandboxCommand(
            script=script,
            worktree=self.worktree,
            inside=self.inside,
            output=output,
            timeout_s=timeout_s,
            git_dir=self.git_dir,
            shared=self.shared,
            writable=writable,
            env=self.env,
            lock=self.lock,
            visible_paths=shown,
            fence=self.check,
        )


@dataclass(frozen=True)
class ToolCall:
    """A tool call: `id` as the API gave it, `step` it was made in."""

    id: str
    step: Step
    box: Toolbox

    @property
    def writable(self) -> bool:
        """Return whether commands of this call may write to the worktree."""
        return self.box.writable and STEPS[self.step].writes


I = TypeVar("I", bound=UserInputModel)  # noqa: E741  the input of a tool


@dataclass(frozen=True)
class AgentTool(Generic[I]):
    """A tool of the agent. `handler` gets a validated input and returns the text of the result; a ToolError of it is
    the model's to mend."""

    name: str
    description: str
    input_type: type[I]
    handler: Callable[[I, ToolCall], Awaitable[str]]

    def definition(self) -> dict[str, Any]:
        """Return the tool's definition as the Messages API takes it."""
        return {"name": self.name, "description": self.description, "input_schema": closed_schema(self.input_type)}

    async def call(self, raw_input: object, call: ToolCall) -> str:
        """Validate the input of a call, run the tool, and return the text of its result. Raises ToolError when
        `raw_input` is not an input of this tool, and whatever the tool raises."""
        try:
            arguments = self.input_type.model_validate(raw_input)
        except ValidationError as error:
            raise ToolError(f"{self.name} was called wrongly: {describe_problems(error)}") from None
        return await self.handler(arguments, call)


def run_in_threads(work: Callable[[I, ToolCall], str]) -> Callable[[I, ToolCall], Awaitable[str]]:
    """Return an async function that runs `work`, which blocks, in a thread."""
    return lambda arguments, call: in_thread(work, arguments, call)


def describe_problems(error: ValidationError, limit: int = 5) -> str:
    """Return the first few problems of a validation error on one line, each with its field; no values: they may be
    long."""
    errors = error.errors(include_input=False, include_url=False)
    lines = [f"{'.'.join(str(p) for p in e['loc']) or 'input'}: {e['msg']}" for e in errors[:limit]]
    return "; ".join([*lines, f"and {len(errors) - limit} more"] if len(errors) > limit else lines)
