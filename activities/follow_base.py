"""Activities `follow`, `check_landed` and `move_branch`, which keep a backlog's integration branch on top of its base:
when the base has moved, the branch's commits are put onto it, tested there, and the branch is moved by
compare-and-swap.

Effects: `follow` makes commits, and a workspace to test them in, on this host alone, `check_landed` the workspace;
`move_branch` moves the branch on the remote, by a push with a lease. All look first: the same commits become the same
ones again, and a branch that is there already has been moved. Key: the branch and the commit it is moved from. No model
output chooses anything here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic

from temporalio import activity

from activities.backlog import BacklogActivities, send_heartbeats
from activities.contract_builder import ContractBuilder
from activities.prepare import PrepareActivity
from activities.run_tests import BaseTests, check_name, run_item_checks, test_base, test_commit
from perdure.adapters.checks import tests
from perdure.adapters.checks.verdict import verdict_of
from perdure.adapters.git.integration import landed_items, replay_commits
from perdure.adapters.git.landing import fetch_integration_branch, missing_branch_error
from perdure.adapters.git.publish import push_commit
from perdure.adapters.git.remote import remote_heads
from perdure.adapters.git.vault import Vault
from perdure.adapters.repository.config import EffectiveConfig
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.sealed_facts import move_fact
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.backlog.following import (
    FollowInput,
    FollowResult,
    LandedChecksResult,
    MoveBranchInput,
    MoveBranchResult,
)
from perdure.models.backlog.request import CHECKS_S
from perdure.models.checks.report import TestReport
from perdure.models.config.repository import CONFIG_FILE, TestCommand
from perdure.models.crash import CrashPoint
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import TestVerdict
from perdure.models.errors import ForgeRefused, InvalidRequest
from perdure.models.ids import branch_name, delivery_key
from perdure.text import format_count, shorten

_MAX_PROBLEM_CHARS = 600


@dataclass(frozen=True)
class _BranchOnBase:
    """An integration branch as it would stand on its base.

    onto          the branch's commit on the remote; head: the commit that it would have on the base
    commits       how many commits were put onto the base for that
    has_old_base  the base still has the commit that the branch stood on; False: somebody has rewritten it
    tested        nothing has to be tested: the verdict on `head` is known
    problem       why the branch cannot be put onto the base, in one line; then there is no `head`
    """

    vault: Vault
    contract: Contract
    settings: EffectiveConfig
    onto: str
    has_old_base: bool = True
    head: str = ""
    commits: int = 0
    problem: str = ""
    tested: bool = False


class FollowActivities:
    """The activities that keep a backlog's integration branch on top of its base, and check what landed on it."""

    def __init__(self, host: Host) -> None:
        self._host, self._contract_builder, self._preparation = host, ContractBuilder(host), PrepareActivity(host)

    @activity.defn
    async def follow(self, work: FollowInput) -> FollowResult:
        """Put the integration branch onto its base as it is now, on this host alone, and return the commit to move it
        to; nothing is pushed. When the verdict on that commit is not known yet, it is tested in a workspace made for
        it, and the result names the landed items whose checks were run.

        The result has a `problem` instead of that commit when commits conflict with the base, the tests are red there,
        or the base is gone. Raises ForgeRefused when the branch is gone from the remote or was put back,
        ForgeUnavailable when the remote does not answer, InvalidRequest for a request or settings that are wrong,
        SetupFailed when setup or a test command cannot start, SandboxUnavailable, NoPorts.
        """
        update_heartbeat(doing="fetching")
        try:
            candidate = await in_thread(self._put_on_base, work)
        except InvalidRequest as error:
            if not error.what.startswith("base: there is no branch"):
                raise
            return FollowResult(problem=f"{work.request.base} is not on the remote any more")
        contract = candidate.contract
        result = FollowResult(
            base_sha=contract.base_sha,
            onto=candidate.onto,
            head=candidate.head,
            problem=shorten(candidate.problem, _MAX_PROBLEM_CHARS),
            queue=self._host.publisher_queue or self._host.home.queue(),
        )
        move = move_fact(contract.repository, contract.branch, candidate.onto, candidate.head)
        if candidate.problem:
            return result
        if candidate.tested:
            await in_thread(self._host.facts(work.delivery).seal_facts, move)
            return result
        crash_point(CrashPoint.DURING_FOLLOW)
        outcome = await self._test_in_workspace(work, candidate)
        is_red = outcome.status is TestsStatus.RED
        base_text = f"on {contract.base} at {contract.base_sha[:7]}"
        rewritten = "" if candidate.has_old_base else ", which somebody has rewritten"
        result = result.model_copy(update={"host": self._host.home.queue()})
        if is_red:
            problem = shorten(f"{base_text} its tests are red: {outcome.summary}", _MAX_PROBLEM_CHARS)
            return result.model_copy(update={"head": "", "problem": problem})
        await in_thread(self._host.facts(work.delivery).seal_facts, move)
        commits_text = format_count(candidate.commits, "commit")
        summary = shorten(f"stands {base_text}{rewritten}: {commits_text}, {outcome.summary}", _MAX_PROBLEM_CHARS)
        checked_items = tuple(item for item in work.check if item not in outcome.unchecked)
        return result.model_copy(update={"summary": summary, "checked_items": checked_items})

    @activity.defn
    async def check_landed(self, work: FollowInput) -> LandedChecksResult:
        """Run the checks of landed items on the integration branch as it stands, in a workspace for it, and return
        which of the items' checks passed and failed. Raises ForgeRefused when the branch is gone from the remote or was
        put back, ForgeUnavailable, SetupFailed, SandboxUnavailable and NoPorts when the workspace cannot be made ready,
        and InvalidRequest also when the base is gone."""
        update_heartbeat(doing="fetching")
        candidate = await in_thread(self._branch_as_it_is, work)
        contract = await self._preparation.make_workspace(candidate.vault, candidate.contract, candidate.settings)
        contract_hash = await in_thread(self._host.store_contract, candidate.vault, contract)
        async with self._host.open_session(work.delivery, contract_hash) as session:
            result = await _run_landed_checks(session, work, candidate)
        return result.model_copy(update={"head": candidate.head, "host": self._host.home.queue()})

    @activity.defn
    async def move_branch(self, work: MoveBranchInput) -> MoveBranchResult:
        """Move the integration branch on the remote to `work.head` if it is still at `work.onto`, and return its commit
        and those of the items on it; push nothing when it is at `work.head` already. The result is empty when somebody
        else moved it first. Raises ForgeRefused when the remote refuses, the branch is gone or it is the default
        branch, ForgeUnavailable when the remote does not answer."""
        async with send_heartbeats():
            result = await in_thread(self._push_branch, work)
        crash_point(CrashPoint.AFTER_FOLLOW)
        return result

    def _put_on_base(self, work: FollowInput) -> _BranchOnBase:
        """Fetch base and branch, find the commit that the branch would have on its base, and return it with what is
        known about it.

        The commit is the branch's own when it contains the base already, the base's own when that contains the branch,
        and else the last of the branch's commits copied onto the base; when they conflict, `problem` says so and there
        is none. Commits that somebody dropped from a rewritten base do not come back. Nothing is pushed.
        """
        vault, contract, settings = self._contract_builder.build_contract(work.delivery, work.request)
        base, onto = contract.base_sha, fetch_integration_branch(vault, contract.branch, work.landed)
        has_old_base = vault.has_commit(work.base_sha) and vault.is_ancestor(work.base_sha, base)
        has_dropped_commits = (
            not has_old_base and vault.has_commit(work.base_sha) and vault.is_ancestor(work.base_sha, onto)
        )
        candidate = _BranchOnBase(vault, contract, settings, onto, has_old_base)
        if vault.is_ancestor(base, onto) and not has_dropped_commits:  # somebody may have brought it there by hand
            is_known = base == work.base_sha or onto in (base, work.landed)
            return self._select_head(work, candidate, onto, 0, tested=is_known)
        if vault.is_ancestor(onto, base):  # all of it was merged, or nothing has landed: the base itself is no question
            return self._select_head(work, candidate, base, 0, tested=True)
        replayed = replay_commits(vault, onto, base, work.base_sha)
        if replayed.problem:
            problem = f"{contract.branch} cannot be brought onto {contract.base} at {base[:7]}: {replayed.problem}"
            return replace(candidate, problem=problem)
        return self._select_head(work, candidate, replayed.head, replayed.commits, tested=False)

    def _branch_as_it_is(self, work: FollowInput) -> _BranchOnBase:
        """Fetch the integration branch and return it at its own commit, as one that has to be tested."""
        vault, contract, settings = self._contract_builder.build_contract(work.delivery, work.request)
        onto = fetch_integration_branch(vault, contract.branch, work.landed)
        return self._select_head(work, _BranchOnBase(vault, contract, settings, onto), onto, 0, tested=False)

    def _select_head(
        self, work: FollowInput, candidate: _BranchOnBase, head: str, commits: int, *, tested: bool
    ) -> _BranchOnBase:
        """Return the candidate with `head` as the commit that the branch would have. Unless that is `tested` already,
        move the vault's branch for its workspace there and read the settings at it: what landed may have changed them.
        """
        vault, settings = candidate.vault, candidate.settings
        if not tested:
            ref = f"refs/heads/{branch_name(work.delivery)}"
            vault.remove_stale_locks(ref)
            vault.move_ref(ref, head, vault.read_ref(ref))
            settings = self._contract_builder.read_settings(vault, candidate.contract.branch, head, work.request)
        changes = {"head": head, "config": settings.config, "origins": settings.origins}
        contract = candidate.contract.model_copy(update=changes)
        return replace(candidate, contract=contract, settings=settings, head=head, commits=commits, tested=tested)

    async def _test_in_workspace(self, work: FollowInput, candidate: _BranchOnBase) -> TestVerdict:
        """Make a workspace at the branch's new commit, store its contract, and return the verdict of the tests there.
        What fails on the base too does not count; checks of landed items that fail on the branch as it was do not
        either."""
        contract = await self._preparation.make_workspace(candidate.vault, candidate.contract, candidate.settings)
        contract_hash = await in_thread(self._host.store_contract, candidate.vault, contract)
        async with self._host.open_session(work.delivery, contract_hash) as session:
            return await _run_tests_on_base(session, work, candidate)

    def _push_branch(self, work: MoveBranchInput) -> MoveBranchResult:
        """Push the branch, with a lease on `work.onto`, and return its commit with those of the backlog's items on it;
        an empty result when somebody else moved the branch first. When it is at `work.head` already, nothing is pushed.

        Raises ForgeRefused for the default branch, for a branch that is gone, and when the remote refuses;
        ForgeUnavailable when the remote does not answer.
        """
        target, vault = BacklogActivities(self._host).open_target(work)
        heads = remote_heads(vault.url, vault.keys)
        tip = heads.branches.get(work.branch)
        if work.branch == heads.default:
            raise ForgeRefused(f"{work.branch} is the default branch: nobody moves it", where=target.url)
        facts = self._host.facts(delivery_key(f"{work.backlog}/~base"))
        if work.head != work.onto and move_fact(target.url, work.branch, work.onto, work.head) not in facts:
            raise ForgeRefused(f"{work.branch} is not moved to {work.head[:12]}: it was not brought onto its base here")
        if tip is None:
            raise missing_branch_error(vault, work.branch, work.onto)
        if tip not in (work.onto, work.head):
            return MoveBranchResult()
        if tip != work.head:
            try:
                push_commit(vault, vault.url, work.head, work.branch, work.onto)
            except ForgeRefused:
                if remote_heads(vault.url, vault.keys).branches.get(work.branch) == work.onto:
                    raise
                return MoveBranchResult()  # somebody was faster, between the look and the push
        return MoveBranchResult(head=work.head, commits=landed_items(vault, work.head, work.base_sha, work.backlog))


