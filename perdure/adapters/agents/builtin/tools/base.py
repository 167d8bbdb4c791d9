"""The shape of a tool, and the toolbox it works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from perdure.adapters.agents.builtin.schema import closed
from perdure.adapters.agents.builtin.tools.paths import ToolError
from perdure.adapters.sandbox.base import Command, GitView, Sandbox
from perdure.adapters.system.threads import in_thread
from perdure.models.base import Written
from perdure.models.decisions import Question
from perdure.models.phases import Step
from perdure.models.steps import STEPS

if TYPE_CHECKING:
    from perdure.adapters.agents.builtin.tools.background import Background


def _nothing() -> None: ...


def _no_hint(output: str, exit_code: int | None) -> str | None:
    return None


@dataclass
class Toolbox:
    """The place, the sandbox and the memory that the tools of one turn work with.

    worktree    the only directory they touch
    inside      where commands see it, and so what the model calls it; None: where it is
    log_dir     where whole outputs of commands are kept, one file a call
    read_files  version of every file the conversation has read or written, by relative path: see
                conversation.toolbox_memory; tools add to it
    check       called before every tool; raises Superseded when this attempt has lost the worktree
    on_spawn    called once a sandboxed command has been started
    git_dir, env, lock, writable, shared   as in perdure.adapters.sandbox.base.Command
    missing     says why a command was not found inside the sandbox, from its output and exit code
    background  commands that run on between the calls of one reply, by their handle
    questions   whether a person may be asked; question, assumed: what a tool asked, or assumed instead
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
    missing: Callable[[str, int | None], str | None] = _no_hint
    background: dict[str, Background] = field(default_factory=dict)
    questions: bool = True
    question: Question | None = None
    assumed: list[str] = field(default_factory=list)

    def command(
        self, script: str, output: Path, timeout_s: float, *, writable: bool = False, shown: tuple[Path, ...] = ()
    ) -> Command:
        """A command at the top of the worktree."""
        return Command(
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
            shown=shown,
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
        return self.box.writable and STEPS[self.step].writes


I = TypeVar("I", bound=Written)  # noqa: E741  the input of a tool


@dataclass(frozen=True)
class Tool(Generic[I]):
    """`run` gets a validated input and returns the text of the result; ToolError is the model's to mend."""

    name: str
    description: str
    input: type[I]
    run: Callable[[I, ToolCall], Awaitable[str]]

    def definition(self) -> dict[str, Any]:
        """As the Messages API takes it."""
        return {"name": self.name, "description": self.description, "input_schema": closed(self.input)}

    async def call(self, raw: object, call: ToolCall) -> str:
        """ToolError when `raw` is not an input of this tool."""
        try:
            given = self.input.model_validate(raw)
        except ValidationError as error:
            raise ToolError(f"{self.name} was called wrongly: {problems(error)}") from None
        return await self.run(given, call)


def threaded(work: Callable[[I, ToolCall], str]) -> Callable[[I, ToolCall], Awaitable[str]]:
    """The same, for a tool whose work blocks."""
    return lambda given, call: in_thread(work, given, call)


def problems(error: ValidationError, most: int = 5) -> str:
    """The first few problems of a validation error on one line, each with its field; no values: they may be long."""
    found = error.errors(include_input=False, include_url=False)
    lines = [f"{'.'.join(str(p) for p in e['loc']) or 'input'}: {e['msg']}" for e in found[:most]]
    return "; ".join([*lines, f"and {len(found) - most} more"] if len(found) > most else lines)
