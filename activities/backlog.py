"""The work of a backlog outside of its deliveries: its integration branch, a look at the deliveries, the pull request.

Effects: `make_branch` makes the branch where it is not there, `close_backlog` opens one pull request; both look first.
Keys: the branch. The others only read. No model output chooses host, repository, base or branch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from temporalio import activity

from activities.on_host import OnHost
from activities.room import no_room
from activities.terms import Terms
from perdure.adapters.forges.base import HostedForge, Proposal
from perdure.adapters.forges.body import BODY_CHARS, marker
from perdure.adapters.forges.neutral import code, neutral, plain
from perdure.adapters.forges.parts import begins
from perdure.adapters.git.door import redact
from perdure.adapters.git.first import FIRST_COMMIT
from perdure.adapters.git.integration import Integration
from perdure.adapters.git.landing import fetch_landing
from perdure.adapters.git.publish import commits_between, publish_first
from perdure.adapters.git.remote import Heads, remote_heads
from perdure.adapters.git.source import Target
from perdure.adapters.git.vault import Vault
from perdure.adapters.repository.terms import base_of, check_lands, find_target
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread, to_the_end
from perdure.adapters.system.zones import offsets
from perdure.models.backlog import ITEMS_MOST
from perdure.models.backlog_state import Opened
from perdure.models.config import Limits, RepositoryConfig
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.errors import ForgeRefused, InvalidRequest, NoRoom, PerdureError
from perdure.models.following import MoveInput
from perdure.models.ids import branch_name, delivery_key
from perdure.models.issue import IssueQuery
from perdure.models.landing import CloseBacklogInput, ClosedBacklog, OpenBacklogInput
from perdure.models.limits import HEARTBEAT_TIMEOUT
from perdure.models.proof import proves
from perdure.models.request import DeliveryRequest
from perdure.models.room import Room
from perdure.models.stacked import StackInput

TITLE_CHARS = 100
"""Of the pull request of a backlog."""


class Backlogs(OnHost):
    @activity.defn
    async def open_backlog(self, work: OpenBacklogInput) -> Opened:
        """Raises InvalidRequest, BadInput, ForgeRefused, ForgeUnavailable. Nothing is made."""
        async with beating():
            return await in_thread(self._open, work, False)

    @activity.defn
    async def backlog_room(self, work: OpenBacklogInput) -> Room:
        """Is there room for one more pull request, that of this backlog? Raises NoRoom where it `waits`."""
        async with beating():
            url, limits = await in_thread(self._limits, work)
            about = {"repository": work.repository, "url": url, "workflow_id": work.backlog}
            words = await no_room(self._host, limits, delivery=delivery_key(work.backlog), **about)
        if words and work.waits:
            raise NoRoom(words)
        return Room(words=words)

    @activity.defn
    async def make_branch(self, work: OpenBacklogInput) -> Opened:
        """As above; and the integration branch is there, at the base's commit where it was not."""
        async with beating():
            opened = await in_thread(self._open, work, True)
        crash_point(CrashPoint.AFTER_PUSH)
        return opened

    @activity.defn
    async def close_backlog(self, work: CloseBacklogInput) -> ClosedBacklog:
        """Raises ForgeRefused, ForgeUnavailable (the workflow waits, visibly, and tries again), InvalidRequest."""
        async with beating():
            closed = await to_the_end(self._close, work)
        crash_point(CrashPoint.AFTER_PULL_REQUEST)
        return closed

    def _open(self, work: OpenBacklogInput, make: bool) -> Opened:
        target, vault = self.target(work)
        base, base_sha = base_of(vault, target, _wanted(work))
        config = Terms(self._host).settings(vault, base, base_sha, _wanted(work)).config
        if work.said.get("land") != "stack":
            check_lands(config)
        issues, proposed = self._issues(target, work) if make else ((), {})
        heads = target.heads
        if make and base_sha == FIRST_COMMIT:
            heads = publish_first(vault, _ground(work, target, base, base_sha))
        named, own = bool(work.branch), branch_name(delivery_key(work.backlog))
        integration = Integration(vault, work.backlog, work.branch or own, named, base, base_sha)
        if work.said.get("land") == "stack":
            pass  # each item has a branch of its own
        elif make:
            integration.make(heads)
        else:
            integration.check(heads)
        return Opened(
            base=base,
            base_sha=base_sha,
            branch=integration.branch,
            queue=self._host.publisher or self._host.home.queue(),
            lists=bool(self._host.attributes),
            frees=True,
            follows=not named,
            notifies=bool(self._host.listeners.addresses),
            limited=config.limits.open_pull_requests is not None,
            offsets=offsets(str(work.said.get("window") or ""), datetime.now(UTC)),
            issues=issues,
            proposed=proposed,
            page=self._host.page(),
        )

    def _issues(self, target: Target, work: OpenBacklogInput) -> tuple[tuple[int, ...], dict[int, int]]:
        """Those that are open now, where the backlog asks for any; and of those that are left out, because they are
        built already, the pull request that waits to be merged. InvalidRequest where there is nobody to ask."""
        if not (query := work.said.get("issues")):
            return (), {}
        forge = self._host.forges.forge(target.url)
        if not isinstance(forge, HostedForge):
            raise InvalidRequest("issues: this repository has none that Perdure can read", where=work.repository)
        found, built = forge.issues(IssueQuery.parse(str(query)), ITEMS_MOST), forge.proposed()
        return (
            tuple(number for number in found if number not in built),
            {number: built[number] for number in found if number in built},
        )

    def _limits(self, work: OpenBacklogInput) -> tuple[str, Limits]:
        """The repository's address and its limits; that of deliveries at once is kept by each of its items."""
        target, vault = self.target(work)
        base, base_sha = base_of(vault, target, _wanted(work))
        limits = Terms(self._host).settings(vault, base, base_sha, _wanted(work)).config.limits
        return target.url, limits.model_copy(update={"deliveries": None})

    def _close(self, work: CloseBacklogInput) -> ClosedBacklog:
        target, vault = self.target(work)
        head = fetch_landing(vault, work.branch, work.head)
        heads: Heads = remote_heads(vault.url, vault.keys)
        base_sha = vault.fetch_branch(work.base) if work.base in heads.branches else None
        if base_sha is None:
            raise ForgeRefused(
                f"branch {work.base} is not on the remote any more",
                where=redact(vault.url),
                fix=f"nothing is lost: {work.branch} has all that landed; propose it into another branch",
            )
        squashed = vault.tree_of(head) == vault.tree_of(base_sha) and not vault.is_ancestor(base_sha, head)
        if squashed or vault.is_ancestor(head, base_sha):
            return ClosedBacklog(message=f"{work.base} has all of {work.branch}: there is nothing to propose")
        forge = self._host.forges.forge(target.url)
        if forge is None:
            message = f"{work.branch} is pushed; opening pull requests there is not supported yet: open it yourself"
            return ClosedBacklog(message=message)
        closes = bool(work.issues) and self._closes(vault, work, base_sha)
        end = _end(work, closes)
        proposal = Proposal(
            delivery=delivery_key(work.backlog),
            title=plain(" ".join(work.title.split()))[:TITLE_CHARS],
            body=_body(work, _behind(vault, work, head, base_sha), end),
            head=work.branch,
            head_sha=head,
            base=work.base,
            shares=True,
            end=end,
        )
        opened = forge.create(proposal)
        return ClosedBacklog(pull_request=opened.pull_request, message="; ".join(opened.notes))

    def _closes(self, vault: Vault, work: CloseBacklogInput, base_sha: str) -> bool:
        """`[ship] close_issue` as it is now; settings broken meanwhile keep nothing from being proposed."""
        try:
            return Terms(self._host).settings(vault, work.base, base_sha, _wanted(work)).config.ship.close_issue
        except PerdureError:
            return False

    def target(self, work: OpenBacklogInput | CloseBacklogInput | MoveInput | StackInput) -> tuple[Target, Vault]:
        """The repository of a backlog, as of a delivery: a path of this host counts with this home's proof only."""
        asked = DeliveryRequest(repository=work.repository, request="-")
        target = find_target(asked, self._ours(work), self._host.config.local_repositories, self._host.forges)
        return target, Vault.open(self._host.home, target.url, self._host.forges)

    def _ours(self, work: OpenBacklogInput | CloseBacklogInput | MoveInput | StackInput) -> bool:
        given, said = work.said.get("proof"), {name: value for name, value in work.said.items() if name != "items"}
        same = said.get("repository") == work.repository
        return same and isinstance(given, str) and proves(given, self._host.home.key(), work.backlog, said)


