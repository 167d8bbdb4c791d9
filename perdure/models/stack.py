"""A stack of pull requests: inputs and results of the activities that look after it."""

from __future__ import annotations

from datetime import datetime

from perdure.models.base import HistoryModel


class StackedPullRequest(HistoryModel):
    """The pull request of one item of a stack.

    delivery  the key of the item's delivery, by which the pull request is recognised as ours
    to        the branch that it has to be retargeted to; empty: it is only looked at
    reopen    it was closed together with the branch it is into, and is opened again once that branch is back
    """

    item: str
    delivery: str
    branch: str
    to: str = ""
    reopen: bool = False


class StackInput(HistoryModel):
    """Look at the pull requests of a stack, and retarget or reopen them where they say so.

    backlog_request  the backlog's request without its items
    """

    backlog: str
    repository: str
    pulls: tuple[StackedPullRequest, ...]
    backlog_request: dict[str, object] = {}


class PullRequestState(HistoryModel):
    """A pull request as its forge shows it.

    state      open, merged or closed
    into       the branch it is into now; base_gone: that branch does not exist
    """

    state: str
    into: str
    base_gone: bool = False


class StackState(HistoryModel):
    """The state of each item's pull request, by item; items without one are missing."""

    pull_requests: dict[str, PullRequestState] = {}


class StackToFollow(HistoryModel):
    """A stack to follow after its backlog has ended; the argument of workflow `Following`.

    backlog_request  the backlog's request without its items
    state            the backlog's state, as JSON
    until            when following ends; None at first
    """

    backlog: str
    backlog_request: dict[str, object]
    state: dict[str, object]
    until: datetime | None = None
