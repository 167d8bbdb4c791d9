"""Inputs and results of the activities on a backlog's branches between and after landings: following a base that has
moved, running checks that no landing had time for, and looking after the pull requests of a stack. Also the update by
which a person decides."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from perdure.models.base import HistoryModel, UserInputModel
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.limits import NAME_CHARS, PLACE_CHARS


class FollowInput(HistoryModel):
    """Bring the commits of an integration branch onto its base as it is now, and test them there.

    Activity `check_landed` takes it too, and runs the checks of landed items on the branch as it stands. Nothing is
    pushed.

    delivery   key of the workspace in which it is tested, which is no item's
    request    the branch as a delivery that only tests it would name it, with this backlog's proof
    base_sha   the base's commit that the branch stands on, as far as the backlog knows
    landed     the newest commit that landed, as far as the backlog knows; empty: nothing did
    check      commands of landed items, by item
    """

    delivery: str
    backlog: str
    request: DeliveryRequest
    base_sha: str
    landed: str = ""
    check: dict[str, tuple[str, ...]] = {}


class FollowResult(HistoryModel):
    """The branch as it would stand on its base.

    base_sha   the base's commit now
    onto       the branch's commit that was looked at; head: the one to move it to, the same where there is no need
    problem    why it cannot be moved there, in one line; then `head` is empty
    queue      the task queue it is pushed from; host: where the workspace is; empty: none was made
    checked_items   items whose checks passed there
    """

    base_sha: str = ""
    onto: str = ""
    head: str = ""
    problem: str = ""
    queue: str = ""
    host: str = ""
    summary: str = ""
    checked_items: tuple[str, ...] = ()


class MoveBranchInput(HistoryModel):
    """Move the integration branch from `onto` to `head`, if it is still at `onto`.

    base_sha          the base's commit that all landed items come after
    backlog_request   the backlog's request without its items
    """

    backlog: str
    repository: str
    branch: str
    base_sha: str
    onto: str
    head: str
    backlog_request: dict[str, object] = {}


class MoveBranchResult(HistoryModel):
    """`head`: where the branch is now; empty: somebody else moved it first. `commits`: by item, its commit on the
    branch."""

    head: str = ""
    commits: dict[str, str] = {}


class LandedChecksResult(HistoryModel):
    """The checks of landed items on the branch at `head`.

    passed_items   items whose checks all passed; failed_items: those with a check that did not
    problem        in one line what fails, and with whose landing it began; empty: nothing
    host           where the workspace is
    """

    head: str = ""
    passed_items: tuple[str, ...] = ()
    failed_items: tuple[str, ...] = ()
    problem: str = ""
    host: str = ""


class Follow(UserInputModel):
    """Update `follow`: look at the base again, now; or `leave` the branch where it stands. `by`: who says so."""

    leave: bool = False
    note: str = Field(default="", max_length=PLACE_CHARS)
    by: str = Field(default="", max_length=NAME_CHARS)


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
