"""A turn of an agent with a command line of its own: one request let through, its tools, and the checkpoint of both.

The agent is begun for each turn, with the memory of the checkpoint, and ended when it asks for the next one: the tree
and the session are then exactly those after this turn's tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.adapters.agents.builtin.answers import read_answer, schema_for, written_summary
from perdure.adapters.agents.builtin.opening import roles_of, system_prompt
from perdure.adapters.agents.builtin.places import Change
from perdure.adapters.agents.builtin.promised import Promised
from perdure.adapters.agents.builtin.said import heard
from perdure.adapters.agents.cli.launch import Asking, command, furnish
from perdure.adapters.agents.cli.memory import gather, holds, put_back
from perdure.adapters.agents.cli.output import AGENT_OUTPUT_BYTES, AgentSaid, understood
from perdure.adapters.agents.presets import read_preset
from perdure.adapters.agents.proxied.proxy import Proxy
from perdure.adapters.agents.proxied.upstream import VARIABLES, Upstream
from perdure.adapters.agents.proxied.wires import WIRES
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.sandbox.base import Command, Finished
from perdure.adapters.system.removal import remove
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.pace import Pace
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.held import Held, Turn
from perdure.adapters.worker.turn.paid import Paid
from perdure.models.config import SandboxGrade
from perdure.models.errors import ModelRefusesUs, SandboxUnavailable, WorkCutOff
from perdure.models.ids import run_ref
from perdure.models.preset import Preset
from perdure.models.steps import STEPS
from perdure.models.turn import Ending, Outcome, TurnInput

AGENT_TURN_S = 3600.0
"""For one turn of an agent, its tools included: a test suite may take half of that."""

SESSION_WRITTEN_S = 10.0
"""For an agent to write down what it has asked with; Claude Code was seen to take 150 ms on an idle machine."""

AGENT_ENDS_S = 10.0
"""For an agent to end by itself after its last reply was given and its output says that it has ended."""

_LOOK_S = 0.05
_GO_ON = "Go on."
Message = dict[str, Any]


@dataclass(frozen=True)
class AgentTurn:
    """A turn that an agent has taken.

    reply    the model's message
    said     the conversation that it answers, in the shape of our transcripts
    told     how the agent ended; None while it goes on
    memory   the artifact that holds its session, and the session's id: for turn.json
    """

    reply: Message
    said: list[Message]
    told: AgentSaid | None
    memory: dict[str, str]
    turn: Turn
    waited_s: float


async def agent_turn(
    host: Host, session: WorkspaceSession, work: TurnInput, run_id: str, opening: list[Message]
) -> AgentTurn:
    """Let the step's agent take this turn. `opening`: the first message of a step's first turn.

    Raises BadInput, SandboxUnavailable and ModelRefusesUs where it cannot run here; ModelUnavailable, RepliesCut and
    others as the model is asked; WorkCutOff where it ended without an answer of the model.
    """
    settings = getattr(session.contract.config.steps, work.step)
    preset = (await in_thread(read_preset, settings.agent)).preset
    upstream = _upstream(host, preset)
    if session.sandbox.grade is not SandboxGrade.FULL:
        raise SandboxUnavailable(f"{preset.title} runs in the full sandbox alone", fix="perdure doctor")
    before = await in_thread(_memory, session, work)
    schema = schema_for(work.step, roles=roles_of(session.contract))
    asking = Asking(
        prompt=_prompt(session, work, opening),
        model=settings.model,
        session=before.get("session") or str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run_ref(work.delivery, run_id)}")),
        resumed=work.turn > 1,
        schema=schema,
        writes=STEPS[work.step].writes,
        effort=settings.effort or "",
    )
    paid = Paid(session.replies, session.spend, await in_thread(Pace.of, host.home, upstream))
    held = Held(paid)
    with _places(session) as (home, sockets):
        if asking.resumed:
            await in_thread(put_back, home, await in_thread(session.vault.get_artifact, work.delivery, before["files"]))
        await in_thread(furnish, home, preset, asking)
        output = session.logs / f"{work.step}-{work.attempt}-{work.turn}" / "agent.log"
        output.parent.mkdir(parents=True, exist_ok=True)
        async with Proxy(sockets / "model", upstream, WIRES[preset.wire], held) as proxy:
            start = command(session.command(), preset, asking, home=home, socket=proxy.socket, output=output)
            turn = await held.let_through(work, run_id)
            ran = await _run(session, replace(start, timeout_s=AGENT_TURN_S), held, turn, home, preset)
        said = await in_thread(_read, preset, output)
        if turn.asked is None or turn.reply is None:
            if turn.failure is not None:
                raise turn.failure
            raise WorkCutOff(f"{preset.title} ended before the model had answered{_why(ran, said, home)}")
        kept = await in_thread(
            session.vault.put_artifact, work.delivery, await in_thread(gather, home, preset.sessions)
        )
    memory = {"session": said.session or asking.session, "files": kept}
    message = host.redacted([turn.reply.message])[0]
    asked = host.redacted(turn.asked.messages)
    return AgentTurn(message, asked, said if ran is not None else None, memory, turn, paid.waited)


def outcome_of(
    work: TurnInput, told: AgentSaid, change: Change | None, promised: Promised | None
) -> tuple[Outcome, bytes | None]:
    """The step's end from what the agent said in the end. A claim without its proof is no end that counts as done."""
    if not told.well:
        return Outcome(ending=Ending.INVALID, summary=written_summary(told.error or "the agent did not end well")), None
    if STEPS[work.step].answer is None:
        return Outcome(summary=written_summary(told.text)), None
    try:
        return read_answer(work.step, told.answer or told.text, change, promised, last=True)
    except ValueError as problem:
        return Outcome(ending=Ending.INVALID, summary=written_summary(f"{work.step}: {problem}")), None


