"""Examples of everything that a backlog takes and gives."""

from __future__ import annotations

from collections.abc import Callable

from perdure.models.backlog.state import BacklogAttached, BacklogProgress, ItemView
from schemas.examples import HEAD, PLAN_GATE, PLAN_SHA, REPOSITORY, RUN, Examples

BACKLOG = "night"


def backlog_examples() -> Examples:
    """Return examples of a request for a backlog: as short as possible, and with most fields."""
    return [
        {"repository": REPOSITORY, "items": [{"issue": "12"}, {"issue": "14", "depends_on": ["issue-12"]}]},
        {
            "version": 1,
            "repository": REPOSITORY,
            "base": "main",
            "parallel": 4,
            "budget_usd": 40.0,
            "window": "23:00-07:00 Europe/Berlin",
            "items": [
                {"id": "api", "request": "Add GET /durations", "touches": ["src/api/**"], "check": ["make smoke-api"]},
                {"id": "page", "request": "Show the durations", "depends_on": ["api"], "priority": 2},
            ],
        },
    ]


def added_item_examples() -> Examples:
    return [{"item": {"id": "docs", "request": "Describe GET /durations", "depends_on": ["api"]}}]


def named_item_examples() -> Examples:
    return [{"item": "page"}, {"item": "page", "note": "not before the release", "by": "me"}]


def follow_examples() -> Examples:
    return [{}, {"leave": True, "note": "the release waits for it"}]


def prioritised_item_examples() -> Examples:
    return [{"item": "page", "priority": 5}]


def item_decision_examples(decision_examples: Callable[[], Examples]) -> Examples:
    """Return the examples of a delivery's decision with the item that a backlog's decision names."""
    return [{"item": "page", **decision} for decision in decision_examples()]


def attachment_examples() -> Examples:
    attached = BacklogAttached(backlog_id=BACKLOG, run_id=RUN, repository=REPOSITORY, items=2)
    return [attached.model_dump(mode="json")]


def progress_examples() -> Examples:
    """Return an example of a backlog's progress: one item landed, one waiting for a person."""
    items = (
        ItemView(id="api", phase="landed", commit=HEAD, delivery=f"{BACKLOG}/api", unblocks=1, usd=0.21, critical=True),
        ItemView(
            id="page",
            phase="waits",
            because="approve the plan: Show the durations",
            delivery=f"{BACKLOG}/page",
            depends_on=("api",),
            gate="plan",
            target=PLAN_SHA[:12],
            since=PLAN_GATE.since,
            critical=True,
        ),
    )
    return [
        BacklogProgress(
            backlog_id=BACKLOG,
            run_id=RUN,
            repository=REPOSITORY,
            status="running",
            base="main",
            branch=f"perdure/{BACKLOG}",
            head=HEAD,
            parallel=4,
            budget_usd=40.0,
            usd=0.21,
            items=items,
        ).model_dump(mode="json")
    ]