async def _run_tests_on_base(session: WorkspaceSession, work: FollowInput, candidate: _BranchOnBase) -> TestVerdict:
    """Run the test commands on the base and on the branch's new commit, then the checks of landed items on the latter,
    and return the verdict on all of it; `unchecked` in it names the items whose checks were not all run. What fails on
    the base too does not count; nor does a check that fails on the branch as it was."""
    contract, vault = session.contract, session.vault
    update_heartbeat(doing=f"testing {contract.base}")
    base_tests = await test_base(session, CONFIG_FILE) if contract.config.test else BaseTests()
    baseline = tests.Baseline(base_tests.report, contract.base) if base_tests.report is not None else None
    tree = await in_thread(vault.tree_of, candidate.head)
    update_heartbeat(doing=f"testing {contract.branch}")
    report = await test_commit(session, candidate.head, tree, "follow", baseline, makes_seed=False, commands=None)
    if work.check:
        checks = await run_item_checks(
            session, report, work.check, "follow-checks", before_commit=candidate.onto, before_name=contract.branch
        )
        return verdict_of(checks[0]).model_copy(update={"unchecked": checks[1]})
    return verdict_of(report)


async def _run_landed_checks(
    session: WorkspaceSession, work: FollowInput, candidate: _BranchOnBase
) -> LandedChecksResult:
    """Run the checks of landed items on the branch, and return the items whose checks all passed, those of which one
    failed, and a line about the first failure with the landing it began with. Items whose checks were not all run are
    in neither.

    No failure is excused by the base: each check passed when its item landed, so what fails now was broken by a later
    landing.
    """
    contract, vault = session.contract, session.vault
    tree = await in_thread(vault.tree_of, candidate.head)
    empty_report = TestReport(commit=candidate.head, tree=tree)
    update_heartbeat(doing=f"checking {contract.branch}")
    report, left_out = await run_item_checks(
        session, empty_report, work.check, "last-checks", before_commit="", before_name=""
    )
    item_by_check = {check_name(id, command): id for id, commands in work.check.items() for command in commands}
    failed_commands = [command for command in report.commands if command.verdict != "passed"]
    failed_items = tuple(dict.fromkeys(item_by_check[command.name] for command in failed_commands))
    passed_items = tuple(item for item in work.check if item not in (*left_out, *failed_items))
    if not failed_commands:
        return LandedChecksResult(passed_items=passed_items)
    check = TestCommand(name=failed_commands[0].name, command=failed_commands[0].command)
    began_with = await _find_breaking_landing(session, work, candidate.head, failed_items[0], check)
    problem = f"{contract.branch} at {candidate.head[:7]}: {verdict_of(report).summary}{began_with}"
    return LandedChecksResult(
        passed_items=passed_items,
        failed_items=failed_items,
        problem=shorten(problem, _MAX_PROBLEM_CHARS),
    )


