"""Every shape that crosses the border of a delivery or backlog: its name, its model, how it travels, examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel

from perdure.models.backlog import request, state
from perdure.models.backlog.following import Follow
from perdure.models.checks.report import Findings, Review, TestReport
from perdure.models.delivery import decisions
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.state import Progress
from perdure.models.delivery.steps import Plan
from perdure.models.events import Event
from perdure.models.notice import WebhookMessage
from perdure.models.rules.inbox import DeliveryAttached
from schemas import backlog_examples, examples


@dataclass(frozen=True)
class PublishedShape:
    """A published shape.

    name   of its schema's file
    how    it travels: as what argument, update, signal, answer or artifact
    sent   to a delivery or a backlog; False: it comes from one
    """

    name: str
    model: type[BaseModel]
    how: str
    examples: Callable[[], list[dict[str, Any]]]
    sent: bool = False


SHAPES: tuple[PublishedShape, ...] = (
    PublishedShape(
        "request",
        DeliveryRequest,
        "the argument of workflow type `Delivery`, and of update `attach`, which takes `{}` too",
        examples.request_examples,
        sent=True,
    ),
    PublishedShape("approve", decisions.Approve, "update `approve`", examples.approval_examples, sent=True),
    PublishedShape("reject", decisions.Reject, "update `reject`", examples.rejection_examples, sent=True),
    PublishedShape("edit_plan", decisions.EditPlan, "update `edit_plan`", examples.plan_edit_examples, sent=True),
    PublishedShape("answer", decisions.Answer, "update `answer`", examples.answer_examples, sent=True),
    PublishedShape("add_budget", decisions.AddBudget, "update `add_budget`", examples.budget_examples, sent=True),
    PublishedShape("say", decisions.Say, "signal `say`", examples.user_message_examples, sent=True),
    PublishedShape("hold", decisions.Hold, "signal `hold`", examples.hold_examples, sent=True),
    PublishedShape("resume", decisions.Resume, "signal `resume`", examples.resume_examples, sent=True),
    PublishedShape(
        "rewind", decisions.Rewind, "signal `rewind`, just before the reset", examples.rewind_examples, sent=True
    ),
    PublishedShape("decide", decisions.Decide, "signal `decide`", examples.signalled_decision_examples, sent=True),
    PublishedShape(
        "backlog",
        request.BacklogRequest,
        "the argument of workflow type `Backlog`, and of its update `attach`, which takes `{}` too; a file of items",
        backlog_examples.backlog_examples,
        sent=True,
    ),
    PublishedShape(
        "add_item",
        state.AddItem,
        "updates `add` and `edit` of a backlog",
        backlog_examples.added_item_examples,
        sent=True,
    ),
    PublishedShape(
        "named_item",
        state.NamedItem,
        "updates `skip`, `retry` and `cancel_item` of a backlog",
        backlog_examples.named_item_examples,
        sent=True,
    ),
    PublishedShape(
        "prioritised_item",
        state.PrioritisedItem,
        "update `prioritise` of a backlog",
        backlog_examples.prioritised_item_examples,
        sent=True,
    ),
    *(
        PublishedShape(
            f"item_{name}",
            model,
            f"update `{name}` of a backlog",
            partial(backlog_examples.item_decision_examples, decision_examples),
            sent=True,
        )
        for name, model, decision_examples in (
            ("approve", state.ApproveItem, examples.approval_examples),
            ("reject", state.RejectItem, examples.rejection_examples),
            ("edit_plan", state.EditPlanOfItem, examples.plan_edit_examples),
            ("answer", state.AnswerItem, examples.answer_examples),
            ("add_budget", state.AddBudgetToItem, examples.budget_examples),
        )
    ),
    PublishedShape("follow", Follow, "update `follow` of a backlog", backlog_examples.follow_examples, sent=True),
    PublishedShape(
        "result",
        DeliveryResult,
        "what the workflow returns, and the first detail of its failure `NotDelivered`",
        examples.result_examples,
    ),
    PublishedShape(
        "event", Event, "one line of `perdure events --json`, and `Delivery.events()`", examples.event_examples
    ),
    PublishedShape("attached", DeliveryAttached, "the answer to update `attach`", examples.attached_examples),
    PublishedShape("progress", Progress, "the answer to query `progress`", examples.delivery_progress_examples),
    PublishedShape(
        "backlog_progress",
        state.BacklogProgress,
        "what a backlog returns, and its answer to query `progress`",
        backlog_examples.progress_examples,
    ),
    PublishedShape(
        "backlog_attached",
        state.BacklogAttached,
        "the answer to update `attach` of a backlog",
        backlog_examples.attachment_examples,
    ),
    PublishedShape("notice", WebhookMessage, "the body of a webhook's request", examples.notice_examples),
    PublishedShape(
        "plan",
        Plan,
        "artifact, named by `plan` of a result unless a plan came with the request",
        examples.plan_examples,
    ),
    PublishedShape(
        "test_report", TestReport, "artifact, named by `tests.report` of a result", examples.test_report_examples
    ),
    PublishedShape("review", Review, "artifact, named by `review.report` of a result", examples.review_examples),
    PublishedShape("findings", Findings, "artifact, named by `review.findings` of a result", examples.finding_examples),
)
