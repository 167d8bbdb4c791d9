"""The messages a backlog takes while it runs: from people by updates, from its deliveries by signals.

An update is refused by its validator before it enters history, in words its sender can use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_messages import AddItem, BacklogAttached, NamedItem, PrioritisedItem
from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState
from perdure.models.decisions import Hold, understood
from perdure.models.errors import InvalidRequest
from perdure.models.fairness import MIDDLE, shared_with, urgency
from perdure.models.landing import (
    ItemEnded,
    ItemForeseen,
    ItemPlanned,
    ItemWaits,
    LandingAsked,
    LandingOver,
    Prioritised,
    PriorityInput,
)
from perdure.models.rules.backlog import refusal
from perdure.models.rules.changes import go_on_with, leave_out, over, problem
from perdure.models.rules.checking import moved
from perdure.models.rules.foreseeing import foresee
from perdure.models.rules.stack import no_place
from perdure.models.touches import learnt
from workflows.items import Items
from workflows.items_begun import why

T = TypeVar("T")


class TakesItems:
    """`attach`; `add`, `edit`, `skip`, `retry`, `cancel_item`, `prioritise`; `hold`, `resume`; and its deliveries'."""

    request: BacklogRequest
    state: BacklogState
    items: Items
    refused: ApplicationError | None

    @workflow.update(description="Submit or attach in one call, by update-with-start: {} or the backlog again")
    def attach(self, sent: Any = None) -> BacklogAttached:
        info = workflow.info()
        return BacklogAttached(
            backlog_id=info.workflow_id,
            run_id=info.run_id,
            repository=self.request.repository,
            items=len(self.state.items),
        )

    @attach.validator
    def _attach(self, sent: Any = None) -> None:
        if self.refused is not None:
            raise self.refused
        if words := refusal(self.request, self.state, sent):
            raise ApplicationError(f"InvalidRequest: {words}", type="InvalidRequest", non_retryable=True)

    @workflow.update(description='Add an item: {"item": {"id": "api", "request": "…"}}')
    def add(self, said: Any = None) -> str:
        item = self._checked("add", said)[1]
        assert item is not None
        order = 1 + max((at.order for at in self.state.items.values()), default=-1)
        self.state.items[item.id] = ItemState(item=item, order=order, added=workflow.now())
        return self._done(f"added: {item.id}")

    @add.validator
    def _add(self, said: Any = None) -> None:
        self._checked("add", said, late=over(self.state))

    @workflow.update(description='Put another in the place of one that has not begun: {"item": {"id": "api", …}}')
    def edit(self, said: Any = None) -> str:
        id, item = self._checked("edit", said)
        assert item is not None
        self.state.items[id].item = item
        return self._done(f"edited: {id}")

    @edit.validator
    def _edit(self, said: Any = None) -> None:
        self._checked("edit", said, late=over(self.state))

    @workflow.update(description='Leave one out, what depends on it may go on: {"item": "api", "note": "why"}')
    def skip(self, said: Any = None) -> str:
        id, _ = self._checked("skip", said)
        leave_out(self.state.items[id], ItemPhase.SKIPPED, understood(NamedItem, said).note, workflow.now())
        return self._done(f"skipped: {id}")

    @skip.validator
    def _skip(self, said: Any = None) -> None:
        self._checked("skip", said, late=over(self.state))

    @workflow.update(description='Let one that failed go on from where it stands: {"item": "api"}')
    def retry(self, said: Any = None) -> str:
        id, _ = self._checked("retry", said)
        go_on_with(self.state.items[id])
        return self._done(f"goes on: {id}")

    @retry.validator
    def _retry(self, said: Any = None) -> None:
        self._checked("retry", said, late=over(self.state))

    @workflow.update(description='End one: {"item": "api"}; its work is kept, retry goes on with it')
    async def cancel_item(self, said: Any = None) -> str:
        id, _ = self._checked("cancel_item", said)
        at, note = self.state.items[id], understood(NamedItem, said).note
        if at.phase is ItemPhase.BUILDING:
            await self.items.cancel_item(id, note)
        else:
            leave_out(at, ItemPhase.CANCELLED, note, workflow.now())
        return self._done(f"cancelled: {id}")

    @cancel_item.validator
    def _cancel_item(self, said: Any = None) -> None:
        self._checked("cancel_item", said, late=over(self.state))

    @workflow.update(description='Higher goes first among those that are ready: {"item": "api", "priority": 5}')
    async def prioritise(self, said: Any = None) -> str:
        id, _ = self._checked("prioritise", said)
        wanted, at = understood(PrioritisedItem, said).priority, self.state.items[id]
        at.item = at.item.model_copy(update={"priority": wanted})
        told = self._done(f"priority {wanted}: {id}")
        if at.phase is not ItemPhase.BUILDING or not workflow.patched("priority-told"):
            return told
        work = PriorityInput(
            delivery=at.delivery, key=urgency(wanted) or MIDDLE, shared_with=shared_with(at.delivery, self._place) or ""
        )
        try:
            done = await self.items.activity("prioritise_delivery", work, Prioritised, f"{id} has priority {wanted}")
        except ActivityError as error:
            return f"{told}, but its delivery keeps its own: {why(error)}"[:300]
        return f"{told}, but its delivery keeps its own: {done.words}" if done.words else told

    @property
    def _place(self) -> dict[str, Any]:
        """As much of a delivery's request as says with whom it shares its turns."""
        within = self.state.opened is not None and self.state.opened.within is not None
        return {"landing": {"backlog": workflow.info().workflow_id, "within": within}}

    @prioritise.validator
    def _prioritise(self, said: Any = None) -> None:
        self._checked("prioritise", said, late=over(self.state))

    @workflow.signal(description='Begin nothing more, and no further turn of what runs: {} or {"note": "why"}')
    async def hold(self, said: Any = None) -> None:
        note = self._heard(Hold, said, lambda heard: heard.note) or ""
        self.state.held = f"held: {note}" if note else "held"
        self._done("")
        await self.items.hold(note)

    @workflow.signal(description="Go on after a hold: {}")
    async def resume(self, said: Any = None) -> None:
        self.state.held = ""
        self._done("")
        await self.items.resume()

    @workflow.signal(description="Sent by a delivery that wants to land")
    def landing_asked(self, said: LandingAsked) -> None:
        at = self.state.items.get(said.item)
        if at is None or at.delivery not in ("", said.delivery):
            return
        if at.phase is not ItemPhase.LANDED:
            at.phase = ItemPhase.BUILDING  # somebody went on with it by hand
        at.delivery, at.run_id, at.asked = said.delivery, said.run_id, said.seq
        self.items.give_turn_back(said.item)
        self.state.queue = (*self.state.queue, said.item)
        self._done("")

    @workflow.signal(description="Sent by a delivery that has landed, or cannot land as it is")
    def landing_over(self, said: LandingOver) -> None:
        at = self.state.items.get(said.item)
        if at is None or at.delivery != said.delivery:
            return
        if said.commit and at.phase is not ItemPhase.LANDED:
            at.commit, self.state.head, at.phase = said.commit, said.commit, ItemPhase.LANDED
            ran = self.state.checking if self.state.turn == said.item else ()
            moved(self.state, {said.item, *ran} - {*said.unchecked}, workflow.now())
        at.words = said.words
        at.usd = at.usd if said.usd is None else said.usd  # all may have ended before the last one says so
        if said.seq == at.asked:
            self.items.give_turn_back(said.item)
        self._done("")

    @workflow.signal(description="Sent by a delivery that waits for a person, or goes on")
    def item_waits(self, said: ItemWaits) -> None:
        at = self.state.items.get(said.item)
        if at is None or at.delivery != said.delivery or said.number <= at.told:
            return
        at.told, at.waits, at.gate, at.of, at.since = said.number, said.words, said.gate, said.of, said.since
        at.about, at.asks = said.about, said.asked.model_dump(mode="json") if said.asked is not None else None
        if said.words and self.state.turn == said.item:  # it mends in its turn and asks a person: others land meanwhile
            self.items.give_turn_back(said.item)
        self._done("")

    @workflow.signal(description="Sent by a delivery that has a plan")
    def item_planned(self, said: ItemPlanned) -> None:
        at = self.state.items.get(said.item)
        if at is not None and at.delivery == said.delivery:
            at.learnt = learnt(said.touches)  # nothing can begin because of it, so nobody looks again

    @workflow.signal(description="Sent by a delivery whose commit would conflict with others, or would no longer")
    def item_foreseen(self, said: ItemForeseen) -> None:
        if (at := self.state.items.get(said.item)) is not None and at.delivery == said.delivery:
            foresee(self.state, said.item, said.conflicts)

    @workflow.signal(description="Sent by a delivery that has ended")
    def item_ended(self, said: ItemEnded) -> None:
        self.items.hear_end(said)

    def _checked(self, change: str, said: Any, late: str = "") -> tuple[str, Any]:
        """The id and, for add and edit, the item. Raises NotCounted in words for the sender. `late`: why nothing counts
        any more; what was taken before that counts."""
        try:
            if change in ("add", "edit"):
                item = understood(AddItem, said).item
                id = item.id
            else:
                shape = PrioritisedItem if change == "prioritise" else NamedItem
                item, id = None, understood(shape, said).item
        except InvalidRequest as error:
            raise ApplicationError(error.what, type="NotCounted", non_retryable=True) from None
        words = late or problem(self.state, change, id, item, self.request.repository)
        if not words and item is not None and self.request.land == "stack":
            words = no_place(item, {one: at.item for one, at in self.state.items.items()})
        if words:
            raise ApplicationError(words, type="NotCounted", non_retryable=True)
        return id, item

    def _heard(self, shape: type[T], said: Any, read: Callable[[T], str]) -> str:
        """Read a signal's words; who wants it held gets that, however it was said."""
        try:
            return read(understood(shape, said))  # type: ignore[type-var]
        except InvalidRequest:
            return ""

    def _done(self, words: str) -> str:
        self.items.changed = True  # the backlog's own loop, in the same task: it shows it, too
        return words
