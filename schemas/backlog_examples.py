"""One example or more of what a backlog takes and gives."""

from __future__ import annotations

from collections.abc import Callable

from perdure.models.backlog_messages import BacklogAttached, BacklogProgress, ItemView
from schemas.examples import ASKED, HEAD, PLAN_SHA, REPOSITORY, RUN, Examples

BACKLOG = "night"


def backlogs() -> Examples:
    return [
        {"repository": REPOSITORY, "items": [{"issue": 12}, {"issue": 14, "depends_on": ["issue-12"]}]},
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


def added_items() -> Examples:
    return [{"item": {"id": "docs", "request": "Describe GET /durations", "depends_on": ["api"]}}]


def named_items() -> Examples:
    return [{"item": "page"}, {"item": "page", "note": "not before the release", "by": "me"}]


def follows() -> Examples:
    return [{}, {"leave": True, "note": "the release waits for it"}]


def prioritised_items() -> Examples:
    return [{"item": "page", "priority": 5}]


def decided(told: Callable[[], Examples]) -> Examples:
    """As of a delivery, and the item."""
    return [{"item": "page", **said} for said in told()]


def backlog_attachments() -> Examples:
    there = BacklogAttached(backlog_id=BACKLOG, run_id=RUN, repository=REPOSITORY, items=2)
    return [there.model_dump(mode="json")]


def backlog_progresses() -> Examples:
    items = (
        ItemView(id="api", phase="landed", commit=HEAD, delivery=f"{BACKLOG}/api", unblocks=1, usd=0.21, critical=True),
        ItemView(
            id="page",
            phase="waits",
            because="approve the plan: Show the durations",
            delivery=f"{BACKLOG}/page",
            depends_on=("api",),
            gate="plan",
            of=PLAN_SHA[:12],
            since=ASKED.since,
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
