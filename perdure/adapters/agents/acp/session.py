"""A session with an agent over the Agent Client Protocol, for the worker that runs such an agent: open or resume it,
send one prompt, cancel it, each with a deadline; and the client that the agent sees: it offers no files and no
terminal, answers permission requests by a policy, and collects the agent's last text."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, text_block
from acp.interfaces import Client
from acp.schema import (
    AgentMessageChunk,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    InitializeResponse,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallStart,
    ToolCallUpdate,
)

import perdure
from perdure.adapters.agents.acp.transport import AcpTransport
from perdure.models.errors import AgentFailed
from perdure.text import shorten

TEXT_CHARS = 1_000_000
"""The most characters kept of the text with which an agent ends; an answer that is longer is none."""

CHANGES = ("edit", "delete", "move")
"""Kinds of tools that are refused in a step that may only read; its worktree cannot be changed anyway."""

_ALLOW, _REJECT = ("allow_once", "allow_always"), ("reject_once", "reject_always")


@dataclass
class PermissionPolicy:
    """The client of the protocol, as the ACP library calls it: answers permission requests and collects the agent's
    text.

    All is allowed but changes in a step that only reads, because the sandbox holds the agent.

    read_only         the step may only read
    allowed, refused  how many permissions were given and not
    updates           how many updates of the session came; tools: how many tool calls began
    text              what the agent has said since the last tool call
    """

    read_only: bool = False
    allowed: int = 0
    refused: int = 0
    updates: int = 0
    tools: int = 0
    _text_parts: list[str] = field(default_factory=list)
    _chars: int = 0

    @property
    def text(self) -> str:
        """Return what the agent has said since the prompt or its last tool call began."""
        return "".join(self._text_parts).strip()

    def clear_text(self) -> None:
        """Forget the text collected so far, because a prompt or a tool call begins."""
        self._text_parts, self._chars = [], 0

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: Sequence[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        """Answer the agent's request for a permission, and count the answer. Changes of files are refused in a
        read-only step, all else is allowed. Where the agent offers no option for the answer, the reply is "cancelled"
        and counts as refused."""
        is_allowed = not (self.read_only and tool_call.kind in CHANGES)
        option_id = choose_option(options, _ALLOW if is_allowed else _REJECT)
        if is_allowed and option_id is not None:
            self.allowed += 1
        else:
            self.refused += 1
        if option_id is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option_id))

    async def session_update(self, session_id: str, update: object, **_: Any) -> None:
        """Count an update of the session. The start of a tool call is counted and clears the collected text; a text
        message is added to it, up to TEXT_CHARS; nothing else is kept."""
        self.updates += 1
        if isinstance(update, ToolCallStart):
            self.tools += 1
            self.clear_text()
        if isinstance(update, AgentMessageChunk) and isinstance(update.content, TextContentBlock):
            remaining_chars = TEXT_CHARS - self._chars
            if remaining_chars > 0:
                self._text_parts.append(update.content.text[:remaining_chars])
                self._chars += len(self._text_parts[-1])


def choose_option(options: Sequence[PermissionOption], kinds: Sequence[str]) -> str | None:
    """Return the id of an offered option of the first of these kinds that is offered; None when none is.

    Of several options of one kind the first whose id contains "once" is taken, or else the first: another one may
    switch a mode for good (Qwen Code has two).
    """
    for kind in kinds:
        option_ids = [str(option.option_id) for option in options if option.kind == kind]
        if option_ids:
            return next((id for id in option_ids if "once" in id.lower()), option_ids[0])
    return None


BEGIN_S = 120.0
"""The time an agent has for its first answer, and for a session: 33 s were seen, of one that installs something
first."""

CANCEL_S = 5.0
"""The time a prompt has to end after it was cancelled; 0.05 s were seen, and one that never did."""

T = TypeVar("T")


class AgentRefusal(AgentFailed):
    """The agent answered with an error of the protocol, and lives on."""


@dataclass(frozen=True)
class PromptEnd:
    """The end of a prompt.

    reason            "end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"
    text              what the agent said after its last tool call
    allowed, refused  how many permissions it asked for in this process were given and not
    foreign_lines     how many lines it printed that were no message
    """

    reason: str
    text: str
    allowed: int
    refused: int
    foreign_lines: int


class AcpSession:
    """A session over the transport to one agent process, used as a context manager. The caller ends the process.

    Every method raises AgentFailed where the agent ends, prints something else, answers with an error, or not in time.

    resumed  whether the session goes on from an earlier one
    """

    def __init__(self, transport: AcpTransport, policy: PermissionPolicy | None = None) -> None:
        self._transport, self.policy = transport, policy or PermissionPolicy()
        # The policy has only methods for the capabilities that we declare: the library answers any other with "not
        # found".
        self._connection = connect_to_agent(cast(Client, self.policy), transport)
        self._agent_info = InitializeResponse(protocol_version=PROTOCOL_VERSION)
        self._session_id, self.resumed = "", False
        self._prompt_task: asyncio.Task[PromptEnd] | None = None

    async def __aenter__(self) -> AcpSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel a prompt that still runs, and close the connection within CANCEL_S; errors of both are swallowed. The
        agent's process is not ended."""
        if self._prompt_task is not None and not self._prompt_task.done():
            self._prompt_task.cancel()
            await asyncio.gather(self._prompt_task, return_exceptions=True)
        with contextlib.suppress(OSError, ConnectionError, TimeoutError):
            async with asyncio.timeout(CANCEL_S):
                await self._connection.close()

    async def open_session(self, cwd: str, session_id: str = "", within_s: float = BEGIN_S) -> str:
        """Initialize the connection, open a session in directory `cwd`, and return its id; each answer may take
        `within_s` seconds.

        With a `session_id`, whose files were put back before, that session is resumed; where the agent cannot do so a
        new one is made, and `resumed` is false. Raises AgentFailed when the agent speaks another version of the
        protocol, ends, answers with an error or not in time.
        """
        our_capabilities = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
        )
        client_info = Implementation(name="perdure", version=perdure.__version__)
        self._agent_info = await self._await_answer(
            self._connection.initialize(
                PROTOCOL_VERSION, client_capabilities=our_capabilities, client_info=client_info
            ),
            "initialize",
            within_s,
        )
        if self._agent_info.protocol_version != PROTOCOL_VERSION:
            their_version = self._agent_info.protocol_version
            raise AgentFailed(
                f"the agent speaks version {their_version} of the Agent Client Protocol, not {PROTOCOL_VERSION}"
            )
        self.resumed = bool(session_id) and await self._resume_session(cwd, session_id, within_s)
        if self.resumed:
            self._session_id = session_id
        else:
            response = await self._await_answer(
                self._connection.new_session(cwd=cwd, mcp_servers=[]), "session/new", within_s
            )
            self._session_id = response.session_id
        return self._session_id

    async def _resume_session(self, cwd: str, session_id: str, within_s: float) -> bool:
        """Ask the agent to resume the session, or to load it where it can only do that, and return whether it did.
        False where it can do neither, or answers with an error. Raises AgentFailed when it ends, or does not answer
        within `within_s` seconds."""
        capabilities = self._agent_info.agent_capabilities
        with contextlib.suppress(AgentRefusal):
            if (
                capabilities is not None
                and capabilities.session_capabilities is not None
                and capabilities.session_capabilities.resume is not None
            ):
                resume_request = self._connection.resume_session(cwd=cwd, session_id=session_id, mcp_servers=[])
                await self._await_answer(resume_request, "session/resume", within_s)
                return True
            if capabilities is not None and capabilities.load_session:
                load_request = self._connection.load_session(cwd=cwd, session_id=session_id, mcp_servers=[])
                await self._await_answer(load_request, "session/load", within_s)
                return True
        return False

    async def send_prompt(self, text: str, within_s: float) -> PromptEnd:
        """Send a prompt, wait until the agent has ended it, and return how it ended. Clears the text collected before.

        When the calling task is cancelled the prompt is cancelled as well, and the agent gets CANCEL_S to end it.
        Raises AgentFailed when the agent ends, answers with an error, or not within `within_s` seconds.
        """
        self.policy.clear_text()
        self._prompt_task = asyncio.create_task(self._run_prompt(text, within_s))
        try:
            return await asyncio.shield(self._prompt_task)
        except asyncio.CancelledError:
            with contextlib.suppress(AgentFailed):
                await self.cancel_prompt()
            raise

    async def cancel_prompt(self) -> PromptEnd | None:
        """Ask the agent to end its prompt, for a hold, and return the end that it reports; None when no prompt is
        running. Raises AgentFailed when the prompt fails, or has not ended within CANCEL_S: the caller has to end the
        process then."""
        if self._prompt_task is None or self._prompt_task.done():
            return None
        await self._await_answer(self._connection.cancel(session_id=self._session_id), "session/cancel", CANCEL_S)
        done, _ = await asyncio.wait({self._prompt_task}, timeout=CANCEL_S)
        if not done:
            raise AgentFailed(f"the agent has not ended its prompt within {CANCEL_S:g} s of being cancelled")
        return self._prompt_task.result()

    async def _run_prompt(self, text: str, within_s: float) -> PromptEnd:
        """Send the prompt, wait for the agent's answer, and return how it ended, with the text and counts of the
        policy. Raises AgentFailed when the agent ends, answers with an error, or not within `within_s` seconds."""
        request = self._connection.prompt(session_id=self._session_id, prompt=[text_block(text)])
        response = await self._await_answer(request, "session/prompt", within_s)
        policy = self.policy
        return PromptEnd(
            response.stop_reason, policy.text, policy.allowed, policy.refused, self._transport.foreign_count
        )

    async def _await_answer(self, request: Awaitable[T], method: str, within_s: float) -> T:
        """Wait up to `within_s` seconds for the agent's answer to a request, and return it.

        `method` names the request in errors. Raises AgentRefusal for an error of the protocol, else AgentFailed: no
        answer in time, the agent has ended (the transport's `failure` where there is one), or an answer that is not of
        the protocol.
        """
        try:
            async with asyncio.timeout(within_s):
                return await request
        except TimeoutError:
            raise AgentFailed(
                f"the agent has not answered {method} within {within_s:g} s{self._foreign_line_hint()}"
            ) from None
        except RequestError as error:
            raise AgentRefusal(f"the agent answers {method} with an error: {shorten(str(error), 200)}") from None
        except (OSError, ConnectionError):
            ended = AgentFailed(f"the agent has ended before it answered {method}{self._foreign_line_hint()}")
            raise (self._transport.failure or ended) from None
        except ValueError:  # pydantic's ValidationError is one
            raise AgentFailed(f"the agent's answer to {method} is not one of the protocol") from None

    def _foreign_line_hint(self) -> str:
        """Return the end of an error's text, which quotes the first line that was no message; empty: there was none."""
        line = self._transport.first_foreign_line
        return f"; it printed {line!r}" if line else ""
