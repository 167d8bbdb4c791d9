"""The activities of a backlog as a whole: finding its base and settings (`open_backlog`), its integration branch
(`make_branch`), its limits (`backlog_room`), its pull request at the end (`close_backlog`) or those of a stack
(`look_at_stack`), and signing its items' requests (`sign_item_request`).

Effects: `make_branch` pushes the integration branch when the remote does not have it, `close_backlog` opens one pull
request; both look first. Key: the branch. `look_at_stack` moves the base of a pull request, and opens one again that a
forge had closed with its base; one that is into that branch already, or that somebody has closed, is left alone. Key:
the pull request's own branch. The others have none. No model output chooses host, repository, base or branch.

A backlog that came with this home's proof may name a repository or a checkout on its host; so may its deliveries, whose
requests only its workflow can write: `sign_item_request` signs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from temporalio import activity

from activities.concurrency_limit import find_limit_reason
from activities.contract_builder import ContractBuilder
from activities.on_host import OnHost
from perdure.adapters.forges.backlog_body import backlog_body, backlog_footer, backlog_title
from perdure.adapters.forges.base import HostedForge, Proposal
from perdure.adapters.forges.markdown import code_span, neutral_title
from perdure.adapters.git.command import redact
from perdure.adapters.git.integration import IntegrationBranch, list_landed
from perdure.adapters.git.landing import fetch_integration_branch
from perdure.adapters.git.publish import count_commits, publish_first_commit
from perdure.adapters.git.remote import FIRST_COMMIT, Heads, remote_heads
from perdure.adapters.git.target import TargetRepository
from perdure.adapters.git.vault import Vault
from perdure.adapters.repository.terms import check_can_land, fetch_base, find_target
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread, in_thread_to_end
from perdure.adapters.system.zones import zone_offsets
from perdure.models.backlog.following import MoveBranchInput, PullRequestState, StackInput, StackState
from perdure.models.backlog.landing import (
    CloseBacklogInput,
    CloseBacklogResult,
    OpenBacklogInput,
    SignRequestInput,
    SignRequestResult,
)
from perdure.models.backlog.request import ITEMS_MOST
from perdure.models.backlog.state import OpenBacklogResult
from perdure.models.concurrency_limit import ConcurrencyCheckResult
from perdure.models.config.repository import Limits, RepositoryConfig
from perdure.models.crash import CrashPoint
from perdure.models.delivery.request import DeliveryRequest, is_valid_proof, request_proof
from perdure.models.delivery.turn import Contract
from perdure.models.errors import ForgeRefused, InvalidRequest, NoRoom, PerdureError
from perdure.models.ids import branch_name, delivery_key
from perdure.models.issue import IssueQuery
from perdure.models.limits import HEARTBEAT_TIMEOUT
from perdure.models.phases import unreachable_gate_reason
from perdure.models.rules.backlog import continued_request
from perdure.text import format_count, shorten

TITLE_CHARS = 100
"""The most characters in the title of a backlog's pull request."""


