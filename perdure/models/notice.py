"""A notice to people about a delivery or a backlog: `Notice` as it lies in Temporal history, `WebhookMessage` as it is
sent to their addresses, and how notices are made. Sending is in perdure/adapters/notify."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from perdure.models.backlog.state import BacklogProgress
from perdure.models.base import HistoryModel, PublishedModel
from perdure.models.config.host import NoticeEvent
from perdure.models.delivery.decisions import Gate, PendingDecision, Question
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import DeliveryResult, PullRequest, Reason
from perdure.models.delivery.state import DeliveryState
from perdure.models.ids import delivery_key
from perdure.models.webui.backlog import count_phases
from perdure.models.webui.captions import backlog_title, delivery_title
from perdure.text import one_line, shell_word

NOTICE_RESULT_BYTES = 32 * 1024
"""Of a result in a notice; above that its steps are left out: the notice must stay below 64 KiB of history."""


Event = Literal[NoticeEvent, "test"]
"""Events of a notice: what people can be told of, and `test`, which only shows that notices arrive."""


class Notice(HistoryModel):
    """One event to tell people of, the argument of workflow `Notification`. Addresses and secrets are the worker's, not
    in here.

    id                made once for each event that is told: what is sent again after a failure or a death carries the
                      same, what is told again after a rewind another
    delivery          the delivery's key; delivery_id: its workflow's id
    at                when it happened
    request           what the delivery is about, in one line
    summary           what happened, in one line
    pending_decision  what is waited for, with the event waiting, question, budget or reminder
    cost_usd          spent so far; None: not known
    refused           with the event ended: the request was refused, and what it says of an earlier run is not believed
    result            with the event ended: the DeliveryResult as JSON, without its steps where they are long, or a
                      backlog's progress, likewise
    """

    id: str
    event: Event
    at: datetime
    delivery: str
    delivery_id: str
    run_id: str
    repository: str
    request: str
    summary: str
    phase: str = ""
    pending_decision: PendingDecision | None = None
    pull_request: PullRequest | None = None
    cost_usd: float | None = 0.0
    refused: bool = False
    result: dict[str, Any] | None = None

    def is_outdated(self, waiting: str, pending_decision: PendingDecision | None) -> bool:
        """Return True when nobody needs this notice any more: its decision was made, or its wait is over. A notice of
        an end never is.

        waiting, pending_decision  what its delivery waits for now
        """
        if self.pending_decision is None:
            return self.event not in ("ended", "test") and not waiting
        return pending_decision is None or pending_decision.key != self.pending_decision.key


class Addresses(HistoryModel):
    """The addresses that are sent notices, by name; the addresses themselves are secrets.

    names  the host of each, `hooks.example.com`; a second one there is `hooks.example.com (2)`
    """

    names: tuple[str, ...] = ()


class NotifyInput(HistoryModel):
    """Send a notice to one address, named by `to`."""

    delivery: str
    notice: Notice
    to: str


class NotifyResult(HistoryModel):
    """The result of sending a notice. `status`: of the HTTP answer; 0: nothing was sent, as nobody waits any more."""

    status: int


class DecisionOption(PublishedModel):
    """A way to decide: the update to send with its JSON, from any Temporal client or the Web UI, or the command."""

    update: str
    payload: Annotated[dict[str, Any], Field(alias="said")]
    command: str


class Links(PublishedModel):
    """Pages in a browser; None where there is none or it is not known."""

    web_ui: str | None = None
    pull_request: str | None = None


class WebhookMessage(PublishedModel):
    """The body of a webhook's request: JSON, Content-Type application/json.

    text        everything for a person, in the markup of Slack's incoming webhooks, which Mattermost understands
    version     of this shape: fields are added within it, none changes its meaning
    event       waiting (for approval: of a plan, of tests or of a pull request; with gate null, for a day's budget),
                question, budget, reminder (of one of these), ended; test: whether this arrives, no delivery is meant
    id          the same when it is sent again: keep it to tell twice-sent from new; header webhook-id says it, too
    at          when it happened, RFC 3339
    delivery_id, run_id   the Temporal workflow's
    request     what the delivery is about, in one line
    phase       where it is
    words       what happened, in one line
    gate, of    what is decided: plan, pull_request, budget or question, and its name; null with ended
    question    what an agent asked, its kind, choices, and why it matters
    since, expires   when it began to wait, and when it ends without a decision; null: never
    decisions   the ways to decide
    cost_usd    spent so far, in dollars; null: not known
    result      with ended: the DeliveryResult, or of a backlog the BacklogProgress, which has a backlog_id; steps
                and items are left out where they are long
    """

    text: str
    version: Literal[1] = 1
    event: Event
    id: str
    at: datetime
    delivery_id: str
    run_id: str
    repository: str
    request: str
    phase: str | None = None
    summary: Annotated[str, Field(alias="words")]
    gate: Gate | None = None
    target: Annotated[str | None, Field(alias="of")] = None
    question: Question | None = None
    since: datetime | None = None
    expires: datetime | None = None
    decisions: tuple[DecisionOption, ...] = ()
    links: Links = Links.model_construct()
    cost_usd: float | None = 0.0
    result: dict[str, Any] | None = None


_EVENTS: dict[Gate, NoticeEvent] = {Gate.QUESTION: "question", Gate.BUDGET: "budget"}


def notice_event(kind: str, pending_decision: PendingDecision | None) -> NoticeEvent:
    """Return the event of a notice: `ended` and `reminder` as `kind` says; for a delivery that waits, `question` or
    `budget` at those gates, else `waiting`.

    kind              waiting, reminder or ended
    pending_decision  what it waits for; None: no person decides it
    """
    if kind == "ended":
        return "ended"
    if kind == "reminder":
        return "reminder"
    return _EVENTS.get(pending_decision.gate, "waiting") if pending_decision is not None else "waiting"


def notice_of(
    kind: str,
    state: DeliveryState,
    request: DeliveryRequest,
    *,
    id: str,
    delivery: str,
    delivery_id: str,
    run_id: str,
    at: datetime,
    result: DeliveryResult | None = None,
) -> Notice:
    """Return a notice about a delivery in this state. What happened is told by the result's message if there is a
    result, else by the pending decision, else by what the delivery waits for. A pending decision beside a result is
    left out.

    kind    waiting, reminder or ended
    result  of a delivery that has ended; its steps are left out when they are long
    id      the notice's; delivery: the delivery's key; delivery_id: its workflow's id; at: when it happened
    """
    pending_decision = state.gates.pending_decision if result is None else None
    summary = (
        pending_decision.summary
        if pending_decision is not None
        else result.message
        if result is not None
        else state.waiting
    )
    return Notice(
        id=id,
        event=notice_event(kind, pending_decision),
        at=at,
        delivery=delivery,
        delivery_id=delivery_id,
        run_id=run_id,
        repository=request.repository,
        request=delivery_title(state, request),
        summary=one_line(summary, 300),
        phase=state.phase or "",
        pending_decision=pending_decision,
        pull_request=state.publishing.pull_request,
        cost_usd=round(state.spending.spend.usd, 6) if state.spending.spend.usd is not None else None,
        refused=result is not None and result.reason is Reason.INVALID_REQUEST,
        result=_dump_bounded(result, "steps") if result is not None else None,
    )


def backlog_notice(progress: BacklogProgress, *, id: str, at: datetime, refused: bool = False) -> Notice:
    """Return the one notice that a backlog sends: that it has ended, how many items are in which phase, its cost and
    its pull request, if there is one. `refused`: its request was."""
    summary = " · ".join([count_phases(progress.items), *([progress.message] if progress.message else [])])
    number = re.search(r"\d+$", progress.pull_request)
    pull = PullRequest(number=int(number[0]), url=progress.pull_request, title=summary) if number else None
    return Notice(
        id=id,
        event="ended",
        at=at,
        delivery=delivery_key(progress.backlog_id),
        delivery_id=progress.backlog_id,
        run_id=progress.run_id,
        repository=progress.repository,
        request=backlog_title([item.id for item in progress.items]),
        summary=one_line(summary, 300),
        pull_request=pull,
        cost_usd=progress.usd,
        refused=refused,
        result=_dump_bounded(progress, "items"),
    )


def decision_options(pending_decision: PendingDecision, delivery_id: str) -> tuple[DecisionOption, ...]:
    """Return every way to decide what a delivery waits for: the update to send with its JSON, and the command to type.

    All commands but that for budget name what they decide, because a message may be read late.
    """
    quoted_id = shell_word(delivery_id)
    target_option = f" --of {shell_word(pending_decision.target)}"
    commands = {
        "approve": f"perdure approve {quoted_id}{target_option}",
        "reject": f'perdure reject {quoted_id}{target_option} --note "…"',
        "edit_plan": f"perdure approve {quoted_id}{target_option} --edit",
        "answer": f'perdure answer {quoted_id}{target_option} "…"',
        "add_budget": f"perdure budget {quoted_id} {pending_decision.budget_options}",
    }
    return tuple(
        DecisionOption(update=name, payload=json.loads(payload), command=commands[name])
        for name, payload in pending_decision.example_updates()
    )


def trial_notice(id: str, at: datetime) -> Notice:
    """Return a notice that only shows that notices arrive. It is about no delivery; `id` is that of the workflow that
    sends it."""
    return Notice(
        id=id,
        event="test",
        at=at,
        delivery="notify-test",
        delivery_id=id,
        run_id="",
        repository="",
        request="",
        summary="a test: deliveries can be heard of here",
    )


def _dump_bounded(result: DeliveryResult | BacklogProgress, list_field: str) -> dict[str, Any]:
    """Return the result as JSON; when it is longer than NOTICE_RESULT_BYTES, with the list in field `list_field`
    emptied."""
    dumped = result.model_dump(mode="json")
    if len(json.dumps(dumped)) > NOTICE_RESULT_BYTES:
        dumped[list_field] = []
    return dumped
