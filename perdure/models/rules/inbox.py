"""The rules for what people send to a delivery: messages, each counted once by its id; decisions, each counted once for
the thing it decides, added budget by its id; hold, resume and rewind; and whether a request that comes under an
existing id is the same one. `Inbox` changes the delivery's state by them; nothing is sent or read here. Workflow
`Delivery` applies them; clients and a backlog check a decision by them before they send it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
from typing import Any

from perdure.models.base import PublishedModel
from perdure.models.delivery import decisions
from perdure.models.delivery.request import DeliveryRequest, parse_request
from perdure.models.delivery.state import DeliveryState
from perdure.models.duration import parse_duration
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.issue import is_same_repository, parse_repository_address
from perdure.models.limits import NOTES_KEPT
from perdure.text import format_money, format_tokens, shorten, span

UNREAD_BYTES_KEPT = 256 * 1024
"""Of all messages that no turn has read: eight turns take them, and the state still fits into one payload of a new
run."""

MESSAGE_IDS_KEPT = 500
"""Ids of messages that are remembered: one that comes again, comes within minutes."""

DECISIONS_KEPT = 200
"""Decisions a delivery remembers, so that one that arrives again is answered and not counted."""


DECISION_MODELS: Mapping[str, type[decisions.DecisionUpdate]] = MappingProxyType(
    {
        "approve": decisions.Approve,
        "reject": decisions.Reject,
        "edit_plan": decisions.EditPlan,
        "answer": decisions.Answer,
        "add_budget": decisions.AddBudget,
    }
)

VERDICTS: Mapping[str, decisions.GateVerdict] = MappingProxyType(
    {
        "approve": decisions.GateVerdict.APPROVED,
        "reject": decisions.GateVerdict.REJECTED,
        "edit_plan": decisions.GateVerdict.EDITED,
        "answer": decisions.GateVerdict.ANSWERED,
        "add_budget": decisions.GateVerdict.APPROVED,
    }
)


class NotCounted(BadInput):
    """A message or decision that does not count; `what` says why, in words its sender can use."""


class Inbox:
    """One delivery's inbox at the moment `now`. Its methods change the delivery's state.

    Whatever is sent twice is counted once: the state remembers what was decided, by whom and when.
    """

    def __init__(self, state: DeliveryState, now: datetime | None = None) -> None:
        self.state, self.now = state, now

    def check_decision(self, name: str, raw: Any) -> None:
        """Raise NotCounted for a decision that cannot count: it is not valid, nothing waits for it, or it adds nothing
        to the budget. One that was made before passes, and so does added budget that does not say what it is for,
        whatever the delivery waits for. Nothing is changed.

        name  of the update, a key of DECISION_MODELS; raw: its message
        """
        if raw is None:
            raise NotCounted(f"{name}: expected one JSON object, got null: {{}} decides whatever it waits for")
        decision = self._parse_decision(name, raw)
        if isinstance(decision, decisions.AddBudget):
            if not (decision.usd or decision.tokens or decision.time):
                raise NotCounted('say how much more: {"usd": 5}, {"tokens": 500000} or {"time": "1h"}')
            self._check_host_limits(decision)
            if not decision.target:
                return
        if self._earlier_decision(decision) is None:
            self._check_answer(name, decision, self._require_pending(name, decision))

    def apply_decision(self, name: str, raw: Any) -> str:
        """Record a decision, once; return one line for its sender: what was decided or added, or, for a decision that
        was made before, what was counted then. Budget that does not say what it is for is added whatever the delivery
        waits for.

        Raises NotCounted when a decision is not valid, or nothing waits for one that needs that.
        """
        decision = self._parse_decision(name, raw)
        if isinstance(decision, decisions.AddBudget) and (
            not decision.target or f"added:{decision.id}" in self.state.gates.decided
        ):
            return self._add_budget(decision)
        if (earlier := self._earlier_decision(decision)) is not None:
            return f"counted before: {earlier.description}"
        pending = self._require_pending(name, decision)
        if isinstance(decision, decisions.AddBudget):
            return self._add_budget(decision)
        self._check_answer(name, decision, pending)
        verdict, note, artifact = VERDICTS[name], "", ""
        match decision:
            case decisions.Approve() | decisions.Reject():
                note = decision.note
            case decisions.EditPlan():
                artifact, note = decision.plan, decision.title
            case decisions.Answer():
                note = decision.answer
        counted = decisions.DecisionRecord(
            verdict=verdict, note=note, by=decision.by, artifact=artifact, decided_at=self.now
        )
        record_decision(self.state, pending, counted)
        return f"{verdict}: {pending.gate.replace('_', ' ')} {pending.target}"

    def receive_decision(self, raw: Any) -> None:
        """Record a decision that came as a signal. Nobody can be answered, so nothing is raised.

        A decision that does not count is noted in the state instead: it is not valid, does not say what it decides
        (`of`, or the `id` of added budget), or nothing waits for it. One that comes after another changes nothing, and
        is noted where its verdict or its sender is a different one.
        """
        try:
            signal = decisions.parse_input(decisions.Decide, raw)
            if signal.update not in DECISION_MODELS:
                raise NotCounted(f"unknown decision {signal.update!r}")
            if not (signal.payload.get("of") or (signal.update == "add_budget" and signal.payload.get("id"))):
                raise NotCounted(f"{signal.update}: a decision sent as a signal must say what it decides (of)")
            self.check_decision(signal.update, signal.payload)
            decision = self._parse_decision(signal.update, signal.payload)
            earlier = None if isinstance(decision, decisions.AddBudget) else self._earlier_decision(decision)
            self.apply_decision(signal.update, signal.payload)
            late = decisions.DecisionRecord(verdict=VERDICTS[signal.update], by=decision.by)
            if earlier is not None and (earlier.verdict, earlier.by) != (late.verdict, late.by):
                self.add_note(f"{late.description} came too late: {earlier.description}")
        except (InvalidRequest, NotCounted) as error:
            self.add_note(f"a decision did not count: {error}")

    def receive_message(self, raw: Any) -> None:
        """Record a message for the next turn; one whose id came before is ignored.

        A message that is not valid, or that does not fit behind those that no turn has read yet, becomes a note in the
        state instead; nothing is raised.
        """
        state = self.state
        try:
            message = decisions.parse_input(decisions.Say, raw)
        except InvalidRequest as error:
            self.add_note(f"words were not understood: {error.what}")
            return
        if message.id in state.messages.ids:
            return
        texts = [*(pending.text for pending in state.messages.pending), message.text]
        if sum(len(text.encode()) for text in texts) > UNREAD_BYTES_KEPT:
            waiting, shown = len(state.messages.pending), shorten(message.text, 60)
            self.add_note(f"words did not fit behind {waiting} that no turn has read yet: {shown}")
            return
        state.messages.count += 1
        state.messages.ids = (*state.messages.ids, message.id)[-MESSAGE_IDS_KEPT:] if message.id else state.messages.ids
        unread_ids, id = (
            [pending.id for pending in state.messages.pending],
            message.id or f"said-{state.messages.count}",
        )
        while id in unread_ids:  # somebody has chosen one that was given to other words
            id += "'"
        state.messages.pending += (decisions.UserMessage(id=id, text=message.text),)

    def apply_hold(self, raw: Any) -> None:
        """Hold the delivery, so that no further turn begins; a message that is not valid holds it too, without a
        note."""
        request = decisions.Hold()
        with suppress(InvalidRequest):
            request = decisions.parse_input(decisions.Hold, raw)
        self.state.gates.hold_reason = decisions.describe_hold(request.note, request.by)

    def apply_resume(self) -> None:
        """Remove a hold and an announced rewind, so that turns begin again."""
        self.state.gates.hold_reason, self.state.gates.rewinding_to = "", ""

    def apply_rewind(self, raw: Any, run_id: str) -> datetime | None:
        """Record an announced rewind, or complete one.

        In the run that the rewind begins from (`request.from_run`), it is announced: no further turn begins. In the run
        that the server's reset made, it is completed: earlier messages and holds are dropped, the message that came
        with it is added, and its contract, when it has one, replaces the delivery's.

        Returns when the turn began that is taken again, if the rewind says so; else None: also when it is only
        announced, came before, or is not valid, which becomes a note in the state.

        run_id  of this run
        """
        state = self.state
        try:
            request = decisions.parse_input(decisions.Rewind, raw)
        except InvalidRequest as error:
            self.add_note(f"a rewind was not understood: {error.what}")
            return None
        if request.from_run == run_id:
            state.gates.rewinding_to = request.to or "an earlier turn"
            return None
        if request.id and request.id in state.messages.ids:  # a command that was killed, and was run again
            return None
        state.messages.pending, state.gates.hold_reason, state.gates.rewinding_to = (), "", ""
        if request.text:
            self.receive_message({"text": request.text, "id": request.id})
        elif request.id:
            state.messages.ids = (*state.messages.ids, request.id)[-MESSAGE_IDS_KEPT:]
        if request.policy and state.prepared is not None:
            models = request.models or state.prepared.agents.models
            agents = {"models": models, "unpriced": request.unpriced, "proxied": True}
            state.prepared = state.prepared.with_changes({"agents": agents}, contract=request.policy)
        return request.since

    def add_note(self, text: str) -> None:
        """Add a note for people to the state, cut at 300 characters; beyond NOTES_KEPT notes it is dropped."""
        if len(self.state.notes) < NOTES_KEPT:
            self.state.notes += (shorten(text, 300),)

    def _parse_decision(self, name: str, raw: Any) -> decisions.DecisionUpdate:
        """Return the decision that an update of this name brought. Raises NotCounted for one that is not valid."""
        try:
            return decisions.parse_input(DECISION_MODELS[name], raw)
        except InvalidRequest as error:
            raise NotCounted(error.what) from None

    def _earlier_decision(self, decision: decisions.DecisionUpdate) -> decisions.DecisionRecord | None:
        """Return the decision that was counted before about the same thing; None when there is none.

        A decision that does not name what it decides means what waits now, also in the moment after somebody has
        decided that and before the delivery has gone on, so that it cannot undo what was decided.
        """
        pending = self.state.gates.pending_decision
        if not decision.target:
            is_meant = pending is not None and decision.gate in (None, pending.gate)
            return self.state.gates.decided.get(pending.key) if pending is not None and is_meant else None
        gates = [decision.gate] if decision.gate else list(decisions.Gate)
        return next(
            (
                earlier
                for gate in gates
                if (earlier := self.state.gates.decided.get(f"{gate}:{decision.target}")) is not None
            ),
            None,
        )

    def _require_pending(self, name: str, decision: decisions.DecisionUpdate) -> decisions.PendingDecision:
        """Return the decision that the delivery waits for. Raises NotCounted when it waits for none, for another than
        this one names, or for one that update `name` does not decide."""
        pending = self.state.gates.pending_decision
        if pending is None:
            raise NotCounted(f"nothing waits for a decision: {self._activity_text()}")
        if (decision.target and decision.target != pending.target) or (decision.gate and decision.gate != pending.gate):
            other = " ".join(part for part in (decision.gate or "", decision.target) if part)
            raise NotCounted(f"it waits for {pending.gate} {pending.target}, not for {other}: {pending.summary}")
        if name not in pending.options:
            accepted_updates = " or ".join(f"{option} {example}" for option, example in pending.example_updates())
            raise NotCounted(f"{name} does not decide this ({pending.summary}): {accepted_updates}")
        return pending

    def _activity_text(self) -> str:
        """Return what the delivery does instead of waiting for a decision: `it is at run tests`, `it is at held: …`,
        `it has ended (…)`."""
        state = self.state
        if state.status is not None:
            return f"it has ended ({state.status.replace('_', ' ')})"
        activity = state.steps[-1].step.replace("_", " ") if state.steps else "preparing"
        return f"it is at {state.gates.hold_reason or activity}"

    def _check_answer(self, name: str, decision: decisions.DecisionUpdate, pending: decisions.PendingDecision) -> None:
        """Raise NotCounted for an answer that is none of a question's choices, or neither yes nor no to a question of
        that kind.

        Other answers and decisions always pass.
        """
        question = pending.question
        if not isinstance(decision, decisions.Answer) or question is None:
            return
        answer = " ".join(decision.answer.split()).lower()
        if question.kind is decisions.QuestionKind.YES_NO and answer not in ("yes", "no"):
            raise NotCounted(f"answer: {shorten(decision.answer, 60)!r} is neither yes nor no")
        if question.kind is decisions.QuestionKind.CHOICE and answer not in [
            choice.lower() for choice in question.choices
        ]:
            raise NotCounted(f"answer: {shorten(decision.answer, 60)!r} is none of {' / '.join(question.choices)}")

    def _check_host_limits(self, increase: decisions.AddBudget) -> None:
        """Raise NotCounted for an increase beyond what the delivery's host lets one delivery have; one that was counted
        before passes."""
        state, prepared = self.state, self.state.prepared
        if prepared is None or f"added:{increase.id}" in state.gates.decided:
            return
        limits, extra = prepared.limits, state.budget
        added_time_s = parse_duration(increase.time) if increase.time else 0.0
        increases: tuple[tuple[Any, Any, Any, Callable[[Any], str]], ...] = (
            (increase.usd, limits.budget_usd + extra.extra_usd, limits.most_usd, format_money),
            (increase.tokens, limits.budget_tokens + extra.extra_tokens, limits.most_tokens, format_tokens),
            (added_time_s, limits.time_s + extra.extra_time_s, limits.most_time_s, span),
        )
        for added, now, most, show in increases:
            if added and most is not None and round(now + added, 6) > most:
                raise NotCounted(
                    f"{show(now)} and {show(added)} more is over {show(most)}, the most on the delivery's host; to "
                    "raise that: [limits] in the user file there, perdure down && perdure up, perdure retry"
                )

    def _add_budget(self, increase: decisions.AddBudget) -> str:
        """Add dollars, tokens and time to the delivery's budget, once for each id; return a line for the sender that
        says what was added, or that it was counted before.

        When the delivery waits for its budget to be raised, that decision is recorded as approved.
        """
        state = self.state
        decided = decisions.DecisionRecord(verdict=decisions.GateVerdict.APPROVED, by=increase.by, decided_at=self.now)
        if increase.id:
            if (earlier := state.gates.decided.get(f"added:{increase.id}")) is not None:
                return f"counted before: {earlier.description}"
            store_decision(state, f"added:{increase.id}", decided)
        state.budget.extra_usd = round(state.budget.extra_usd + increase.usd, 6)
        state.budget.extra_tokens += increase.tokens
        state.budget.extra_time_s += parse_duration(increase.time) if increase.time else 0.0
        if (pending := state.gates.pending_decision) is not None and "add_budget" in pending.options:
            record_decision(state, pending, decided)
        added = [f"${increase.usd:g}"] if increase.usd else []
        added += [f"{increase.tokens:,} tokens"] if increase.tokens else []
        added += [increase.time] if increase.time else []
        return f"added {' and '.join(added)}"


def record_decision(
    state: DeliveryState, pending: decisions.PendingDecision, decided: decisions.DecisionRecord
) -> None:
    """Record a decision about what waits; do nothing when one was made before."""
    if pending.key not in state.gates.decided:
        store_decision(state, pending.key, decided)


def store_decision(state: DeliveryState, key: str, decided: decisions.DecisionRecord) -> None:
    """Store a decision in the state under this key; only the newest DECISIONS_KEPT stay."""
    state.gates.decided = dict([*state.gates.decided.items(), (key, decided)][-DECISIONS_KEPT:])


class DeliveryAttached(PublishedModel):
    """The answer to update `attach`: the delivery of this id has been accepted, just now or before.

    request  what it is about, in one line of at most 200 characters
    issue    the number of the issue that says so
    """

    delivery_id: str
    run_id: str
    repository: str
    request: str
    issue: int | None = None


def delivery_attached(request: DeliveryRequest, delivery_id: str, run_id: str) -> DeliveryAttached:
    """Return the answer to update `attach`: the delivery's and its run's id, repository, request and issue, which
    whoever attaches can compare with what they meant."""
    return DeliveryAttached(
        delivery_id=delivery_id,
        run_id=run_id,
        repository=request.repository,
        request=shorten(request.caption, 200),
        issue=request.issue_number,
    )


def conflicting_delivery(existing: DeliveryRequest, sent: DeliveryRequest) -> str:
    """Return, in words, what the existing delivery is about, when that is not what was sent; empty: both are about the
    same.

    Compared are the repository and the issue, and without an issue the text: `me/calc` and `you/calc` share ids.
    """
    if not is_same_repository(existing.repository, sent.repository):
        return f"another repository, {shorten(existing.repository, 200)}"
    is_other_issue = existing.issue_number != sent.issue_number
    if is_other_issue or (sent.issue_number is None and existing.caption != sent.caption):
        return f"another request there: {shorten(existing.caption, 80)}"
    return ""


_COMPARED_OR_OURS = {
    "repository",
    "request",
    "issue",
    "source",
    "proof",
    "host",
    "spec_version",
    "resume",
    "forked",
    "landing",
}
"""Fields that tell a request from others, or that nobody types."""


def ignored_request_fields(existing: DeliveryRequest, sent: DeliveryRequest) -> tuple[str, ...]:
    """Return the fields that were sent with a request and differ from those of the delivery that exists: they change
    nothing."""
    typed = sent.model_dump(exclude_defaults=True).keys() - _COMPARED_OR_OURS
    return tuple(sorted(name for name in typed if getattr(existing, name) != getattr(sent, name)))


def request_key(request: DeliveryRequest) -> tuple[str, ...]:
    """Return the texts that say what a request is for, equal for equal requests: repository, text or issue, base,
    branch, phases, plan, fix and push. Price, model and gates do not count."""
    repository = "/".join(
        parse_repository_address(request.repository) or (request.repository.rstrip("/").removesuffix(".git"),)
    )
    phases = ",".join(request.phases) if request.phases is not None else ""
    switches = f"{request.fix:d}{request.push:d}"
    return (repository, request.caption, request.base or "", request.branch or "", phases, request.plan or "", switches)


def is_same_request(existing: DeliveryRequest, sent: DeliveryRequest) -> bool:
    """Return True when two requests are for the same, so that whoever sends the second means the first.

    It compares `request_key` of both, but a repository may be written in two ways.
    """
    return (
        is_same_repository(existing.repository, sent.repository) and request_key(existing)[1:] == request_key(sent)[1:]
    )


def delivery_attach_refusal(existing: DeliveryRequest, raw: Any) -> str:
    """Return the reason why whoever sent `raw` cannot attach to the existing delivery; empty: they can.

    raw  the request as it was sent; None or {} fits every delivery. The reason for an invalid one names its field
    """
    if raw is None or raw == {}:
        return ""
    try:
        conflict = conflicting_delivery(existing, parse_request(raw))
    except InvalidRequest as error:
        return error.what
    return f"the id is taken by {conflict}" if conflict else ""