def _wanted(work: OpenBacklogInput | CloseBacklogInput) -> DeliveryRequest:
    config = work.said.get("config")
    sent = config if isinstance(config, str) else None
    return DeliveryRequest(repository=work.repository, request="-", base=work.base or None, config=sent)


@asynccontextmanager
async def beating() -> AsyncIterator[None]:
    """Heartbeats while it is done: these activities are no delivery's, whose attempts have theirs (attempt.py)."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(HEARTBEAT_TIMEOUT.total_seconds() / 3)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()


def _ground(work: OpenBacklogInput, target: Target, base: str, base_sha: str) -> Contract:
    return Contract(
        delivery=delivery_key(work.backlog),
        repository=target.url,
        request="",
        base=base,
        base_sha=base_sha,
        branch=base,
        config=RepositoryConfig(version=1),
    )


def _behind(vault: Vault, work: CloseBacklogInput, head: str, base_sha: str) -> str:
    """Say that the base has what the branch was not tested with; empty: it stands there."""
    if vault.is_ancestor(base_sha, head):
        return ""
    count = commits_between(vault, head, base_sha)
    commits = f"{count} commit{'s' if count != 1 else ''}"
    words = f"{code(work.base)} has {commits} that this branch does not stand on (it is at {base_sha[:12]} now)"
    return f"> {words}: its items were tested without {'them' if count != 1 else 'it'}.\n\n"


def _body(work: CloseBacklogInput, behind: str, end: str) -> str:
    """The table as the backlog wrote it, with the words of others in it made harmless; before and after it the marks
    of its part."""
    begin = f"{begins(delivery_key(work.backlog))}\n"
    text, room = behind + neutral(work.body), BODY_CHARS - len(begin) - len(end) - 100
    if len(text) > room:
        text = text[: text.rfind("\n", 0, room)] + f"\n\n_… cut here, {len(text) - room} more characters_"
    return begin + text + end


def _end(work: CloseBacklogInput, closes: bool) -> str:
    """The issues that it closes, or not, whose words they are, and the marker."""
    issues = ", ".join(f"closes #{number}" if closes else f"#{number}" for number in work.issues)
    said = f"{issues[0].upper()}{issues[1:]}." if closes and issues else f"Merging this leaves {issues} open."
    end = f"\n\n{said}" if issues else ""
    return (
        f"{end}\n\n---\nDelivered by Perdure as backlog {code(work.backlog)}.\n\n{marker(delivery_key(work.backlog))}\n"
    )
