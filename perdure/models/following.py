"""Following: what a backlog and its activities say to each other when the base of its branch has moved, and when the
checks that no landing had time for run at its end."""

from __future__ import annotations

from pydantic import Field

from perdure.models.base import Recorded, Written
from perdure.models.limits import NAME_CHARS, PLACE_CHARS
from perdure.models.request import DeliveryRequest


class FollowInput(Recorded):
    """Bring the commits of an integration branch onto its base as it is now, and test them there; or run the checks of
    landed items on it as it stands (`check_landed`). Nothing is pushed.

    delivery   key of the workspace it is tested in: no item's
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


class Followed(Recorded):
    """The branch as it would stand on its base.

    base_sha   the base's commit now
    onto       the branch's commit that was looked at; head: the one to move it to, the same where there is no need
    problem    why it cannot be moved there, in one line; then `head` is empty
    queue      where it is pushed from; host: where the workspace is, empty where none was made
    checked    items whose checks held there
    """

    base_sha: str = ""
    onto: str = ""
    head: str = ""
    problem: str = ""
    queue: str = ""
    host: str = ""
    summary: str = ""
    checked: tuple[str, ...] = ()


class MoveInput(Recorded):
    """Move the integration branch from `onto` to `head`, if it is there still. `said`: the backlog's request without
    its items; base_sha: what all its landed items are after."""

    backlog: str
    repository: str
    branch: str
    base_sha: str
    onto: str
    head: str
    said: dict[str, object] = {}


class Moved(Recorded):
    """`head`: where the branch is now; empty: somebody else moved it first. `commits`: by item, as they are there."""

    head: str = ""
    commits: dict[str, str] = {}


class ChecksHeld(Recorded):
    """`held`: items whose checks all hold on the branch at `head`; `failed`: those of whose not all do, and `problem`
    says in one line what fails, and with whose landing it began. `host`: where the workspace is."""

    head: str = ""
    held: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    problem: str = ""
    host: str = ""


class Follow(Written):
    """Update `follow`: look at the base again, now; or `leave` the branch where it stands. `by`: who says so."""

    leave: bool = False
    note: str = Field(default="", max_length=PLACE_CHARS)
    by: str = Field(default="", max_length=NAME_CHARS)
