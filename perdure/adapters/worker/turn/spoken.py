"""An agent that is spoken to by the Agent Client Protocol, over as many turns as it lives."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from perdure.adapters.agents.acp.lines import Plug, plug
from perdure.adapters.agents.acp.policy import Policy
from perdure.adapters.agents.acp.talk import BEGIN_S, CANCEL_S, Talk
from perdure.adapters.agents.cli.launch import Asking
from perdure.adapters.agents.cli.memory import gather
from perdure.adapters.agents.cli.output import AgentSaid
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.held import Turn
from perdure.adapters.worker.turn.process import AGENT_ENDS_S, AGENT_LIFE_S, SESSION_WRITTEN_S, AgentProcess
from perdure.models.errors import AgentFailed, WorkspaceLost

_QUIET_S = 0.3
"""Of its session files, unchanged for so long: they hold what it has asked with. The protocol says nothing of them."""


class SpokenAgent(AgentProcess):
    """The same sandbox, proxy and session files; its one prompt and the end of that are messages, not words and output.

    An agent of the protocol lives on after a prompt: it is ended then. Files, terminals and permissions: see policy.py.
    """

    _talking: asyncio.Task[AgentSaid] | None = None
    _policy = Policy()

    def permissions(self) -> dict[str, str]:
        return {"allowed": str(self._policy.allowed), "refused": str(self._policy.refused)}

    async def _plugged(self, session: WorkspaceSession, asking: Asking, sockets: Path) -> Path | None:
        plugged = await self._stack.enter_async_context(plug(sockets / "agent"))
        self._policy = Policy(reads=not asking.writes)
        cwd = session.inside or session.workspace.path
        self._talking = asyncio.create_task(self._talk(plugged, asking, str(cwd)))
        return plugged.socket

    async def _talk(self, plugged: Plug, asking: Asking, cwd: str) -> AgentSaid:
        """The whole conversation; what goes wrong in it is what the agent has said in the end."""
        try:
            lines = await plugged.lines(BEGIN_S)
            async with Talk(lines, self._policy) as talk:
                resumes = asking.resumed and self.preset.abilities.resume
                self.session = await talk.begin(cwd, asking.session if resumes else "")
                anew = asking.resumed and not talk.resumed
                end = await talk.prompt(asking.anew if anew else asking.prompt, AGENT_LIFE_S)
            well = end.reason == "end_turn"
            error = "" if well else f"its prompt ended with {end.reason.replace('_', ' ')}"
            return AgentSaid(ended=True, well=well, text=end.text, session=self.session, error=error)
        except AgentFailed as error:
            if self._running is not None:  # it may have been ended from outside: its process tells
                await asyncio.wait({self._running}, timeout=AGENT_ENDS_S)
            return AgentSaid(ended=True, well=False, session=self.session, error=error.what)
        finally:
            if self._running is not None:
                self._running.cancel()

    async def said(self) -> AgentSaid:
        """The end of its prompt; until then, that it goes on."""
        talking, goes_on = self._talking, AgentSaid(ended=False, well=False, session=self.session)
        if talking is None or (self.runs and not talking.done()):
            return goes_on
        await asyncio.wait({talking}, timeout=CANCEL_S)  # its process has ended: that is being noticed
        return talking.result() if talking.done() and not talking.cancelled() else goes_on

    async def _end(self) -> None:
        """Its prompt is cancelled first: it may write down where it stands."""
        if self._talking is not None and not self._talking.done():
            self._talking.cancel()
            await asyncio.gather(self._talking, return_exceptions=True)
        await super()._end()

    async def _written(self, turn: Turn) -> None:
        """Its session files have been quiet for a moment."""
        until, before, since = time.monotonic() + SESSION_WRITTEN_S, b"", time.monotonic()
        while time.monotonic() < until:
            try:
                now = await in_thread(gather, self._home, self.preset.sessions)
            except WorkspaceLost:
                return  # too large: that is said where it is kept
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since >= _QUIET_S:
                return
            await asyncio.sleep(_QUIET_S / 3)