class BacklogActivities(OnHost):
    """The activities for a backlog as a whole, outside of its deliveries."""

    @activity.defn
    async def open_backlog(self, work: OpenBacklogInput) -> OpenBacklogResult:
        """Fetch the backlog's base, read its settings, check that the integration branch can be used, and return base,
        branch and what its workflow needs to know of this host; nothing is pushed and no issues are listed. Raises
        InvalidRequest or BadInput for a request, settings or branch that cannot be used, ForgeRefused or
        ForgeUnavailable when remote or forge does not answer as needed."""
        async with send_heartbeats():
            return await in_thread(self._open_backlog, work, False)

    @activity.defn
    async def backlog_room(self, work: OpenBacklogInput) -> ConcurrencyCheckResult:
        """Return the reason why the repository's limits do not allow one more pull request, that of this backlog; an
        empty reason: they do. Raises NoRoom, which is retried, instead of returning a reason when `work.waits` is set;
        InvalidRequest or BadInput for a repository or settings that cannot be used; ForgeRefused, ForgeUnavailable and
        RPCError when forge, remote or Temporal server do not answer."""
        async with send_heartbeats():
            url, limits = await in_thread(self._read_limits, work)
            identity = {"repository": work.repository, "url": url, "workflow_id": work.backlog}
            reason = await find_limit_reason(self._host, limits, delivery=delivery_key(work.backlog), **identity)
        if reason and work.waits:
            raise NoRoom(reason)
        return ConcurrencyCheckResult(reason=reason)

    @activity.defn
    async def make_branch(self, work: OpenBacklogInput) -> OpenBacklogResult:
        """Push the integration branch at the base's commit when the remote does not have it, and return the same as
        `open_backlog`, with the issues that the backlog is to build.

        In an empty repository the first commit is pushed as the base. A stack has no integration branch: each of its
        items has its own. Raises InvalidRequest, BadInput, ForgeRefused and ForgeUnavailable as `open_backlog` does.
        """
        async with send_heartbeats():
            result = await in_thread(self._open_backlog, work, True)
        crash_point(CrashPoint.AFTER_PUSH)
        return result

    @activity.defn
    async def close_backlog(self, work: CloseBacklogInput) -> CloseBacklogResult:
        """Open the backlog's one pull request, or update the one that is open, and return it; only a message when there
        is nothing to propose, or Perdure does not speak to the forge. Raises ForgeRefused when branch or base is gone
        or the forge refuses, ForgeUnavailable when it does not answer (the workflow waits and tries again),
        InvalidRequest."""
        async with send_heartbeats():
            result = await in_thread_to_end(self._open_pull_request, work)
        crash_point(CrashPoint.AFTER_PULL_REQUEST)
        return result

    def _open_backlog(self, work: OpenBacklogInput, make_branch: bool) -> OpenBacklogResult:
        """Find the backlog's base, read its settings, and return both with the name of its integration branch and what
        its workflow needs to know of this host. Without `make_branch` only check that the branch can be used; with it
        push the branch when it is missing, in an empty repository the first commit too, and list the issues that the
        backlog is to build. For a stack, which has no integration branch, none is checked or pushed.

        Raises InvalidRequest when the settings let nothing land, or the branch can be neither used nor made;
        ForgeRefused or ForgeUnavailable when remote or forge does not answer as needed.
        """
        target, vault = self.open_target(work)
        base, base_sha = fetch_base(vault, target, _settings_request(work))
        config = ContractBuilder(self._host).read_settings(vault, base, base_sha, _settings_request(work)).config
        gates = continued_request(work.backlog_request).gates
        if reason := unreachable_gate_reason(gates, config.delivery.phases, push=False):
            raise InvalidRequest(f"gates: {reason}", where="delivery.phases")
        if work.backlog_request.get("land") != "stack":
            check_can_land(config)
        issues, issue_pull_requests = self._list_issues(target, work) if make_branch else ((), {})
        heads = target.heads
        if make_branch and base_sha == FIRST_COMMIT:
            heads = publish_first_commit(vault, _base_contract(work, target, base, base_sha))
        is_requested, own_branch = bool(work.branch), branch_name(delivery_key(work.backlog))
        integration = IntegrationBranch(vault, work.backlog, work.branch or own_branch, is_requested, base, base_sha)
        if work.backlog_request.get("land") == "stack":
            pass  # each item has a branch of its own
        elif make_branch:
            integration.ensure_on_remote(heads)
        else:
            integration.check_usable(heads)
        return OpenBacklogResult(
            base=base,
            base_sha=base_sha,
            branch=integration.branch,
            queue=self._host.publisher_queue or self._host.home.queue(),
            sets_search_attributes=bool(self._host.search_attributes),
            extra_attributes=self._host.extra_search_attributes,
            frees_waiting_slots=True,
            follows_base=not is_requested,
            notifies=bool(self._host.listeners.addresses),
            limits_pull_requests=config.limits.open_pull_requests is not None,
            offsets=zone_offsets(str(work.backlog_request.get("window") or ""), datetime.now(UTC)),
            issues=issues,
            issue_pull_requests=issue_pull_requests,
            page=self._host.page_address(),
        )

    def _list_issues(self, target: TargetRepository, work: OpenBacklogInput) -> tuple[tuple[int, ...], dict[int, int]]:
        """Return the numbers of the open issues that the backlog's query names; and, for those left out because a pull
        request of Perdure's is open for them, that pull request's number by the issue's. Both are empty without a
        query.

        Raises InvalidRequest when the repository's forge has no issues that Perdure can read, ForgeRefused when the
        query names more than ITEMS_MOST, ForgeUnavailable when the forge does not answer.
        """
        if not (query := work.backlog_request.get("issues")):
            return (), {}
        forge = self._host.forges.forge(target.url)
        if not isinstance(forge, HostedForge):
            raise InvalidRequest("issues: this repository has none that Perdure can read", where=work.repository)
        numbers, proposed = forge.find_issues(IssueQuery.parse(str(query)), ITEMS_MOST), forge.issue_pull_requests()
        return (
            tuple(number for number in numbers if number not in proposed),
            {number: proposed[number] for number in numbers if number in proposed},
        )

    def _read_limits(self, work: OpenBacklogInput) -> tuple[str, Limits]:
        """Return the repository's address, and the limits in its settings without the one on deliveries at once, which
        each of the backlog's items keeps itself. Fetches the base. Raises InvalidRequest or BadInput for a repository
        or settings that cannot be used, ForgeUnavailable when the remote does not answer."""
        target, vault = self.open_target(work)
        base, base_sha = fetch_base(vault, target, _settings_request(work))
        limits = ContractBuilder(self._host).read_settings(vault, base, base_sha, _settings_request(work)).config.limits
        return target.url, limits.model_copy(update={"deliveries": None})

    def _open_pull_request(self, work: CloseBacklogInput) -> CloseBacklogResult:
        """Fetch the integration branch and its base, and open one pull request from the one into the other, or update
        the one that is open; return it with the forge's notes as the message.

        Returns only a message when the base has all of the branch, merged or squashed, when nothing on it is of this
        backlog, and when the origin has no forge that Perdure speaks to. Raises ForgeRefused when base or branch is
        gone from the remote or the forge refuses, ForgeUnavailable when remote or forge does not answer.
        """
        target, vault = self.open_target(work)
        head = fetch_integration_branch(vault, work.branch, work.head)
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
            return CloseBacklogResult(message=f"{work.base} has all of {work.branch}: there is nothing to propose")
        if not (landed := list_landed(vault, head, base_sha, work.backlog)):
            message = f"nothing of {work.backlog} is on {work.branch}: there is nothing to propose"
            return CloseBacklogResult(message=message)
        forge = self._host.forges.forge(target.url)
        if forge is None:
            message = f"{work.branch} is pushed; opening pull requests there is not supported yet: open it yourself"
            return CloseBacklogResult(message=message)
        landed_issues = {commit.issue for commit in landed if commit.issue is not None}
        done = landed_issues & set(work.issues)
        closed_issues = done if done and self._closes_issues(vault, work, base_sha) else set[int]()
        footer = backlog_footer(work, landed_issues, closed_issues)
        proposal = Proposal(
            delivery=delivery_key(work.backlog),
            title=shorten(neutral_title(backlog_title(work, landed)), TITLE_CHARS),
            body=backlog_body(work, landed, _behind_note(vault, work, head, base_sha), footer),
            head=work.branch,
            head_sha=head,
            base=work.base,
            shares_body=True,
            body_end=footer,
        )
        result = forge.open_or_update_pull(proposal)
        return CloseBacklogResult(pull_request=result.pull_request, message="; ".join(result.notes))

    def _closes_issues(self, vault: Vault, work: CloseBacklogInput, base_sha: str) -> bool:
        """Return the setting `[ship] close_issue` for this backlog: perdure.toml of the base as it is now, merged with
        the settings of host and environment and the configuration sent with the backlog. False when they cannot be
        read, so that broken ones do not prevent the pull request."""
        try:
            return (
                ContractBuilder(self._host)
                .read_settings(vault, work.base, base_sha, _settings_request(work))
                .config.ship.close_issue
            )
        except PerdureError:
            return False

    def open_target(
        self, work: OpenBacklogInput | CloseBacklogInput | MoveBranchInput | StackInput
    ) -> tuple[TargetRepository, Vault]:
        """Find the backlog's repository and open or make its vault, as for a delivery: a path on this host counts only
        with this home's proof, or when the host's settings allow it. Raises InvalidRequest, BadInput or
        ForgeUnavailable when it cannot be found."""
        request = DeliveryRequest(repository=work.repository, request="-")
        target = find_target(request, self._is_ours(work), self._host.config.local_repositories, self._host.forges)
        return target, Vault.open_or_create(
            self._host.home, target.url, self._host.forges, self._host.config.git.filters
        )

    def _is_ours(self, work: OpenBacklogInput | CloseBacklogInput | MoveBranchInput | StackInput) -> bool:
        """Return True when the backlog's request names this very repository and carries a proof that this home's key
        has signed for this backlog's id and all fields of its request but the items."""
        claimed_proof, request_fields = (
            work.backlog_request.get("proof"),
            {name: value for name, value in work.backlog_request.items() if name != "items"},
        )
        is_same_repository = request_fields.get("repository") == work.repository
        return (
            is_same_repository
            and isinstance(claimed_proof, str)
            and is_valid_proof(claimed_proof, self._host.home.key(), work.backlog, request_fields)
        )


