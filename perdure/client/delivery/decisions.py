"""The acts of a person on a delivery: decide, say, hold, resume, cancel. Each act counts once, worker up or down.

Programs in other languages send the same updates and signals: docs/control.md.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.server.calls import run_on_host, send_update
from perdure.client.server.view import RunDescription, ending_line
from perdure.models.delivery.decisions import Hold, PendingDecision, Say, StoredText, StoreTextInput, parse_input
from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.state import DeliveryState, GatesState, Progress
from perdure.models.errors import BadInput, PerdureError
from perdure.models.ids import delivery_key, short_run_id
from perdure.models.limits import HANDED_IN_BYTES, WATCH_EVERY_S
from perdure.models.rules.inbox import DECISION_MODELS, VERDICTS, Inbox, NotCounted
from perdure.text import shell_word, shorten

KEEP_TIMEOUT = timedelta(seconds=30)
"""Limit for storing a text, which takes milliseconds on a host that lives."""


@dataclass(frozen=True)
class DecisionReply:
    """A delivery's reply to a decision.

    message   the reply, such as `approved: plan 1a2b3c4d`; empty where no worker took the decision
    received  False: no worker took it; it is recorded as a signal, and the next worker counts it
    """

    message: str = ""
    received: bool = True


class Decisions(ABC):
    """Base of perdure.client.Delivery: the methods that change a delivery's course.

    `target` binds a decision to what the person saw: the `of` of what is asked, as in `progress` and on the screen.
    Left empty, it decides what the delivery waits for as the decision is sent. `by` names who decides, for the record.

    All raise BadInput when the delivery has ended or there is none, NotCounted (a BadInput, with the delivery's reason)
    when a decision does not count, and InvalidRequest for what is not well-formed.
    """

    def __init__(self, client: Client, id: str) -> None:
        self.id = id
        self._client = client
        self._handle: WorkflowHandle[Any, DeliveryResult] = client.get_workflow_handle(id, result_type=DeliveryResult)

    @property
    def client(self) -> Client:
        return self._client

    @abstractmethod
    async def describe(self) -> RunDescription: ...

    @abstractmethod
    async def result(self) -> DeliveryResult: ...

    @abstractmethod
    async def progress(self, *, once: bool = False) -> Progress: ...

    async def approve(self, target: str = "", *, note: str = "", by: str = "") -> DecisionReply:
        """Send an approval of a plan, of a pull request, or of going on at an unknown price; return the reply."""
        return await self._send_decision("approve", {"of": target, "note": note, "by": by})

    async def reject(self, note: str, target: str = "", *, by: str = "") -> DecisionReply:
        """Send a rejection and return the reply; planning or fixing goes on with `note`.

        Where a budget is reached, a rejection ends the delivery.
        """
        return await self._send_decision("reject", {"of": target, "note": note, "by": by})

    async def edit_plan(self, plan: str, target: str = "", *, title: str = "", by: str = "") -> DecisionReply:
        """Replace the plan that waits by another: JSON of a `Plan`, or Markdown. Return the reply.

        The new plan waits for approval in its turn. Its text is stored on the delivery's host first: raises
        PerdureError when that does not answer, and BadInput for more than 64 KiB. Raises NotCounted when nothing waits
        for a decision or the delivery refuses the plan, and BadInput when it has ended or does not exist.
        """
        target = target or (await self.waits_for()).target
        sha256 = await self.store_text(plan)
        return await self._send_decision(
            "edit_plan", {"of": target, "plan": sha256, "title": shorten(title, 200), "by": by}
        )

    async def answer(self, text: str, target: str = "", *, by: str = "") -> DecisionReply:
        """Send the answer to the agent's question, which its next turn reads; return the delivery's reply."""
        return await self._send_decision("answer", {"of": target, "answer": text, "by": by})

    async def add_budget(
        self,
        usd: float = 0,
        tokens: int = 0,
        time: str | None = None,
        target: str = "",
        *,
        by: str = "",
        id: str = "",
    ) -> DecisionReply:
        """Add to what the delivery may spend, at any time: dollars, tokens, or time such as `1h`. Return the reply.

        One `id` counts once, however often it is sent. With `target` it counts only while the delivery waits for that.
        Raises NotCounted when there is nothing to add or the delivery refuses it, InvalidRequest for an amount that
        cannot be added, and BadInput when the delivery has ended or does not exist.
        """
        if not (usd or tokens or time):
            raise NotCounted("say how much more: dollars, tokens or time", where=self.id)
        message = {"usd": usd, "tokens": tokens, "time": time, "of": target, "by": by}
        return await self._send_decision("add_budget", message | {"id": id or uuid.uuid4().hex})

    async def say(self, text: str, id: str = "") -> str:
        """Send a message for the next turn, which reads it exactly once, worker up or down. Return its id.

        The same `id` sent twice is one message; by default it is a new one. Raises InvalidRequest for a text or id that
        cannot be sent, and BadInput when the delivery has ended or does not exist.
        """
        message = parse_input(Say, {"text": text, "id": id or uuid.uuid4().hex})
        await self._send_signal("say", message.model_dump(mode="json"))
        return message.id

    async def hold(self, note: str = "", *, by: str = "") -> None:
        """Send signal `hold`: no further turn begins until `resume`; a running turn goes on to its end.

        Holding costs nothing.
        """
        payload = parse_input(Hold, {"note": note, "by": by}).model_dump(mode="json", exclude_defaults=True)
        await self._send_signal("hold", payload)

    async def resume(self) -> None:
        """Send signal `resume`: the delivery goes on after a hold."""
        await self._send_signal("resume", {})

    async def cancel(self) -> None:
        """Ask the delivery to stop at once: running tools end, branch and checkpoint stay.

        The Web UI's Cancel does the same.
        """
        async with self._ending_named():
            await self._handle.cancel()

    async def hold_until_idle(self, patience: timedelta) -> bool:
        """Send signal `hold`, and wait until the delivery waits, so that no turn or step runs, or has ended; return
        True then.

        Returns False when something still runs after `patience`, or no worker answers; the hold stays then, too. A
        delivery that has ended already is no error.
        """
        with suppress(BadInput):  # ended meanwhile
            await self.hold("it is about to be cancelled")
        deadline = asyncio.get_running_loop().time() + patience.total_seconds()
        while asyncio.get_running_loop().time() < deadline:
            try:
                progress = await self.progress()
            except PerdureError:
                return False
            if progress.waiting or progress.status != "running":
                return True
            await asyncio.sleep(WATCH_EVERY_S)
        return False

    async def store_text(self, text: str) -> str:
        """Store a text as an artifact of the delivery, on its host; return the SHA-256 that names it.

        Raises BadInput for more than 64 KiB and for a delivery that is not prepared yet, NoWorker when nobody can say
        which host it has, HostSilent when its host does not answer, and HostRefused when it fails there.
        """
        if (size := len(text.encode())) > HANDED_IN_BYTES:
            raise BadInput(f"the text has {size} bytes, at most {HANDED_IN_BYTES} (64 KiB) fit", where=self.id)
        queue = (await self.progress()).queue
        if queue is None:
            raise BadInput("it is not prepared yet: there is no place to keep anything", where=self.id)
        work = StoreTextInput(delivery=delivery_key(self.id), text=text)
        stored = await run_on_host(
            self._client, "keep", work, StoredText, queue=queue, about=self.id, within=KEEP_TIMEOUT
        )
        return stored.sha256

    async def waits_for(self) -> PendingDecision:
        """Return the decision that the delivery waits for; no worker is needed where it waits for one.

        Raises NotCounted, with what the delivery does instead, when it waits for none, and BadInput when it has ended
        or does not exist.
        """
        described = await self._require_running()
        if described.pending_decision is not None:
            return described.pending_decision
        nothing, watch = "nothing waits for a decision", f"perdure watch {shell_word(self.id)}"
        if described.pending:
            pending = described.pending[0]
            turn = pending.details.get("turn")
            current_work = pending.activity.replace("_", " ") + (f", turn {turn}" if turn else "")
            raise NotCounted(f"{nothing}: {self.id} is at {current_work}", where=self.id, fix=watch)
        try:
            progress = await self.progress()
        except PerdureError:
            fix = "perdure up --detach starts one; it goes on to where it asks then"
            raise NotCounted(f"{nothing} yet: no worker is running", where=self.id, fix=fix) from None
        if progress.held:
            raise NotCounted(f"{nothing}: {progress.held}", where=self.id, fix=f"perdure resume {shell_word(self.id)}")
        current_work = progress.waiting or progress.phase or "its beginning"
        raise NotCounted(f"{nothing}: {self.id} is at {current_work}", where=self.id, fix=watch)

    async def hold_reason(self) -> str:
        """Return who holds the delivery and why, `held: let me look`; empty where nobody does, or no worker can say."""
        try:
            return (await self.progress(once=True)).held
        except PerdureError:
            return ""

    async def _require_running(self) -> RunDescription:
        """Return what the server knows of the delivery; raise BadInput when it has ended or does not exist."""
        described = await self.describe()
        if not described.running:
            raise await self._ended_error(described)
        return described

    async def ending_summary(self) -> str:
        """Return in one line how an ended delivery ended: its own reason, or the error's text when it has no result.

        Waits for the end of one that still runs.
        """
        try:
            return ending_line(await self.result())
        except PerdureError as error:
            return error.what

    async def _ended_error(self, described: RunDescription) -> BadInput:
        """Return the BadInput which says that the delivery has ended, how, and what can be done: `retry`, unless it
        delivered.
        """
        ending = await self.ending_summary()
        fix = f"perdure show {shell_word(self.id)} says how"
        if described.status != WorkflowExecutionStatus.COMPLETED:
            fix += f"; perdure retry {shell_word(self.id)} goes on with it"
        return BadInput(f"{self.id} has ended ({ending}): it takes no decisions and no words any more", fix=fix)

    async def _send_decision(self, update: str, message: dict[str, Any]) -> DecisionReply:
        """Send a decision as an update, or as a signal when no worker takes the update; return the reply.

        When `message` names no `of`, it is bound to what the delivery waits for now; only `add_budget` needs nothing
        that waits. The update's id names what is decided, and how: sent again it is the same update. Before a signal, a
        decision on what waits now is checked here by the delivery's own rules, as nobody can be told later; `received`
        is False in the reply then. Raises InvalidRequest for a malformed message, NotCounted when the delivery waits
        for nothing or refuses it, or when somebody decided otherwise before, with who and when; BadInput when the
        delivery has ended or does not exist.
        """
        decision = parse_input(DECISION_MODELS[update], {name: value for name, value in message.items() if value})
        described = await self._require_running()
        pending_decision = described.pending_decision
        if not decision.target and update != "add_budget":
            pending_decision = await self.waits_for()
            decision = decision.model_copy(update={"target": pending_decision.target})
        gate = (
            pending_decision.gate
            if pending_decision is not None and pending_decision.target == decision.target
            else update
        )
        raw = decision.model_dump(mode="json", exclude_defaults=True)
        content_hash = sha256(json.dumps([update, raw], sort_keys=True).encode()).hexdigest()[:8]
        id = f"{gate}-{decision.target or message['id']}-{short_run_id(described.run_id)}-{content_hash}"
        try:
            async with self._ending_named():
                reply = str(await send_update(self._handle, update, raw, id))
        except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError):
            if pending_decision is not None:  # nobody could be told later: refused now, by the same rules
                Inbox(DeliveryState(gates=GatesState(pending_decision=pending_decision))).check_decision(update, raw)
            await self._send_signal("decide", {"update": update, "said": raw})
            return DecisionReply(received=False)
        except WorkflowUpdateFailedError as error:
            what = error.cause.message if isinstance(error.cause, ApplicationError) else str(error.cause or error)
            raise NotCounted(what, where=self.id) from None
        counted = reply.removeprefix("counted before: ")
        if not counted.startswith((VERDICTS[update], "added ")):
            raise NotCounted(f"this was decided before, otherwise: {counted}", where=self.id)
        return DecisionReply(reply)

    async def _send_signal(self, name: str, payload: dict[str, Any]) -> None:
        """Send a signal to the delivery; raise BadInput when it has ended or does not exist."""
        async with self._ending_named():
            await self._handle.signal(name, payload)

    @asynccontextmanager
    async def _ending_named(self) -> AsyncIterator[None]:
        """Raise BadInput, in place of the server's RPCError, when the delivery has ended or does not exist."""
        try:
            yield
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            raise await self._ended_error(await self.describe()) from None


NEXT_DECISION_WAIT_S = 30.0
"""The time until a delivery has to wait with the edited plan for approval: milliseconds where a worker lives."""


async def wait_for_next_decision(delivery: Decisions, previous: PendingDecision) -> PendingDecision:
    """Wait until a delivery waits for another decision than `previous`, and return it: the edited plan's approval.

    Raises PerdureError after NEXT_DECISION_WAIT_S, and BadInput when the delivery ends meanwhile.
    """
    deadline = time.monotonic() + NEXT_DECISION_WAIT_S
    while time.monotonic() < deadline:
        try:
            pending_decision = await delivery.waits_for()
        except NotCounted:
            pending_decision = previous
        if pending_decision.target != previous.target:
            return pending_decision
        await asyncio.sleep(WATCH_EVERY_S)
    raise PerdureError(
        "the edited plan was counted, but does not wait for approval yet",
        where=delivery.id,
        fix=f"perdure approve {shell_word(delivery.id)}",
    )
