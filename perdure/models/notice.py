"""A notice to people about a delivery: as it lies in history, and as it is sent to their addresses."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime
from typing import Any, Literal

from perdure.models.backlog_messages import BacklogProgress
from perdure.models.base import Published, Recorded
from perdure.models.decisions import Asked, Gate, Question
from perdure.models.host_config import Heard
from perdure.models.ids import delivery_key
from perdure.models.request import DeliveryRequest
from perdure.models.result import DeliveryResult, PullRequest
from perdure.models.state import DeliveryState
from perdure.models.webui.backlog import counted

NOTICE_RESULT_BYTES = 32 * 1024
"""Of a result in a notice; with more its steps are left out: the whole has to stay below 64 KiB of history."""


Event = Literal[Heard, "test"]
"""Events of a notice: what people can be told of, and that they can be told."""


class Notice(Recorded):
    """One thing to tell, the argument of workflow `Notification`. Addresses and secrets are the worker's, not in here.

    id          made once for each time something is told: what is sent again after a failure or a death carries the
                same, what is told again after a rewind another
    delivery    the delivery's key; delivery_id: its workflow's id
    at          when it happened
    request     what the delivery is about, in one line
    words       what happened, in one line
    asked       what is waited for, with the event waiting, question, budget or reminder
    cost_usd    spent so far; None: not known
    result      with the event ended: the DeliveryResult as JSON, without its steps where they are long, or a
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
    words: str
    phase: str = ""
    asked: Asked | None = None
    pull_request: PullRequest | None = None
    cost_usd: float | None = 0.0
    result: dict[str, Any] | None = None

    def over(self, state: DeliveryState) -> bool:
        """True where what was asked is decided meanwhile, or what it waited for is there: nobody needs to hear it."""
        if self.asked is None:
            return self.event != "ended" and not state.waiting
        return state.asked is None or state.asked.key != self.asked.key


class Addresses(Recorded):
    """The addresses to be told. `names`: hosts, `hooks.example.com`, the second one there `hooks.example.com (2)`; the
    addresses themselves are secrets."""

    names: tuple[str, ...] = ()


class NotifyInput(Recorded):
    """Tell one address, by its name."""

    delivery: str
    notice: Notice
    to: str


class Notified(Recorded):
    """`status`: of the HTTP answer."""

    status: int


class Decision(Published):
    """A way to decide: the update to send with its JSON, from any Temporal client or the Web UI, or the command."""

    update: str
    said: dict[str, Any]
    command: str


class Links(Published):
    """Pages in a browser; None where there is none or it is not known."""

    web_ui: str | None = None
    pull_request: str | None = None


class Message(Published):
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
    words: str
    gate: Gate | None = None
    of: str | None = None
    question: Question | None = None
    since: datetime | None = None
    expires: datetime | None = None
    decisions: tuple[Decision, ...] = ()
    links: Links = Links()
    cost_usd: float | None = 0.0
    result: dict[str, Any] | None = None


_EVENTS: dict[Gate, Heard] = {Gate.QUESTION: "question", Gate.BUDGET: "budget"}


def event_of(told: str, asked: Asked | None) -> Heard:
    """`waiting` is said of every gate; a question and a limit are told apart for those who listen."""
    if told == "ended":
        return "ended"
    if told == "reminder":
        return "reminder"
    return _EVENTS.get(asked.gate, "waiting") if asked is not None else "waiting"


def notice_of(
    told: str,
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
    """Return the notice of this state. `told`: waiting, reminder, or ended with `result`."""
    title = state.prepared.title if state.prepared else ""
    asked = state.asked if result is None else None
    words = asked.words if asked is not None else result.message if result is not None else state.waiting
    return Notice(
        id=id,
        event=event_of(told, asked),
        at=at,
        delivery=delivery,
        delivery_id=delivery_id,
        run_id=run_id,
        repository=request.repository,
        request=_caption(title or state.title or request.request),
        words=_caption(words, 300),
        phase=state.phase or "",
        asked=asked,
        pull_request=state.pull_request,
        cost_usd=round(state.spend.usd, 6) if state.spend.usd is not None else None,
        result=_bounded(result, "steps") if result is not None else None,
    )


def backlog_notice(progress: BacklogProgress, *, id: str, at: datetime) -> Notice:
    """Return the one notice that a backlog tells: its end, with how many items came to what."""
    told = " · ".join([counted(progress.items), *([progress.message] if progress.message else [])])
    number = re.search(r"\d+$", progress.pull_request)
    pull = PullRequest(number=int(number[0]), url=progress.pull_request, title=told) if number else None
    return Notice(
        id=id,
        event="ended",
        at=at,
        delivery=delivery_key(progress.backlog_id),
        delivery_id=progress.backlog_id,
        run_id=progress.run_id,
        repository=progress.repository,
        request=f"a backlog of {len(progress.items)} items",
        words=_caption(told, 300),
        pull_request=pull,
        cost_usd=progress.usd,
        result=_bounded(progress, "items"),
    )


def decisions(asked: Asked, delivery_id: str) -> tuple[Decision, ...]:
    """Every way to decide it. The commands name what they decide where they can: a message may be read late."""
    id = shlex.quote(delivery_id)
    of = f" --of {shlex.quote(asked.of)}"
    commands = {
        "approve": f"perdure approve {id}{of}",
        "reject": f'perdure reject {id}{of} --note "…"',
        "edit_plan": f"perdure approve {id}{of} --edit",
        "answer": f'perdure answer {id}{of} "…"',
        "add_budget": f"perdure budget {id} --add 5",
    }
    return tuple(
        Decision(update=name, said=json.loads(said), command=commands[name]) for name, said in asked.examples()
    )


def trial_notice(id: str, at: datetime) -> Notice:
    """Return a notice sent to try the addresses. It is about no delivery; `id` is the workflow's that tells it."""
    return Notice(
        id=id,
        event="test",
        at=at,
        delivery="notify-test",
        delivery_id=id,
        run_id="",
        repository="",
        request="",
        words="a test: deliveries can be heard of here",
    )


def _caption(text: str, limit: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _bounded(result: DeliveryResult | BacklogProgress, long: str) -> dict[str, Any]:
    written = result.model_dump(mode="json")
    if len(json.dumps(written)) > NOTICE_RESULT_BYTES:
        written[long] = []
    return written