def _settings_request(work: OpenBacklogInput | CloseBacklogInput) -> DeliveryRequest:
    """Return a delivery request without text, by which the settings of the backlog's repository are read: its base, and
    the configuration that was sent with the backlog."""
    config = work.backlog_request.get("config")
    config_text = config if isinstance(config, str) else None
    return DeliveryRequest(repository=work.repository, request="-", base=work.base or None, config=config_text)


@asynccontextmanager
async def send_heartbeats() -> AsyncIterator[None]:
    """Send heartbeats while the block runs. The activities here belong to no delivery; those of a delivery get theirs
    from the interceptor (perdure.adapters.worker.attempt)."""

    async def send_forever() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(HEARTBEAT_TIMEOUT.total_seconds() / 3)

    heartbeat_task = asyncio.create_task(send_forever())
    try:
        yield
    finally:
        heartbeat_task.cancel()


def _base_contract(work: OpenBacklogInput, target: TargetRepository, base: str, base_sha: str) -> Contract:
    """Return a contract without a request, which only serves to push the first commit of an empty repository as its
    base."""
    return Contract(
        delivery=delivery_key(work.backlog),
        repository=target.url,
        request="",
        base=base,
        base_sha=base_sha,
        branch=base,
        config=RepositoryConfig(version=1),
    )


