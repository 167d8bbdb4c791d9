"""The facts of a backlog's report: progress, the items as they were given, and the receipt, which is counted from
history and git, not from the backlog's own account. Used by `perdure backlog report` and the demo; how it looks is in
`perdure.render.backlog.report`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure import secrets
from perdure.adapters.forges.select import Forges
from perdure.adapters.git.remote import BranchCommit, fetch_branch_commits
from perdure.adapters.git.target import locate_repository
from perdure.models.backlog.state import BacklogProgress
from perdure.models.errors import PerdureError
from perdure.models.ids import branch_name, delivery_key
from perdure.models.rules.parallel_builds import is_tasks_backlog
from perdure.render.backlog.report import BacklogReceipt, BacklogReport
from perdure.text import one_line, shell_word, short_sha

if TYPE_CHECKING:
    from perdure.adapters.forges.base import Forge
    from perdure.client import Backlog
    from perdure.client.history.fold import BacklogHistory


_UNFINISHED_PHASES = ("ready", "after", "building", "landing", "waits")
_EXTRA_COMMITS = 100
"""Commits of the branch that are read besides one for each item: others may have pushed some meanwhile."""


@dataclass(frozen=True)
class RemoteState:
    """The state of the remote now.

    commits        of the integration branch, the newest first
    owned          by existing branch that was made for this backlog: whether an open pull request proposes it
    unread_reason  why something could not be read; empty: everything was
    """

    commits: Sequence[BranchCommit] = ()
    owned: Mapping[str, bool] | None = None
    unread_reason: str = ""


def make_receipt(progress: BacklogProgress, history: BacklogHistory, remote: RemoteState) -> BacklogReceipt:
    """Return the receipt: compare the items that were ever given, what the backlog shows of each, and what is on its
    branch.

    When the branch could not be read, the commits count that deliveries said they landed. What is not known is in
    `unread`.
    """
    views = {view.id: view for view in progress.items}
    ids_by_key = {delivery_key(f"{progress.backlog_id}/{id}"): id for id in (*history.items, *views)}
    landings: dict[str, list[str]] = {}
    for commit in remote.commits:
        if (id := ids_by_key.get(commit.delivery)) is not None:
            landings.setdefault(id, []).append(commit.sha)
    # Where the branch cannot be read, commits that deliveries said they landed count: it may be merged and deleted.
    landed = (
        landings if not remote.unread_reason else {id: list(commits) for id, commits in history.landed_commits.items()}
    )
    lost, has_ended = [], progress.status == "ended"  # what somebody cancelled is nobody's loss: retry goes on with it
    for id in dict.fromkeys((*history.items, *views)):
        view = views.get(id)
        if view is None:
            lost.append(f"{id} was given, and the backlog does not know it")
        elif view.phase == "landed" and not landed.get(id):
            lost.append(f"{id} is said to have landed as {short_sha(view.commit) or '?'}, and is not on the branch")
        elif view.phase != "landed" and landings.get(id):
            lost.append(f"{id} is on the branch as {short_sha(landings[id][0])}, and is said to be {view.phase}")
        elif has_ended and view.phase in _UNFINISHED_PHASES:
            lost.append(f"{id} was left {view.phase} when the backlog ended")
    twice = [
        f"{id} as {', '.join(short_sha(commit) for commit in commits)}"
        for id, commits in landed.items()
        if len(commits) > 1
    ]
    ownerless = [name for name, owned in (remote.owned or {}).items() if not owned and not _has_owner(name, progress)]
    bent = [
        f"{short_sha(commit.sha)} has {len(commit.parents)} parents"
        for commit in _merge_commits(remote.commits, ids_by_key)
    ]
    unread = [remote.unread_reason] if remote.unread_reason else []
    unread += [] if history.complete else ["Temporal does not have the backlog's first runs any more"]
    return BacklogReceipt(
        items=len({**history.items, **views}) - sum(view.phase == "decomposed" for view in views.values()),
        landed=sum(1 for id in landed if landed[id]),
        lost=tuple(lost),
        twice=tuple(twice),
        ownerless=tuple(ownerless),
        bent=tuple(bent),
        unread=tuple(unread),
    )


def _merge_commits(commits: Sequence[BranchCommit], keys: Mapping[str, str]) -> list[BranchCommit]:
    """Return the commits with more than one parent, from the newest down to the first that a delivery of this backlog
    made."""
    last_own = max((n for n, commit in enumerate(commits) if commit.delivery in keys), default=-1)
    return [commit for commit in commits[: last_own + 1] if len(commit.parents) > 1]


def _has_owner(branch: str, progress: BacklogProgress) -> bool:
    """Return whether a branch has an owner: the backlog runs, and this is its integration branch or the branch of one
    of its items."""
    if progress.status != "running":
        return False
    item_branches = {branch_name(delivery_key(f"{progress.backlog_id}/{view.id}")) for view in progress.items}
    return branch == progress.branch or branch in item_branches


async def read_receipt(backlog: Backlog, progress: BacklogProgress) -> BacklogReceipt:
    """Read the backlog's history and its remote, and return the receipt.

    Raises RPCError when the history cannot be read; when the remote cannot be read, the receipt says so.
    """
    history = await backlog.past()
    delivery_branches = [branch_name(delivery_key(workflow)) for workflow in history.start_counts]
    remote = await asyncio.to_thread(
        read_remote_state, progress, delivery_branches, len(history.items) + _EXTRA_COMMITS
    )
    return make_receipt(progress, history, remote)


def _stack_state(progress: BacklogProgress, heads: Mapping[str, str], forge: Forge | None) -> RemoteState:
    """Return the remote's state for a stack: an item's commit counts where its branch, or a pull request that was not
    closed, is at it.

    A branch is owned where it has a pull request of Perdure's that was not closed.
    """
    commits, owned = list[BranchCommit](), dict[str, bool]()
    for view in (view for view in progress.items if view.branch):
        delivery = delivery_key(view.delivery)
        pulls = (
            [pull for pull in forge.pulls_of_branch(view.branch, delivery) if pull.ours] if forge is not None else []
        )
        open_heads = [pull.head_sha for pull in pulls if pull.state != "closed"]
        if view.commit and view.commit in (heads.get(view.branch), *open_heads):
            commits.append(BranchCommit(view.commit, (), delivery))
        if view.branch in heads:
            owned[view.branch] = bool(open_heads)
    return RemoteState(commits, owned)


def read_remote_state(progress: BacklogProgress, delivery_branches: Sequence[str], commit_limit: int) -> RemoteState:
    """Ask the remote and its forge for the backlog's branches, pull requests and commits. Blocks.

    `delivery_branches`: what deliveries of this backlog may have pushed. The commits are fetched, at most
    `commit_limit`. Nothing is asked for a backlog that has no branch and makes no stack, nor for the tasks of a
    delivery. `unread_reason` says why nothing could be read: of such tasks, of an integration branch that is gone, of a
    remote or forge that does not answer. Raises BadInput for wrong settings of forges.
    """
    if not progress.branch and progress.land != "stack":
        return RemoteState(owned={})
    parent = progress.backlog_id.rpartition("/")[0]
    if is_tasks_backlog(progress.backlog_id, parent):
        return RemoteState(
            owned={}, unread_reason=f"tasks land in the vault of their delivery: perdure verify {shell_word(parent)}"
        )
    forges = Forges.from_environment(secrets.environment())
    commits: list[BranchCommit] = []
    owned: dict[str, bool] = {}
    try:
        target = locate_repository(progress.repository, Path.cwd(), forges)
        heads = target.heads.branches
        existing = [name for name in dict.fromkeys((progress.branch, *delivery_branches)) if name in heads]
        forge = forges.forge(target.url)
        for name in existing:
            owned[name] = forge is not None and forge.find_open_pull(name) is not None
        if progress.land == "stack":
            return _stack_state(progress, heads, forge)
        if progress.branch not in heads:
            return RemoteState(owned=owned, unread_reason=f"the branch {progress.branch} is not on the remote any more")
        commits = fetch_branch_commits(target.url, progress.branch, commit_limit, forges)
    except PerdureError as error:
        return RemoteState(commits, owned, unread_reason=error.what)
    return RemoteState(commits, owned)


async def gather_backlog_report(backlog: Backlog) -> BacklogReport:
    """Read the backlog's progress, its history and its remote, and return the report.

    Raises NoWorker when no worker tells the progress of a running one, and RPCError when the history cannot be read;
    what the remote does not say is noted in the receipt.
    """
    progress = await backlog.progress()
    items = (await backlog.past()).items
    wanted = {id: _item_summary(item) for id, item in items.items()}
    return BacklogReport(progress, wanted, await read_receipt(backlog, progress))


def _item_summary(item: dict[str, Any]) -> str:
    issue = f"#{str(item['issue']).lstrip('#')}" if item.get("issue") is not None else ""
    return " ".join(part for part in (issue, one_line(str(item.get("request") or ""), 120)) if part)
