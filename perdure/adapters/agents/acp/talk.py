"""One conversation with an agent of the protocol: begin or go on, one prompt, cancel; a deadline for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar, cast

from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, text_block
from acp.interfaces import Client
from acp.schema import ClientCapabilities, FileSystemCapabilities, Implementation, InitializeResponse

import perdure
from perdure.adapters.agents.acp.lines import Lines
from perdure.adapters.agents.acp.policy import Policy
from perdure.models.errors import AgentFailed

BEGIN_S = 120.0
"""For the first answer, and for a session: 33 s were seen, of one that installs something first."""

CANCEL_S = 5.0
"""For a prompt to end after it was cancelled; 0.05 s were seen, and one that never did."""

T = TypeVar("T")


class AgentRefuses(AgentFailed):
    """The agent answers with an error of the protocol, and lives on."""


@dataclass(frozen=True)
class PromptEnd:
    """The end of a prompt.

    reason   "end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"
    text     the last words of the agent, after its last tool
    allowed, refused  permissions it asked for, in this process
    foreign  lines it printed that were no message
    """

    reason: str
    text: str
    allowed: int
    refused: int
    foreign: int


class Talk:
    """Over the lines of one process; use as a context manager. Ending the process is the caller's.

    Every method raises AgentFailed where the agent ends, prints something else, answers with an error, or not in time.
    """

    def __init__(self, lines: Lines, policy: Policy | None = None) -> None:
        self._lines, self.policy = lines, policy or Policy()
        # It has no more methods than the capabilities that are declared: any other is "not found".
        self._connection = connect_to_agent(cast(Client, self.policy), lines)
        self._can = InitializeResponse(protocol_version=PROTOCOL_VERSION)
        self._session, self.resumed = "", False
        self._asked: asyncio.Task[PromptEnd] | None = None

    async def __aenter__(self) -> Talk:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.cancel()
            await asyncio.gather(self._asked, return_exceptions=True)
        with contextlib.suppress(OSError, ConnectionError, TimeoutError):
            async with asyncio.timeout(CANCEL_S):
                await self._connection.close()

    async def begin(self, cwd: str, session: str = "", within_s: float = BEGIN_S) -> str:
        """A new session, or one whose files were put back, in that directory; its id. A new one, too, where the agent
        cannot go on with the other: `resumed` tells."""
        ours = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
        )
        who = Implementation(name="perdure", version=perdure.__version__)
        self._can = await self._answer(
            self._connection.initialize(PROTOCOL_VERSION, client_capabilities=ours, client_info=who),
            "initialize",
            within_s,
        )
        if self._can.protocol_version != PROTOCOL_VERSION:
            spoken = self._can.protocol_version
            raise AgentFailed(f"the agent speaks version {spoken} of the Agent Client Protocol, not {PROTOCOL_VERSION}")
        self.resumed = bool(session) and await self._gone_on(cwd, session, within_s)
        if self.resumed:
            self._session = session
        else:
            made = await self._answer(self._connection.new_session(cwd=cwd, mcp_servers=[]), "session/new", within_s)
            self._session = made.session_id
        return self._session

    async def _gone_on(self, cwd: str, session: str, within_s: float) -> bool:
        can = self._can.agent_capabilities
        with contextlib.suppress(AgentRefuses):
            if can is not None and can.session_capabilities is not None and can.session_capabilities.resume is not None:
                resumed = self._connection.resume_session(cwd=cwd, session_id=session, mcp_servers=[])
                await self._answer(resumed, "session/resume", within_s)
                return True
            if can is not None and can.load_session:
                loaded = self._connection.load_session(cwd=cwd, session_id=session, mcp_servers=[])
                await self._answer(loaded, "session/load", within_s)
                return True
        return False

    async def prompt(self, text: str, within_s: float) -> PromptEnd:
        """One prompt to its end. Cancelling the task cancels the prompt as well; the agent gets time to end it."""
        self.policy.begin()
        self._asked = asyncio.create_task(self._prompted(text, within_s))
        try:
            return await asyncio.shield(self._asked)
        except asyncio.CancelledError:
            with contextlib.suppress(AgentFailed):
                await self.cancel()
            raise

    async def cancel(self) -> PromptEnd | None:
        """Ask the agent to end its prompt, for a hold; the end it says, None where there is no prompt. AgentFailed: it
        does not end, and its process has to."""
        if self._asked is None or self._asked.done():
            return None
        await self._answer(self._connection.cancel(session_id=self._session), "session/cancel", CANCEL_S)
        done, _ = await asyncio.wait({self._asked}, timeout=CANCEL_S)
        if not done:
            raise AgentFailed(f"the agent has not ended its prompt within {CANCEL_S:g} s of being cancelled")
        return self._asked.result()

    async def _prompted(self, text: str, within_s: float) -> PromptEnd:
        asked = self._connection.prompt(session_id=self._session, prompt=[text_block(text)])
        answer = await self._answer(asked, "session/prompt", within_s)
        policy = self.policy
        return PromptEnd(answer.stop_reason, policy.text, policy.allowed, policy.refused, self._lines.foreign)

    async def _answer(self, asked: Awaitable[T], method: str, within_s: float) -> T:
        try:
            async with asyncio.timeout(within_s):
                return await asked
        except TimeoutError:
            raise AgentFailed(f"the agent has not answered {method} within {within_s:g} s{self._seen()}") from None
        except RequestError as error:
            raise AgentRefuses(f"the agent answers {method} with an error: {str(error)[:200]}") from None
        except (OSError, ConnectionError):
            ended = AgentFailed(f"the agent has ended before it answered {method}{self._seen()}")
            raise (self._lines.failure or ended) from None
        except ValueError:  # pydantic's ValidationError is one
            raise AgentFailed(f"the agent's answer to {method} is not one of the protocol") from None

    def _seen(self) -> str:
        first = self._lines.first
        return f"; it printed {first!r}" if first else ""
