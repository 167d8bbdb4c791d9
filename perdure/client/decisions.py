"""A person's acts on a delivery: decide, say, hold, resume, cancel. Each counts once, worker up or down.

In another language: the same updates and signals, docs/control.md.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
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

from perdure.client.calls import send_update
from perdure.client.standalone import ask_host
from perdure.client.view import Described, ended_words
from perdure.models.decisions import Asked, Hold, KeepInput, Kept, Say, understood
from perdure.models.errors import BadInput, PerdureError
from perdure.models.ids import delivery_key, short_run
from perdure.models.limits import KEPT_BYTES, WATCH_EVERY_S
from perdure.models.result import DeliveryResult
from perdure.models.rules.inbox import SHAPES, VERDICTS, Inbox, NotCounted
from perdure.models.state import DeliveryState, Progress

KEEP_TIMEOUT = timedelta(seconds=30)
"""Keeping a text takes milliseconds on a host that lives."""


@dataclass(frozen=True)
class Answered:
    """The delivery's words to a decision, `approved: plan 1a2b3c4d`.

    `read` False: no worker took it; it is recorded as a signal, and the next worker counts it. `words` is empty then.
    """

    words: str = ""
    read: bool = True


class Decisions(ABC):
    """The part of perdure.client.Delivery that changes its course.

    A decision is bound by `of` to what the person had before them: Asked.of, as in `progress` and on the screen. Left
    out, it decides what the delivery waits for as the decision is sent. `by`: who decides, for the record.

    All raise BadInput when the delivery has ended or there is none, NotCounted (a BadInput, in the delivery's own
    words) when a decision does not count, and InvalidRequest for what is not well-formed.
    """

    def __init__(self, client: Client, id: str) -> None:
        self.id = id
        self._client = client
        self._handle: WorkflowHandle[Any, DeliveryResult] = client.get_workflow_handle(id, result_type=DeliveryResult)

    @property
    def client(self) -> Client:
        return self._client

    @abstractmethod
    async def describe(self) -> Described: ...

    @abstractmethod
    async def result(self) -> DeliveryResult: ...

    @abstractmethod
    async def progress(self, *, once: bool = False) -> Progress: ...

    async def approve(self, of: str = "", *, note: str = "", by: str = "") -> Answered:
        """Yes, to a plan, a pull request, or going on at an unknown price."""
        return await self._decide("approve", {"of": of, "note": note, "by": by})

    async def reject(self, note: str, of: str = "", *, by: str = "") -> Answered:
        """No, with words that planning or fixing goes back with; a budget that is not raised ends the delivery."""
        return await self._decide("reject", {"of": of, "note": note, "by": by})

    async def edit_plan(self, plan: str, of: str = "", *, title: str = "", by: str = "") -> Answered:
        """Another plan in the place of the one it waits with: JSON of perdure.models.plan.Plan, or Markdown.

        It is put for approval in its turn. Needs the delivery's host: PerdureError when it does not answer.
        """
        of = of or (await self.waits_for()).of
        sha256 = await self.keep(plan)
        return await self._decide("edit_plan", {"of": of, "plan": sha256, "title": title[:200], "by": by})

    async def answer(self, text: str, of: str = "", *, by: str = "") -> Answered:
        """The answer to its question: its agent's next turn reads it."""
        return await self._decide("answer", {"of": of, "answer": text, "by": by})

    async def add_budget(
        self,
        usd: float = 0,
        tokens: int = 0,
        time: str | None = None,
        of: str = "",
        *,
        by: str = "",
        id: str = "",
    ) -> Answered:
        """More to spend, at any time: dollars, tokens, time such as `1h`. One `id` counts once, however often sent.

        Bound by `of` it counts only while the delivery waits for that.
        """
        if not (usd or tokens or time):
            raise NotCounted("say how much more: dollars, tokens or time", where=self.id)
        said = {"usd": usd, "tokens": tokens, "time": time, "of": of, "by": by}
        return await self._decide("add_budget", said | {"id": id or uuid.uuid4().hex})

    async def say(self, text: str, id: str = "") -> str:
        """Words for the next turn, read exactly once, worker up or down. One `id` (returned) is heard once."""
        said = understood(Say, {"text": text, "id": id or uuid.uuid4().hex})
        await self._signal("say", said.model_dump(mode="json"))
        return said.id

    async def hold(self, note: str = "", *, by: str = "") -> None:
        """Begin no further turn until `resume`; the one that runs goes on to its end. Costs nothing while it holds."""
        said = understood(Hold, {"note": note, "by": by}).model_dump(mode="json", exclude_defaults=True)
        await self._signal("hold", said)

    async def resume(self) -> None:
        """Go on after a hold."""
        await self._signal("resume", {})

    async def cancel(self) -> None:
        """Ask it to stop at once: running tools end, branch and checkpoint stay. The Web UI's Cancel does the same."""
        await self._handle.cancel()

    async def come_to_rest(self, patience: timedelta) -> bool:
        """Hold it and wait until nothing of it runs any more, or it has ended. False: still running, or no worker."""
        with suppress(BadInput):  # ended meanwhile
            await self.hold("it is about to be cancelled")
        until = asyncio.get_running_loop().time() + patience.total_seconds()
        while asyncio.get_running_loop().time() < until:
            try:
                progress = await self.progress()
            except PerdureError:
                return False
            if progress.waiting or progress.status != "running":
                return True
            await asyncio.sleep(WATCH_EVERY_S)
        return False

    async def keep(self, text: str) -> str:
        """Make a text (at most 64 KiB) an artifact of the delivery, on its host; the SHA-256 that names it.

        HostSilent, HostRefused.
        """
        if (size := len(text.encode())) > KEPT_BYTES:
            raise BadInput(f"the text has {size} bytes, at most {KEPT_BYTES} (64 KiB) fit", where=self.id)
        queue = (await self.progress()).queue
        if queue is None:
            raise BadInput("it is not prepared yet: there is no place to keep anything", where=self.id)
        work = KeepInput(delivery=delivery_key(self.id), text=text)
        kept = await ask_host(self._client, "keep", work, Kept, queue=queue, about=self.id, within=KEEP_TIMEOUT)
        return kept.sha256

    async def waits_for(self) -> Asked:
        """Return the decision it waits for; known without a worker. NotCounted, with what it does, when none."""
        described = await self._running()
        if described.asked is not None:
            return described.asked
        nothing, watch = "nothing waits for a decision", f"perdure watch {self.id}"
        if described.pending:
            pending = described.pending[0]
            turn = pending.details.get("turn")
            doing = pending.activity.replace("_", " ") + (f", turn {turn}" if turn else "")
            raise NotCounted(f"{nothing}: {self.id} is at {doing}", where=self.id, fix=watch)
        try:
            progress = await self.progress()
        except PerdureError:
            fix = "perdure up --detach starts one; it goes on to where it asks then"
            raise NotCounted(f"{nothing} yet: no worker is running", where=self.id, fix=fix) from None
        if progress.held:
            raise NotCounted(f"{nothing}: {progress.held}", where=self.id, fix=f"perdure resume {self.id}")
        doing = progress.waiting or progress.phase or "its beginning"
        raise NotCounted(f"{nothing}: {self.id} is at {doing}", where=self.id, fix=watch)

    async def held(self) -> str:
        """Say who holds it and why, `held: let me look`; empty where nobody does, or no worker can say."""
        try:
            return (await self.progress(once=True)).held
        except PerdureError:
            return ""

    async def _running(self) -> Described:
        described = await self.describe()
        if not described.running:
            raise await self._ended(described)
        return described

    async def how_it_ended(self) -> str:
        """In one line, of one that has ended: its reason rather than Temporal's word."""
        try:
            return ended_words(await self.result())
        except PerdureError as error:
            return error.what

    async def _ended(self, described: Described) -> BadInput:
        ended = await self.how_it_ended()
        fix = f"perdure show {self.id} says how"
        if described.status != WorkflowExecutionStatus.COMPLETED:
            fix += f"; perdure retry {self.id} goes on with it"
        return BadInput(f"{self.id} has ended ({ended}): it takes no decisions and no words any more", fix=fix)

    async def _decide(self, update: str, said: dict[str, Any]) -> Answered:
        """One decision: an update, or, where no worker takes it, the same as a signal.

        The update's id is that of what is decided, and how: sent again it is the same update. Who comes second with
        another one is told by the delivery by whom, and when, it was decided.
        """
        meant = understood(SHAPES[update], {name: value for name, value in said.items() if value})
        described = await self._running()
        asked = described.asked
        if not meant.of and update != "add_budget":
            asked = await self.waits_for()
            meant = meant.model_copy(update={"of": asked.of})
        gate = asked.gate if asked is not None and asked.of == meant.of else update
        raw = meant.model_dump(mode="json", exclude_defaults=True)
        how = sha256(json.dumps([update, raw], sort_keys=True).encode()).hexdigest()[:8]
        id = f"{gate}-{meant.of or said['id']}-{short_run(described.run_id)}-{how}"
        try:
            words = str(await send_update(self._handle, update, raw, id))
        except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError):
            if asked is not None:  # nobody could be told later: refused now, by the same rules
                Inbox(DeliveryState(asked=asked)).check(update, raw)
            await self._signal("decide", {"update": update, "said": raw})
            return Answered(read=False)
        except WorkflowUpdateFailedError as error:
            what = error.cause.message if isinstance(error.cause, ApplicationError) else str(error.cause or error)
            raise NotCounted(what, where=self.id) from None
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            raise await self._ended(await self.describe()) from None
        before = words.removeprefix("counted before: ")
        if not before.startswith((VERDICTS[update], "added ")):
            raise NotCounted(f"this was decided before, otherwise: {before}", where=self.id)
        return Answered(words)

    async def _signal(self, name: str, said: dict[str, Any]) -> None:
        try:
            await self._handle.signal(name, said)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            raise await self._ended(await self.describe()) from None