async def _find_breaking_landing(
    session: WorkspaceSession, work: FollowInput, head: str, item: str, check: TestCommand
) -> str:
    """Return the end of a sentence that names the landing with which an item's check began to fail, found by bisection:
    the check is run on clean checkouts of the commits of this item and of those that landed after it. When it fails
    where the item itself landed, the sentence says so instead.

    Empty when no landing of that item is on the branch, when the check passes at every landing and fails only at the
    branch's head, and when CHECKS_S seconds are over.
    """
    vault, started = session.vault, monotonic()
    landed = [*reversed((await in_thread(landed_items, vault, head, work.base_sha, work.backlog)).items())]
    later_landings = landed[next((position for position, (id, _) in enumerate(landed) if id == item), len(landed)) :]
    if not later_landings:
        return ""

    async def passes_at(commit: str) -> bool:
        tree = await in_thread(vault.tree_of, commit)
        report = await test_commit(
            session, commit, tree, f"since-{commit[:12]}", None, makes_seed=False, commands=[check]
        )
        return all(result.verdict == "passed" for result in report.commands)

    if not await passes_at(later_landings[0][1]):
        return f"; it fails where {item} landed, too ({later_landings[0][1][:7]})"
    good, bad = 0, len(later_landings)  # it fails at `bad`; behind the last landing that is the branch's head
    while bad - good > 1:
        if monotonic() - started > CHECKS_S:
            return ""
        middle = (good + bad) // 2
        good, bad = (middle, bad) if await passes_at(later_landings[middle][1]) else (good, middle)
    return (
        f"; it held until {later_landings[bad][0]} landed ({later_landings[bad][1][:7]})"
        if bad < len(later_landings)
        else ""
    )