def _behind_note(vault: Vault, work: CloseBacklogInput, head: str, base_sha: str) -> str:
    """Return a note, in Markdown, that counts the base's commits which the branch does not stand on, so that its items
    were tested without them; empty when the branch has all of them."""
    if vault.is_ancestor(base_sha, head):
        return ""
    count = count_commits(vault, head, base_sha)
    commits = format_count(count, "commit")
    difference = (
        f"{code_span(work.base)} has {commits} that this branch does not stand on (it is at {base_sha[:12]} now)"
    )
    return f"> {difference}: its items were tested without {'them' if count != 1 else 'it'}.\n\n"


class StackActivity(OnHost):
    """The activity that looks after the pull requests of a stack."""

    @activity.defn
    async def look_at_stack(self, work: StackInput) -> StackState:
        """Reopen and retarget the pull requests of a stack as its input asks, and return the state of each, by item;
        items without a pull request are left out. Raises ForgeRefused when the forge refuses, ForgeUnavailable when it
        does not answer."""
        async with send_heartbeats():
            return await in_thread_to_end(self._update_pull_requests, work)

    def _update_pull_requests(self, work: StackInput) -> StackState:
        """Find the newest pull request of Perdure's for each item; reopen it when it is closed, the input asks for that
        and the branch it is into exists; when it is open, retarget it to the base that the input names, if that exists
        and is another one. Return the state of each, by item. Items without a pull request are left out; without a
        forge that Perdure speaks to, all are. Raises ForgeRefused or ForgeUnavailable when the forge refuses or does
        not answer."""
        target, vault = BacklogActivities(self._host).open_target(work)
        forge = self._host.forges.forge(target.url)
        if forge is None:
            return StackState()
        heads, states = remote_heads(vault.url, vault.keys).branches, dict[str, PullRequestState]()
        for pull in work.pulls:
            own_pulls = [candidate for candidate in forge.pulls_of_branch(pull.branch, pull.delivery) if candidate.ours]
            if not own_pulls:
                continue
            newest = max(own_pulls, key=lambda candidate: candidate.number)
            base, state = newest.base, newest.state
            if state == "closed" and pull.reopen and base in heads:
                forge.reopen_pull(newest.number)
                state = "open"
            if state == "open" and pull.to and pull.to != base and pull.to in heads:
                forge.change_base(newest.number, pull.to)
                crash_point(CrashPoint.AFTER_RETARGET)
                base = pull.to
            states[pull.item] = PullRequestState(state=state, into=base, base_gone=base not in heads)
        return StackState(pull_requests=states)


class SignItemRequestActivity(OnHost):
    """The activity that signs the request of a backlog's item."""

    @activity.defn
    async def sign_item_request(self, work: SignRequestInput) -> SignRequestResult:
        """Sign the request of an item's delivery with this home's key and return the proof; an empty one when the
        backlog carries no proof, or one that this home did not make."""
        key, claimed_proof = self._host.home.key(), work.backlog_request.get("proof")
        request_fields = {name: value for name, value in work.backlog_request.items() if name != "items"}
        if not isinstance(claimed_proof, str) or not is_valid_proof(claimed_proof, key, work.backlog, request_fields):
            return SignRequestResult()
        return SignRequestResult(proof=request_proof(key, work.workflow_id, work.request))

    @activity.defn(name="vouch")
    async def sign_item_request_begun_before(self, work: SignRequestInput) -> SignRequestResult:
        """Sign the request of an item's delivery, as `sign_item_request`, for a backlog whose history names the
        activity `vouch`: one that an earlier version began."""
        return await self.sign_item_request(work)
