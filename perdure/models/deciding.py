"""What counts of that which people send to a delivery: pure decisions over its state, each counted once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from perdure.models.config import seconds
from perdure.models.decisions import (
    AddBudget,
    Answer,
    Approve,
    Asked,
    Decide,
    Decided,
    Deciding,
    EditPlan,
    Gate,
    Hold,
    QuestionKind,
    Reject,
    Said,
    Say,
    Verdict,
    understood,
)
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.policy import DECIDED_KEPT, NOTES_KEPT
from perdure.models.state import DeliveryState

SHAPES: dict[str, type[Deciding]] = {
    "approve": Approve,
    "reject": Reject,
    "edit_plan": EditPlan,
    "answer": Answer,
    "add_budget": AddBudget,
}


class NotCounted(BadInput):
    """What was sent does not count; `what` says why, in words its sender can use."""


class Inbox:
    """One delivery's inbox. Whatever is sent twice is counted once: the state remembers what was decided."""

    def __init__(self, state: DeliveryState) -> None:
        self.state = state

    def check(self, name: str, raw: Any) -> None:
        """Refuse what cannot count: before it enters history, and in words its sender can use."""
        said = self._read(name, raw)
        if isinstance(said, AddBudget):
            if not (said.usd or said.tokens or said.time):
                raise NotCounted('say how much more: {"usd": 5}, {"tokens": 500000} or {"time": "1h"}')
            if not said.of:
                return
        if self._known(said) is None:
            self._fits(name, said, self._asked(name, said))

    def decide(self, name: str, raw: Any) -> str:
        """Count a decision, once; what its sender reads. Repeated, the answer says what was counted."""
        said = self._read(name, raw)
        if (known := self._known(said)) is not None:
            return f"counted before: {known.verdict}"
        if isinstance(said, AddBudget):
            return self._add(said)
        asked = self._asked(name, said)
        self._fits(name, said, asked)
        verdict, note, artifact = Verdict.APPROVED, "", ""
        match said:
            case Approve():
                note = said.note
            case Reject():
                verdict, note = Verdict.REJECTED, said.note
            case EditPlan():
                verdict, artifact, note = Verdict.EDITED, said.plan, said.title
            case Answer():
                verdict, note = Verdict.ANSWERED, said.answer
        count(self.state, asked, Decided(verdict=verdict, note=note, by=said.by, artifact=artifact))
        return f"{verdict}: {asked.gate.replace('_', ' ')} {asked.of}"

    def hear_decision(self, raw: Any) -> None:
        """A decision that came as a signal: nobody is there to be answered, so what does not count is noted."""
        try:
            sent = understood(Decide, raw)
            if sent.update not in SHAPES:
                raise NotCounted(f"unknown decision {sent.update!r}")
            if not sent.said.get("of"):
                raise NotCounted(f"{sent.update}: a decision sent as a signal must say what it decides (of)")
            self.check(sent.update, sent.said)
            self.decide(sent.update, sent.said)
        except (InvalidRequest, NotCounted) as error:
            self._note(f"a decision did not count: {error}")

    def hear(self, raw: Any) -> None:
        """Words for the next turn; the same id is heard once."""
        try:
            said = understood(Say, raw)
        except InvalidRequest as error:
            self._note(f"words were not understood: {error.what}")
            return
        id = said.id or f"said-{len(self.state.heard) + 1}"
        if id not in self.state.heard:
            self.state.heard += (id,)
            self.state.said += (Said(id=id, text=said.text),)

    def hold(self, raw: Any) -> None:
        with suppress(InvalidRequest):
            note = understood(Hold, raw).note
            self.state.held = f"held: {note}" if note else "held by a person: resume lets it go on"

    def resume(self) -> None:
        self.state.held = ""

    def _note(self, words: str) -> None:
        if len(self.state.notes) < NOTES_KEPT:
            self.state.notes += (words[:300],)

    def _read(self, name: str, raw: Any) -> Deciding:
        try:
            return understood(SHAPES[name], raw)
        except InvalidRequest as error:
            raise NotCounted(error.what) from None

    def _known(self, said: Deciding) -> Decided | None:
        if not said.of:
            return None
        gates = [said.gate] if said.gate else list(Gate)
        return next((d for gate in gates if (d := self.state.decided.get(f"{gate}:{said.of}")) is not None), None)

    def _asked(self, name: str, said: Deciding) -> Asked:
        asked = self.state.asked
        if asked is None:
            doing = self.state.steps[-1].step.replace("_", " ") if self.state.steps else "preparing"
            raise NotCounted(f"nothing waits for a decision: it is at {self.state.held or doing}")
        if (said.of and said.of != asked.of) or (said.gate and said.gate != asked.gate):
            other = " ".join(part for part in (said.gate or "", said.of) if part)
            raise NotCounted(f"it waits for {asked.gate} {asked.of}, not for {other}: {asked.words}")
        if name not in asked.options:
            how = " or ".join(f"{option} {example}" for option, example in asked.examples())
            raise NotCounted(f"{name} does not decide this ({asked.words}): {how}")
        return asked

    def _fits(self, name: str, said: Deciding, asked: Asked) -> None:
        question = asked.question
        if not isinstance(said, Answer) or question is None:
            return
        given = " ".join(said.answer.split()).lower()
        if question.kind is QuestionKind.YES_NO and given not in ("yes", "no"):
            raise NotCounted(f"answer: {said.answer[:60]!r} is neither yes nor no")
        if question.kind is QuestionKind.CHOICE and given not in [choice.lower() for choice in question.choices]:
            raise NotCounted(f"answer: {said.answer[:60]!r} is none of {', '.join(question.choices)}")

    def _add(self, said: AddBudget) -> str:
        state = self.state
        state.extra_usd = round(state.extra_usd + said.usd, 6)
        state.extra_tokens += said.tokens
        state.extra_time_s += seconds(said.time) if said.time else 0.0
        if (asked := state.asked) is not None and asked.gate is Gate.BUDGET:
            count(self.state, asked, Decided(verdict=Verdict.APPROVED, by=said.by))
        added = [f"${said.usd:g}"] if said.usd else []
        added += [f"{said.tokens:,} tokens"] if said.tokens else []
        added += [said.time] if said.time else []
        return f"added {' and '.join(added)}"


def count(state: DeliveryState, asked: Asked, decided: Decided) -> None:
    state.decided = dict([*state.decided.items(), (asked.key, decided)][-DECIDED_KEPT:])
