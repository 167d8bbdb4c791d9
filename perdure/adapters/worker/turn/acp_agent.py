"""The process of an agent that is spoken to by the Agent Client Protocol, over as many turns as it lives: the variant
of `AgentProcess` whose prompt and end are messages of the protocol. `cli_agent` loads it where such an agent runs."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from perdure.adapters.agents.acp.session import BEGIN_S, CANCEL_S, AcpSession, PermissionPolicy
from perdure.adapters.agents.acp.transport import AgentSocket, open_agent_socket
from perdure.adapters.agents.cli_process import AgentClaim, AgentStartRequest, pack_session_files
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.process import AGENT_ENDS_S, AGENT_LIFE_S, SESSION_WRITTEN_S, AgentProcess
from perdure.adapters.worker.turn.request_gate import GatedTurn
from perdure.models.errors import AgentFailed, WorkspaceLost

_QUIET_S = 0.3
"""Seconds without a change after which its session files hold what it has asked with. The protocol says nothing of
them."""


class AcpAgentProcess(AgentProcess):
    """An agent of the Agent Client Protocol, in the same sandbox, with the same proxy and session files as any; its one
    prompt and how that ended are messages, instead of arguments and output.

    Such an agent lives on after a prompt: it is ended then. Files, terminals and permissions: see
    perdure.adapters.agents.acp.
    """

    _conversation: asyncio.Task[AgentClaim] | None = None
    _policy = PermissionPolicy()

    def permissions(self) -> dict[str, str]:
        """Return how many permissions it asked for in this process and was given or not, as texts."""
        return {"allowed": str(self._policy.allowed), "refused": str(self._policy.refused)}

    async def _open_connection(
        self, session: WorkspaceSession, start_request: AgentStartRequest, sockets: Path
    ) -> Path | None:
        """Open the socket to which the agent will connect, start a task that holds the conversation with it, and return
        the socket's path. The permissions of a step that may not write are those of a read-only one."""
        connection = await self._stack.enter_async_context(open_agent_socket(sockets / "agent"))
        self._policy = PermissionPolicy(read_only=not start_request.writes)
        cwd = session.inside or session.workspace.path
        self._conversation = asyncio.create_task(self._hold_conversation(connection, start_request, str(cwd)))
        return connection.socket

    async def _hold_conversation(
        self, connection: AgentSocket, start_request: AgentStartRequest, cwd: str
    ) -> AgentClaim:
        """Wait for the agent to connect, begin or resume its session, keep its id in `session`, send the prompt, and
        return how it ended; then cancel the task of the process. Where a session should be resumed and cannot, a new
        one gets the `restart_prompt`. An AgentFailed is returned as an end that is not well."""
        try:
            lines = await connection.wait_for_transport(BEGIN_S)
            async with AcpSession(lines, self._policy) as talk:
                session = start_request.resumed and self.preset.abilities.resume
                self.session = await talk.open_session(cwd, start_request.session if session else "")
                starts_again = start_request.resumed and not talk.resumed
                end = await talk.send_prompt(
                    start_request.restart_prompt if starts_again else start_request.prompt, AGENT_LIFE_S
                )
            well = end.reason == "end_turn"
            error = "" if well else f"its prompt ended with {end.reason.replace('_', ' ')}"
            return AgentClaim(ended=True, well=well, text=end.text, session=self.session, error=error)
        except AgentFailed as error:
            if self._run_task is not None:  # it may have been ended from outside: its process tells
                await asyncio.wait({self._run_task}, timeout=AGENT_ENDS_S)
            return AgentClaim(ended=True, well=False, session=self.session, error=error.what)
        finally:
            if self._run_task is not None:
                self._run_task.cancel()

    async def read_claim(self) -> AgentClaim:
        """Return how its prompt ended, or that it goes on (`ended` false) while process and conversation do. Where the
        process has ended, wait up to CANCEL_S for the conversation to notice that."""
        conversation, goes_on = self._conversation, AgentClaim(ended=False, well=False, session=self.session)
        if conversation is None or (self.is_running and not conversation.done()):
            return goes_on
        await asyncio.wait({conversation}, timeout=CANCEL_S)  # its process has ended: that is being noticed
        return conversation.result() if conversation.done() and not conversation.cancelled() else goes_on

    async def _end_process(self) -> None:
        """Cancel its prompt, so that it may write down where it stands, then end the process."""
        if self._conversation is not None and not self._conversation.done():
            self._conversation.cancel()
            await asyncio.gather(self._conversation, return_exceptions=True)
        await super()._end_process()

    async def _wait_until_saved(self, turn: GatedTurn) -> None:
        """Wait until its session files have not changed for _QUIET_S, at most SESSION_WRITTEN_S. Files that are too
        large end the wait without an error, which packing them raises later."""
        deadline, last_files, unchanged_since = time.monotonic() + SESSION_WRITTEN_S, b"", time.monotonic()
        while time.monotonic() < deadline:
            try:
                files = await in_thread(pack_session_files, self._home, self.preset.sessions)
            except WorkspaceLost:
                return  # too large: that is said where it is kept
            if files != last_files:
                last_files, unchanged_since = files, time.monotonic()
            elif time.monotonic() - unchanged_since >= _QUIET_S:
                return
            await asyncio.sleep(_QUIET_S / 3)
