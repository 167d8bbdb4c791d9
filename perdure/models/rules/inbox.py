"""Rules for what people send to a delivery: pure decisions over its state, each message counted once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
from typing import Any

from perdure.models import decisions
from perdure.models.amounts import seconds
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.limits import NOTES_KEPT
from perdure.models.state import DeliveryState

SAID_BYTES_KEPT = 256 * 1024
"""Of all words no turn has read: eight turns take them, and the state still fits into one payload of a new run."""

HEARD_KEPT = 500
"""Ids of words: the same ones that come again, come within minutes."""

DECIDED_KEPT = 200
"""Decisions a delivery remembers, so that one that arrives again is answered and not counted."""


SHAPES: Mapping[str, type[decisions.Deciding]] = MappingProxyType(
    {
        "approve": decisions.Approve,
        "reject": decisions.Reject,
        "edit_plan": decisions.EditPlan,
        "answer": decisions.Answer,
        "add_budget": decisions.AddBudget,
    }
)

VERDICTS: Mapping[str, decisions.Verdict] = MappingProxyType(
    {
        "approve": decisions.Verdict.APPROVED,
        "reject": decisions.Verdict.REJECTED,
        "edit_plan": decisions.Verdict.EDITED,
        "answer": decisions.Verdict.ANSWERED,
        "add_budget": decisions.Verdict.APPROVED,
    }
)


class NotCounted(BadInput):
    """A message that does not count; `what` says why, in words its sender can use."""


class Inbox:
    """One delivery's inbox at the moment `now`. Whatever is sent twice is counted once: the state remembers what was
    decided, by whom and when."""

    def __init__(self, state: DeliveryState, now: datetime | None = None) -> None:
        self.state, self.now = state, now

    def check(self, name: str, raw: Any) -> None:
        """Refuse what cannot count: before it enters history, and in words its sender can use."""
        said = self._read(name, raw)
        if isinstance(said, decisions.AddBudget):
            if not (said.usd or said.tokens or said.time):
                raise NotCounted('say how much more: {"usd": 5}, {"tokens": 500000} or {"time": "1h"}')
            if not said.of:
                return
        if self._known(said) is None:
            self._fits(name, said, self._asked(name, said))

    def decide(self, name: str, raw: Any) -> str:
        """Count a decision, once; what its sender reads. Repeated, the answer says what was counted."""
        said = self._read(name, raw)
        if isinstance(said, decisions.AddBudget) and (not said.of or f"added:{said.id}" in self.state.decided):
            return self._add(said)
        if (known := self._known(said)) is not None:
            return f"counted before: {known.described}"
        asked = self._asked(name, said)
        if isinstance(said, decisions.AddBudget):
            return self._add(said)
        self._fits(name, said, asked)
        verdict, note, artifact = VERDICTS[name], "", ""
        match said:
            case decisions.Approve() | decisions.Reject():
                note = said.note
            case decisions.EditPlan():
                artifact, note = said.plan, said.title
            case decisions.Answer():
                note = said.answer
        made = decisions.Decided(verdict=verdict, note=note, by=said.by, artifact=artifact, at=self.now)
        count(self.state, asked, made)
        return f"{verdict}: {asked.gate.replace('_', ' ')} {asked.of}"

    def hear_decision(self, raw: Any) -> None:
        """A decision that came as a signal: nobody is there to be answered, so what does not count is noted."""
        try:
            sent = decisions.understood(decisions.Decide, raw)
            if sent.update not in SHAPES:
                raise NotCounted(f"unknown decision {sent.update!r}")
            if not (sent.said.get("of") or (sent.update == "add_budget" and sent.said.get("id"))):
                raise NotCounted(f"{sent.update}: a decision sent as a signal must say what it decides (of)")
            self.check(sent.update, sent.said)
            said = self._read(sent.update, sent.said)
            known = None if isinstance(said, decisions.AddBudget) else self._known(said)
            self.decide(sent.update, sent.said)
            late = decisions.Decided(verdict=VERDICTS[sent.update], by=said.by)
            if known is not None and (known.verdict, known.by) != (late.verdict, late.by):
                self._note(f"{late.described} came too late: {known.described}")
        except (InvalidRequest, NotCounted) as error:
            self._note(f"a decision did not count: {error}")

    def hear(self, raw: Any) -> None:
        """Words for the next turn; the same id is heard once."""
        state = self.state
        try:
            said = decisions.understood(decisions.Say, raw)
        except InvalidRequest as error:
            self._note(f"words were not understood: {error.what}")
            return
        if said.id in state.heard:
            return
        texts = [*(word.text for word in state.said), said.text]
        if sum(len(text.encode()) for text in texts) > SAID_BYTES_KEPT:
            self._note(f"words did not fit behind {len(state.said)} that no turn has read yet: {said.text[:60]}")
            return
        state.listened += 1
        state.heard = (*state.heard, said.id)[-HEARD_KEPT:] if said.id else state.heard
        unread, id = [word.id for word in state.said], said.id or f"said-{state.listened}"
        while id in unread:  # somebody has chosen one that was given to other words
            id += "'"
        state.said += (decisions.Said(id=id, text=said.text),)

    def hold(self, raw: Any) -> None:
        """Whoever wants it held gets that, however it was said."""
        said = decisions.Hold()
        with suppress(InvalidRequest):
            said = decisions.understood(decisions.Hold, raw)
        self.state.held = decisions.holding(said.note, said.by)

    def resume(self) -> None:
        self.state.held, self.state.leaving = "", ""

    def rewind(self, raw: Any, run: str) -> datetime | None:
        """A rewind is on its way, or has come: said to the run it begins from, heard again by the one a reset made.

        Returns when the turn began that is taken anew, where it was said.
        """
        state = self.state
        try:
            said = decisions.understood(decisions.Rewind, raw)
        except InvalidRequest as error:
            self._note(f"a rewind was not understood: {error.what}")
            return None
        if said.from_run == run:
            state.leaving = said.to or "an earlier turn"
            return None
        if said.id and said.id in state.heard:  # a command that was killed, and was run again
            return None
        state.said, state.held, state.leaving = (), "", ""
        if said.text:
            self.hear({"text": said.text, "id": said.id})
        elif said.id:
            state.heard = (*state.heard, said.id)[-HEARD_KEPT:]
        if said.policy and state.prepared is not None:
            terms = {"contract": said.policy, "models": said.models or state.prepared.models, "proxied": True}
            state.prepared = state.prepared.model_copy(update=terms)
        return said.since

    def _note(self, words: str) -> None:
        if len(self.state.notes) < NOTES_KEPT:
            self.state.notes += (words[:300],)

    def _read(self, name: str, raw: Any) -> decisions.Deciding:
        try:
            return decisions.understood(SHAPES[name], raw)
        except InvalidRequest as error:
            raise NotCounted(error.what) from None

    def _known(self, said: decisions.Deciding) -> decisions.Decided | None:
        """Return what was counted of it before. One that names nothing means what waits, also in the moment after
        somebody has decided that and before the delivery has gone on: it cannot undo it."""
        asked = self.state.asked
        if not said.of:
            meant = asked is not None and said.gate in (None, asked.gate)
            return self.state.decided.get(asked.key) if asked is not None and meant else None
        gates = [said.gate] if said.gate else list(decisions.Gate)
        return next((d for gate in gates if (d := self.state.decided.get(f"{gate}:{said.of}")) is not None), None)

    def _asked(self, name: str, said: decisions.Deciding) -> decisions.Asked:
        asked = self.state.asked
        if asked is None:
            raise NotCounted(f"nothing waits for a decision: {self._doing()}")
        if (said.of and said.of != asked.of) or (said.gate and said.gate != asked.gate):
            other = " ".join(part for part in (said.gate or "", said.of) if part)
            raise NotCounted(f"it waits for {asked.gate} {asked.of}, not for {other}: {asked.words}")
        if name not in asked.options:
            how = " or ".join(f"{option} {example}" for option, example in asked.examples())
            raise NotCounted(f"{name} does not decide this ({asked.words}): {how}")
        return asked

    def _doing(self) -> str:
        state = self.state
        if state.status is not None:
            return f"it has ended ({state.status.replace('_', ' ')})"
        doing = state.steps[-1].step.replace("_", " ") if state.steps else "preparing"
        return f"it is at {state.held or doing}"

    def _fits(self, name: str, said: decisions.Deciding, asked: decisions.Asked) -> None:
        question = asked.question
        if not isinstance(said, decisions.Answer) or question is None:
            return
        given = " ".join(said.answer.split()).lower()
        if question.kind is decisions.QuestionKind.YES_NO and given not in ("yes", "no"):
            raise NotCounted(f"answer: {said.answer[:60]!r} is neither yes nor no")
        if question.kind is decisions.QuestionKind.CHOICE and given not in [
            choice.lower() for choice in question.choices
        ]:
            raise NotCounted(f"answer: {said.answer[:60]!r} is none of {' / '.join(question.choices)}")

    def _add(self, said: decisions.AddBudget) -> str:
        state = self.state
        decided = decisions.Decided(verdict=decisions.Verdict.APPROVED, by=said.by, at=self.now)
        if said.id:
            if (known := state.decided.get(f"added:{said.id}")) is not None:
                return f"counted before: {known.described}"
            remember(state, f"added:{said.id}", decided)
        state.extra_usd = round(state.extra_usd + said.usd, 6)
        state.extra_tokens += said.tokens
        state.extra_time_s += seconds(said.time) if said.time else 0.0
        if (asked := state.asked) is not None and "add_budget" in asked.options:
            count(state, asked, decided)
        added = [f"${said.usd:g}"] if said.usd else []
        added += [f"{said.tokens:,} tokens"] if said.tokens else []
        added += [said.time] if said.time else []
        return f"added {' and '.join(added)}"


def count(state: DeliveryState, asked: decisions.Asked, decided: decisions.Decided) -> None:
    """Count a decision; one that was made stays."""
    if asked.key not in state.decided:
        remember(state, asked.key, decided)


def remember(state: DeliveryState, key: str, decided: decisions.Decided) -> None:
    state.decided = dict([*state.decided.items(), (key, decided)][-DECIDED_KEPT:])
