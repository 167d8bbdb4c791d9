"""The night's receipt: counted from history and git, never taken from what the backlog says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure import secrets
from perdure.adapters.git.commits import BranchCommit, branch_commits
from perdure.cli.words import short
from perdure.models.errors import PerdureError
from perdure.models.ids import branch_name, delivery_key
from perdure.models.rules.specialists import is_of
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.adapters.forges.base import Forge
    from perdure.client import Backlog
    from perdure.client.backlog_past import BacklogPast
    from perdure.models.backlog_messages import BacklogProgress

_MOVING = ("ready", "after", "building", "landing", "waits")
_BEYOND = 100
"""Commits of a branch looked at beside one for each item: what others have pushed there meanwhile."""


@dataclass(frozen=True)
class Outside:
    """The remote as it is now.

    commits  of the integration branch, the newest first
    owned    by branch that is there and was made for this backlog: whether an open pull request proposes it
    unread   why something of it could not be read; empty: all was
    """

    commits: Sequence[BranchCommit] = ()
    owned: Mapping[str, bool] | None = None
    unread: str = ""


@dataclass(frozen=True)
class BacklogReceipt:
    """Each a list of words, one a case: what is empty is 0. `unread`: why some of it is not known, one line each."""

    items: int
    landed: int
    lost: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    ownerless: tuple[str, ...] = ()
    bent: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not (self.lost or self.twice or self.ownerless or self.bent or self.unread)

    def lines(self) -> list[str]:
        counted = (
            f"items lost {len(self.lost)} · landed twice {len(self.twice)} · "
            f"branches without an owner {len(self.ownerless)}"
        )
        lines = [f"{'✓' if self.clean else '!'} {self.landed} of {self.items} landed · {counted}"]
        for name, found in (
            ("lost", self.lost),
            ("landed twice", self.twice),
            ("without an owner", self.ownerless),
            ("not linear", self.bent),
            ("not known", self.unread),
        ):
            lines += [f"  {name}: {one_line(words, 300)}" for words in found]
        return lines


def receipt(progress: BacklogProgress, past: BacklogPast, outside: Outside) -> BacklogReceipt:
    """Compare three: the items that were ever given, what the backlog shows of each, and what is on the branch."""
    shown = {view.id: view for view in progress.items}
    keys = {delivery_key(f"{progress.backlog_id}/{id}"): id for id in (*past.given, *shown)}
    landings: dict[str, list[str]] = {}
    for commit in outside.commits:
        if (id := keys.get(commit.delivery)) is not None:
            landings.setdefault(id, []).append(commit.sha)
    # Commits that deliveries said they landed count where the branch cannot be read: it may be merged and gone.
    known = landings if not outside.unread else {id: list(commits) for id, commits in past.landed.items()}
    lost, ended = [], progress.status == "ended"  # what somebody cancelled is nobody's loss: retry goes on with it
    for id in dict.fromkeys((*past.given, *shown)):
        view = shown.get(id)
        if view is None:
            lost.append(f"{id} was given, and the backlog does not know it")
        elif view.phase == "landed" and not known.get(id):
            lost.append(f"{id} is said to have landed as {short(view.commit) or '?'}, and is not on the branch")
        elif view.phase != "landed" and landings.get(id):
            lost.append(f"{id} is on the branch as {short(landings[id][0])}, and is said to be {view.phase}")
        elif ended and view.phase in _MOVING:
            lost.append(f"{id} was left {view.phase} when the backlog ended")
    twice = [
        f"{id} as {', '.join(short(commit) for commit in commits)}" for id, commits in known.items() if len(commits) > 1
    ]
    ownerless = [name for name, owned in (outside.owned or {}).items() if not owned and not _has_owner(name, progress)]
    bent = [f"{short(commit.sha)} has {len(commit.parents)} parents" for commit in _merges(outside.commits, keys)]
    unread = [outside.unread] if outside.unread else []
    unread += [] if past.complete else ["Temporal does not have the backlog's first runs any more"]
    return BacklogReceipt(
        items=len({**past.given, **shown}) - sum(view.phase == "decomposed" for view in shown.values()),
        landed=sum(1 for id in known if known[id]),
        lost=tuple(lost),
        twice=tuple(twice),
        ownerless=tuple(ownerless),
        bent=tuple(bent),
        unread=tuple(unread),
    )


def _merges(commits: Sequence[BranchCommit], keys: Mapping[str, str]) -> list[BranchCommit]:
    """Commits with more than one parent, down to the first that is ours."""
    last = max((n for n, commit in enumerate(commits) if commit.delivery in keys), default=-1)
    return [commit for commit in commits[: last + 1] if len(commit.parents) > 1]


def _has_owner(branch: str, progress: BacklogProgress) -> bool:
    """While it runs, the integration branch is the backlog's, and a delivery's is its own as long as that goes on."""
    if progress.status != "running":
        return False
    going = {branch_name(delivery_key(f"{progress.backlog_id}/{view.id}")) for view in progress.items}
    return branch == progress.branch or branch in going


async def read_receipt(backlog: Backlog, progress: BacklogProgress) -> BacklogReceipt:
    """Read all three. Raises what reading the backlog's history raises."""
    past = await backlog.past()
    made = [branch_name(delivery_key(workflow)) for workflow in past.started]
    outside = await asyncio.to_thread(look_outside, progress, made, len(past.given) + _BEYOND)
    return receipt(progress, past, outside)


def _stack(progress: BacklogProgress, heads: Mapping[str, str], forge: Forge | None) -> Outside:
    """Each item's own branch, or its pull request, at the item's commit; owned where that was not closed."""
    commits, owned = list[BranchCommit](), dict[str, bool]()
    for view in (view for view in progress.items if view.branch):
        key = delivery_key(view.delivery)
        pulls = [pull for pull in forge.of_branch(view.branch, key) if pull.ours] if forge is not None else []
        live = [pull.head_sha for pull in pulls if pull.state != "closed"]
        if view.commit and view.commit in (heads.get(view.branch), *live):
            commits.append(BranchCommit(view.commit, (), key))
        if view.branch in heads:
            owned[view.branch] = bool(live)
    return Outside(commits, owned)


def look_outside(progress: BacklogProgress, made: Sequence[str], most: int) -> Outside:
    """Ask the remote and its forge. `made`: branches that deliveries of this backlog may have pushed."""
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.source import locate

    if not progress.branch and progress.land != "stack":
        return Outside(owned={})
    delivery = progress.backlog_id.rpartition("/")[0]
    if is_of(progress.backlog_id, delivery):
        return Outside(owned={}, unread=f"tasks land in the vault of their delivery: perdure verify {delivery}")
    forges = Forges.from_environment(secrets.environment())
    commits: list[BranchCommit] = []
    owned: dict[str, bool] = {}
    try:
        target = locate(progress.repository, Path.cwd(), forges)
        heads = target.heads.branches
        there = [name for name in dict.fromkeys((progress.branch, *made)) if name in heads]
        forge = forges.forge(target.url)
        for name in there:
            owned[name] = forge is not None and forge.find(name) is not None
        if progress.land == "stack":
            return _stack(progress, heads, forge)
        if progress.branch not in heads:
            return Outside(owned=owned, unread=f"the branch {progress.branch} is not on the remote any more")
        commits = branch_commits(target.url, progress.branch, most, forges)
    except PerdureError as error:
        return Outside(commits, owned, unread=error.what)
    return Outside(commits, owned)