async def _run(
    session: WorkspaceSession, start: Command, held: Held, turn: Turn, home: Path, preset: Preset
) -> Finished | None:
    """Run the agent until it asks for the next turn, which ends it, or ends itself. None: it would have gone on."""
    running = asyncio.create_task(session.sandbox.run(start))
    next_asked = asyncio.create_task(_next_asked(held, turn))
    try:
        now_doing(doing=f"{preset.title} works")
        await asyncio.wait({running, next_asked}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        assert turn.reply is not None
        calls = [block["id"] for block in turn.reply.message["content"] if block.get("type") == "tool_use"]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SESSION_WRITTEN_S):
                while not await in_thread(holds, home, preset.sessions, calls):  # noqa: ASYNC110 (files tell nobody)
                    await asyncio.sleep(_LOOK_S)
        return None
    finally:
        for task in (next_asked, running):
            task.cancel()
        await asyncio.gather(next_asked, running, return_exceptions=True)


async def _next_asked(held: Held, turn: Turn) -> None:
    """Return when this turn's reply was given and the next request waits."""
    while turn.reply is None:
        await held.settled(turn)
        if turn.reply is None:
            await asyncio.sleep(_LOOK_S)  # an error: the agent asks again, or ends
    await held.waits()


def _upstream(host: Host, preset: Preset) -> Upstream:
    if (found := host.upstreams.get(preset.wire)) is None:
        names = " or ".join(VARIABLES[preset.wire].keys)
        raise ModelRefusesUs(
            f"this worker has no key for the model of {preset.title}",
            where=names,
            fix="set it in the worker's environment and restart the worker",
        )
    return found


def _memory(session: WorkspaceSession, work: TurnInput) -> dict[str, str]:
    """The session at the checkpoint; nothing in a first turn."""
    if work.turn == 1:
        return {}
    found: dict[str, str] = checkpoints.read_turn(session.vault, work.checkpoint)["agent"]
    return found


def _prompt(session: WorkspaceSession, work: TurnInput, opening: list[Message]) -> str:
    """The step's rules and its opening in a first turn, a word to go on later; behind it what people have said."""
    if work.turn > 1:
        said = work.said if STEPS[work.step].hears else ()
        told = heard([{"role": "user", "content": [{"type": "text", "text": _GO_ON}]}], said)
        return _texts(told)
    return f"{system_prompt(work.step, session.contract.prompts.get(work.step))}\n\n{_texts(opening)}"


def _texts(messages: list[Message]) -> str:
    return "\n\n".join(block["text"] for block in messages[-1]["content"] if block.get("type") == "text")


@contextmanager
def _places(session: WorkspaceSession) -> Iterator[tuple[Path, Path]]:
    """A fresh home, and a directory for the socket: the paths of sockets have to be short."""
    home = session.directory / "agent-home"
    remove(home)
    home.mkdir(parents=True)
    try:
        with tempfile.TemporaryDirectory(prefix="perdure-agent-") as sockets:
            yield home, Path(sockets)
    finally:
        remove(home)


def _read(preset: Preset, output: Path) -> AgentSaid:
    with output.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - AGENT_OUTPUT_BYTES))
        return understood(preset, file.read())


def _why(ran: Finished | None, said: AgentSaid, home: Path) -> str:
    errors = home / ".perdure-errors"
    last = errors.read_text(errors="replace").strip().splitlines()[-1:] if errors.is_file() else []
    words = said.error or ((ran.failure or ran.over) if ran else "") or "".join(last)
    return f": {written_summary(words)}" if words else ""
