"""The report of a backlog, as text and as one HTML page: the table of its items, its graph, and its receipt, which is
counted from history and git, not from the backlog's own account."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure import secrets
from perdure.adapters.git.remote import BranchCommit, fetch_branch_commits
from perdure.cli.backlog.drawing import draw_graph
from perdure.cli.backlog.text import phase_reason, status_lines
from perdure.cli.formatting import align_columns, money, short_sha
from perdure.models.backlog.state import BacklogProgress, ItemView
from perdure.models.errors import PerdureError
from perdure.models.ids import branch_name, delivery_key
from perdure.models.rules.parallel_builds import is_tasks_backlog
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.adapters.forges.base import Forge
    from perdure.client import Backlog
    from perdure.client.history.runs import BacklogHistory
    from perdure.models.backlog.state import BacklogProgress


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


@dataclass(frozen=True)
class BacklogReceipt:
    """Items given and landed, and lists of what went wrong, one text for each case.

    lost       items that are missing, or not where the backlog says
    twice      items that landed more than once
    ownerless  branches that nobody works on and no open pull request proposes
    bent       commits of the branch with more than one parent: its history is not linear
    unread     why some of this is not known
    """

    items: int
    landed: int
    lost: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    ownerless: tuple[str, ...] = ()
    bent: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Return whether nothing went wrong and everything could be read."""
        return not (self.lost or self.twice or self.ownerless or self.bent or self.unread)

    def lines(self) -> list[str]:
        """Return the receipt as lines for a person: a summary, then every case."""
        counts = (
            f"items lost {len(self.lost)} · landed twice {len(self.twice)} · "
            f"branches without an owner {len(self.ownerless)}"
        )
        lines = [f"{'✓' if self.clean else '!'} {self.landed} of {self.items} landed · {counts}"]
        for name, cases in (
            ("lost", self.lost),
            ("landed twice", self.twice),
            ("without an owner", self.ownerless),
            ("not linear", self.bent),
            ("not known", self.unread),
        ):
            lines += [f"  {name}: {one_line(case, 300)}" for case in cases]
        return lines


def make_receipt(progress: BacklogProgress, history: BacklogHistory, remote: RemoteState) -> BacklogReceipt:
    """Compare the items that were ever given, what the backlog shows of each, and what is on its branch.

    Where the branch could not be read, the commits count that deliveries said they landed.
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

    Raises what reading the history raises; where the remote cannot be read, the receipt says so.
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
    `commit_limit`. A PerdureError is not raised: `unread_reason` says it.
    """
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.target import locate_repository

    if not progress.branch and progress.land != "stack":
        return RemoteState(owned={})
    parent = progress.backlog_id.rpartition("/")[0]
    if is_tasks_backlog(progress.backlog_id, parent):
        return RemoteState(
            owned={}, unread_reason=f"tasks land in the vault of their delivery: perdure verify {parent}"
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


MARKS = {"landed": "✓", "failed": "✗", "blocked": "✗", "waits": "!", "building": "▸", "landing": "▸"}


@dataclass(frozen=True)
class BacklogReport:
    """The facts of the report. `wanted`: by item, what was asked for, in one line."""

    progress: BacklogProgress
    wanted: dict[str, str]
    receipt: BacklogReceipt

    def as_data(self) -> dict[str, Any]:
        """Return the object that `--json` prints; each list of the receipt is empty where nothing is wrong."""
        return {
            "backlog": self.progress.model_dump(mode="json"),
            "wanted": self.wanted,
            "receipt": asdict(self.receipt) | {"clean": self.receipt.clean},
        }


async def gather_backlog_report(backlog: Backlog) -> BacklogReport:
    """Read the backlog's progress, its history and its remote, and return the report.

    Raises what reading the first two raises; what the remote does not say is noted in the receipt.
    """
    progress = await backlog.progress()
    items = (await backlog.past()).items
    wanted = {id: _item_summary(item) for id, item in items.items()}
    return BacklogReport(progress, wanted, await read_receipt(backlog, progress))


def backlog_report_lines(report: BacklogReport) -> list[str]:
    """Return the whole report as lines for a terminal; the table is as wide as it needs to be."""
    rows = [("", "item", "state", "commit", "cost", "wanted")]
    rows += [
        (
            MARKS.get(view.phase, "–"),
            view.id,
            item_state(view),
            short_sha(view.commit),
            money(view.usd) if view.usd else "",
            report.wanted.get(view.id, ""),
        )
        for view in report.progress.items
    ]
    status = status_lines(report.progress)
    head = status[: status.index("")] if "" in status else status
    return [
        *head,
        "",
        *align_columns(rows, None),
        "",
        *draw_graph(report.progress, "text").splitlines(),
        "",
        "Receipt, counted from history and git",
        *(f"  {line}" for line in report.receipt.lines()),
    ]


def item_state(view: ItemView) -> str:
    """Return an item's phase and the reason for it: `blocked by export (tests red)`, `failed: tests red`."""
    reason_text = one_line(phase_reason(view), 80) if view.phase != "landed" else ""
    phase_text = "waits for you" if view.phase == "waits" else view.phase
    return f"{phase_text}{' ' if view.phase == 'blocked' else ': '}{reason_text}" if reason_text else phase_text


def render_backlog_page(report: BacklogReport) -> str:
    """Render the report as one HTML page that needs nothing else: no network, no script, no file beside it."""
    from markupsafe import Markup

    from perdure import __version__
    from perdure.adapters.forges.markdown import is_web_address
    from perdure.cli.look.report.page import report_environment

    drawing = draw_graph(report.progress, "svg")
    return (
        report_environment()
        .get_template("backlog.html.j2")
        .render(
            report=report,
            progress=report.progress,
            svg=Markup(drawing),  # noqa: S704  # drawn here, with its texts escaped
            pull=is_web_address(report.progress.pull_request) if report.progress.pull_request else "",
            state=item_state,
            marks=MARKS,
            short=short_sha,
            version=__version__,
        )
    )


def _item_summary(item: dict[str, Any]) -> str:
    issue = f"#{str(item['issue']).lstrip('#')}" if item.get("issue") is not None else ""
    return " ".join(part for part in (issue, one_line(str(item.get("request") or ""), 120)) if part)
