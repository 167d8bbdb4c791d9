"""The shape of a tool, and the toolbox it works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from perdure.adapters.agents.builtin.schema import closed_schema
from perdure.adapters.agents.builtin.tools.paths import ToolError
from perdure.adapters.sandbox.base import GitView, Sandbox, SandboxCommand
from perdure.adapters.system.threads import in_thread
from perdure.models.base import UserInputModel
from perdure.models.decisions import Question
from perdure.models.phases import Step
from perdure.models.steps import STEPS

if TYPE_CHECKING:
    from perdure.adapters.agents.builtin.tools.background import BackgroundCommand


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
    git_dir, env, lock, writable, shared   as in perdure.adapters.sandbox.base.Command
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
    """One tool call: `id` as the API gave it, `step` it was made in."""

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
        `raw_input` is not an input of this tool, and as the tool does."""
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
