"""Every shape that crosses the border of a delivery: its name, its model, how it travels, examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel

from perdure.models import backlog, backlog_messages, decisions
from perdure.models.events import Event
from perdure.models.following import Follow
from perdure.models.notice import Message
from perdure.models.plan import Plan
from perdure.models.report import Findings, Review, TestReport
from perdure.models.request import DeliveryRequest
from perdure.models.result import DeliveryResult
from perdure.models.rules.attaching import Attached
from perdure.models.state import Progress
from schemas import backlog_examples, examples


@dataclass(frozen=True)
class Shape:
    """`name` is its file's; `how` says by what it travels; `sent`: to a delivery or a backlog, otherwise from one."""

    name: str
    model: type[BaseModel]
    how: str
    examples: Callable[[], list[dict[str, Any]]]
    sent: bool = False


SHAPES: tuple[Shape, ...] = (
    Shape(
        "request",
        DeliveryRequest,
        "the argument of workflow type `Delivery`, and of update `attach`, which takes `{}` too",
        examples.requests,
        sent=True,
    ),
    Shape("approve", decisions.Approve, "update `approve`", examples.approvals, sent=True),
    Shape("reject", decisions.Reject, "update `reject`", examples.rejections, sent=True),
    Shape("edit_plan", decisions.EditPlan, "update `edit_plan`", examples.edits, sent=True),
    Shape("answer", decisions.Answer, "update `answer`", examples.answers, sent=True),
    Shape("add_budget", decisions.AddBudget, "update `add_budget`", examples.budgets, sent=True),
    Shape("say", decisions.Say, "signal `say`", examples.words, sent=True),
    Shape("hold", decisions.Hold, "signal `hold`", examples.holds, sent=True),
    Shape("resume", decisions.Resume, "signal `resume`", examples.resumes, sent=True),
    Shape("rewind", decisions.Rewind, "signal `rewind`, just before the reset", examples.rewinds, sent=True),
    Shape("decide", decisions.Decide, "signal `decide`", examples.signalled, sent=True),
    Shape(
        "backlog",
        backlog.BacklogRequest,
        "the argument of workflow type `Backlog`, and of its update `attach`, which takes `{}` too; a file of items",
        backlog_examples.backlogs,
        sent=True,
    ),
    Shape(
        "add_item",
        backlog_messages.AddItem,
        "updates `add` and `edit` of a backlog",
        backlog_examples.added_items,
        sent=True,
    ),
    Shape(
        "named_item",
        backlog_messages.NamedItem,
        "updates `skip`, `retry` and `cancel_item` of a backlog",
        backlog_examples.named_items,
        sent=True,
    ),
    Shape(
        "prioritised_item",
        backlog_messages.PrioritisedItem,
        "update `prioritise` of a backlog",
        backlog_examples.prioritised_items,
        sent=True,
    ),
    *(
        Shape(
            f"item_{name}", model, f"update `{name}` of a backlog", partial(backlog_examples.decided, told), sent=True
        )
        for name, model, told in (
            ("approve", backlog_messages.ApproveItem, examples.approvals),
            ("reject", backlog_messages.RejectItem, examples.rejections),
            ("edit_plan", backlog_messages.EditPlanOfItem, examples.edits),
            ("answer", backlog_messages.AnswerItem, examples.answers),
            ("add_budget", backlog_messages.AddBudgetToItem, examples.budgets),
        )
    ),
    Shape("follow", Follow, "update `follow` of a backlog", backlog_examples.follows, sent=True),
    Shape(
        "result",
        DeliveryResult,
        "what the workflow returns, and the first detail of its failure `NotDelivered`",
        examples.results,
    ),
    Shape("event", Event, "one line of `perdure events --json`, and `Delivery.events()`", examples.events),
    Shape("attached", Attached, "the answer to update `attach`", examples.attachments),
    Shape("progress", Progress, "the answer to query `progress`", examples.progresses),
    Shape(
        "backlog_progress",
        backlog_messages.BacklogProgress,
        "what a backlog returns, and its answer to query `progress`",
        backlog_examples.backlog_progresses,
    ),
    Shape(
        "backlog_attached",
        backlog_messages.BacklogAttached,
        "the answer to update `attach` of a backlog",
        backlog_examples.backlog_attachments,
    ),
    Shape("notice", Message, "the body of a webhook's request", examples.notices),
    Shape("plan", Plan, "artifact, named by `plan` of a result unless a plan came with the request", examples.plans),
    Shape("test_report", TestReport, "artifact, named by `tests.report` of a result", examples.test_reports),
    Shape("review", Review, "artifact, named by `review.report` of a result", examples.reviews),
    Shape("findings", Findings, "artifact, named by `review.findings` of a result", examples.findings),
)
