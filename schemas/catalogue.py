"""Every shape that crosses the border of a delivery: its name, its model, how it travels, examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from perdure.models import decisions
from perdure.models.notice import Message
from perdure.models.report import Findings, Plan, Review, TestReport
from perdure.models.request import DeliveryRequest
from perdure.models.result import DeliveryResult
from perdure.models.rules.attaching import Attached
from perdure.models.state import Progress
from schemas import examples


@dataclass(frozen=True)
class Shape:
    """`name` is its file's; `how` says by what it travels; `sent`: to a delivery, otherwise from one."""

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
    Shape("decide", decisions.Decide, "signal `decide`", examples.signalled, sent=True),
    Shape(
        "result",
        DeliveryResult,
        "what the workflow returns, and the first detail of its failure `NotDelivered`",
        examples.results,
    ),
    Shape("attached", Attached, "the answer to update `attach`", examples.attachments),
    Shape("progress", Progress, "the answer to query `progress`", examples.progresses),
    Shape("notice", Message, "the body of a webhook's request", examples.notices),
    Shape("plan", Plan, "artifact, named by `plan` of a result unless a plan came with the request", examples.plans),
    Shape("test_report", TestReport, "artifact, named by `tests.report` of a result", examples.test_reports),
    Shape("review", Review, "artifact, named by `review.report` of a result", examples.reviews),
    Shape("findings", Findings, "artifact, named by `review.findings` of a result", examples.findings),
)
