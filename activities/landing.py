"""Activities `rebase` and `land`: the delivery's change brought onto the integration branch's head, as one commit or as
files with conflicts to mend; and the branch moved to that commit, tested exactly as it lands.

`rebase`  Effect: the workspace made anew on that head with setup and baseline, the commit, the delivery's own branch,
          and a checkpoint on the run's ref, which comes last. Looks first: a checkpoint that is there is taken over,
          and a change that is on the integration branch already has landed. Key: delivery, run, number, checkpoint. It
          moves nobody else's branch.
`land`    Effect: that branch on the remote, by a push with a lease; for a task of a plan, a branch of the vault. Looks
          first: its tip; a commit that is there already has landed, and a branch that somebody else has moved is left
          alone. Key: the branch and the commit it is moved from.

No model output chooses host, repository or branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.on_host import OnHost
from activities.prepare import complete_contract
from activities.run_tests import BaseTests, test_base
from perdure.adapters.forges.body import subject_line
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.checkouts import exact_tree
from perdure.adapters.git.command import IDENTITY
from perdure.adapters.git.integration import BACKLOG_TRAILER, ISSUE_TRAILER, ITEM_TRAILER
from perdure.adapters.git.landing import (
    MergeResult,
    describe_landed,
    fetch_integration_branch,
    find_landed,
    land_in_vault,
    land_on_remote,
    merge_change_onto,
    vault_branch_head,
)
from perdure.adapters.git.publish import find_commit
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.config import EffectiveConfig
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.lease import Lease
from perdure.adapters.worker.sealed_facts import commit_fact, published_title, require_commit, require_verdict
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.backlog.landing import LandInput, LandResult, RebaseInput, RebaseResult
from perdure.models.backlog.request import LandingPlace
from perdure.models.config.repository import CONFIG_FILE
from perdure.models.crash import CrashPoint
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.turn import Contract
from perdure.models.errors import Diverged
from perdure.models.ids import branch_name, run_ref
from perdure.models.phases import Step
from perdure.text import escape_path, format_count

MAX_CONFLICT_PATHS, MAX_CONFLICT_CHARS = 50, 6000
"""The most paths in conflict in a result, and the most characters of all of them: history keeps it."""


class RebaseActivity(OnHost):
    """The activity that brings a delivery's change onto the head of the branch that it lands on."""

    @activity.defn(name=Step.REBASE)
    async def rebase(self, work: RebaseInput) -> RebaseResult:
        """Fetch the integration branch, bring the delivery's change onto its head and return the commit, or the
        conflicts as files to mend in a checkpoint. Unless the delivery is a plan's task or has no test commands, the
        head itself is tested too, as the base to compare with. What a killed attempt has recorded is returned instead.

        No new workspace is made, and nothing is tested, when the change has landed already, when the branch is where
        the delivery began, and for a plan's task without conflicts. Raises ForgeRefused when the branch is gone from
        the remote or was put back, ForgeUnavailable, SetupFailed, SandboxUnavailable or NoPorts when the new workspace
        cannot be made ready, Superseded when a newer attempt has taken over the workspace, Diverged when the run's ref
        went on with something else, WorkspaceLost.
        """
        result = await self._bring_onto_head(work)
        if result.commit:
            await in_thread(self._host.facts(work.delivery).seal_facts, commit_fact(result.commit))
        return result

    async def _bring_onto_head(self, work: RebaseInput) -> RebaseResult:
        """Do what `rebase` says, and return its result."""
        ref = run_ref(work.delivery, activity.info().workflow_run_id or "")
        async with self._host.lease_workspace(work.delivery) as (workspace, lease):
            vault = workspace.vault
            await in_thread(vault.remove_stale_locks, ref)
            if (recorded := await in_thread(_find_recorded, vault, ref, work)) is not None:
                return recorded
            contract = await in_thread(self._host.load_contract, vault, work.delivery, work.contract)
            facts = self._host.facts(work.delivery)
            subject = await in_thread(published_title, facts, vault, contract, work.plan, work.subject)
            work = work.model_copy(update={"subject": subject})
            update_heartbeat(doing=f"fetching {work.place.branch}")
            fetched = await in_thread(_fetch_and_merge, vault.with_keys(self._host.forges), contract, work)
            lease.check()
            if fetched.landed:
                return _landed_result(work, fetched)
            if fetched.onto == contract.base_sha or (contract.is_task and not fetched.merged.conflicts):
                return await in_thread(_commit_without_moving, workspace, lease, contract, work, fetched)
            workspace = await in_thread(self._recreate_workspace, workspace, lease, fetched.onto)
            new_contract = await in_thread(_contract_on_head, contract, work.place, fetched.onto, workspace.path)
            contract_hash = await in_thread(self._host.store_contract, vault, new_contract)
            crash_point(CrashPoint.DURING_REBASE)
            session = await self._host.prepare_session(workspace, lease, new_contract)
            update_heartbeat(doing=f"testing {work.place.branch}")
            base_tests = (
                await test_base(session, CONFIG_FILE)
                if new_contract.config.test and not new_contract.is_task
                else BaseTests()
            )
            result = await in_thread(_commit_on_head, session, work, fetched, contract_hash, base_tests)
            return await in_thread(_write_checkpoint, session, ref, work, fetched.merged, result)

    def _recreate_workspace(self, workspace: Workspace, lease: Lease, onto: str) -> Workspace:
        """Make a workspace on the new base in place of the old one, under the lease of the old one, and return it; one
        that a killed attempt has made there is restored and used when it is valid. Raises Superseded when a newer
        attempt has taken over."""
        record = workspace.record()
        if record.base_sha == onto and not workspace.find_problems():
            checkpoints.restore_base(workspace)
            return workspace
        generation = record.generation
        new_workspace = Workspace.create(
            self._host.home, workspace.vault, workspace.delivery, onto, generation=generation
        )
        lease.check()
        return new_workspace


@dataclass(frozen=True)
class _FetchedBranch:
    """The integration branch as it was fetched, and the delivery's change on it.

    onto    the branch's head
    landed  the delivery's commit on the branch; empty: there is none
    merged  the delivery's change merged onto that head; of no use where it has landed
    """

    onto: str
    landed: str
    merged: MergeResult


def _fetch_and_merge(vault: Vault, contract: Contract, work: RebaseInput) -> _FetchedBranch:
    """Fetch the integration branch (that of a plan's tasks is only in the vault), look for the delivery's commit on it,
    and merge the delivery's change onto its head unless that commit is there. No branch is moved. Raises ForgeRefused
    when the branch is gone or was put back, ForgeUnavailable."""
    branch = work.place.branch
    onto = (
        vault_branch_head(vault, branch) if contract.is_task else fetch_integration_branch(vault, branch, work.landed)
    )
    start = contract.first_base_sha or contract.base_sha
    landed = find_landed(vault, start, onto, landing_trailers(work.delivery, work.place))
    merged = MergeResult("") if landed else merge_change_onto(vault, contract.base_sha, onto, work.head)
    return _FetchedBranch(onto, landed, merged)


def landing_trailers(delivery: str, place: LandingPlace) -> dict[str, str]:
    """Return the trailers by which a delivery's commit on the integration branch is recognised."""
    return {"Perdure-Delivery": delivery, BACKLOG_TRAILER: place.backlog, ITEM_TRAILER: place.item}


def _landed_result(work: RebaseInput, fetched: _FetchedBranch) -> RebaseResult:
    """Return the result for a change whose commit is on the branch already: a worker died between the push and its
    report, or the delivery was rewound. Nothing is changed."""
    return RebaseResult(
        onto=fetched.onto,
        contract=work.contract,
        checkpoint=work.checkpoint,
        moved=False,
        landed=fetched.landed,
        summary=f"is on {work.place.branch} already, as {fetched.landed[:7]}",
    )


def _commit_without_moving(
    workspace: Workspace, lease: Lease, contract: Contract, work: RebaseInput, fetched: _FetchedBranch
) -> RebaseResult:
    """Make the change one commit on the branch's head without a new workspace, and return the result. The branch is
    where the delivery began, so the verdict on its files still holds; or it is a plan's task without conflicts, which
    lands and ends.

    A task that changes nothing any more gets no commit. A text on what landed since the delivery began is stored for
    its agent. Raises Superseded when a newer attempt has taken over the workspace.
    """
    lease.check()
    is_empty = contract.is_task and fetched.merged.tree == workspace.vault.tree_of(fetched.onto)
    commit = "" if is_empty else _commit_on_branch(workspace, contract, work, fetched.onto, fetched.merged.tree)
    landed_text = (
        describe_landed(workspace.vault, contract.first_base_sha, fetched.onto, work.place.branch, fetched.merged)
        if contract.first_base_sha
        else ""
    )
    return RebaseResult(
        onto=fetched.onto,
        contract=work.contract,
        checkpoint=work.checkpoint,
        commit=commit,
        tree=fetched.merged.tree,
        moved=False,
        landed_changes=workspace.vault.put_artifact(work.delivery, landed_text.encode()) if landed_text else "",
        summary=f"stands on {work.place.branch} at {fetched.onto[:7]}",
    )


def _contract_on_head(contract: Contract, landing: LandingPlace, onto: str, worktree: Path) -> Contract:
    """Return the delivery's contract on its new base, the integration branch's head. Commands that were written down
    stay; commands that were detected are detected again in the worktree, because others may have brought the first
    test."""
    config = contract.config
    if contract.origins.get("test") == "detected":
        config = config.model_copy(update={"test": None})
    if contract.origins.get("setup.commands") == "detected":
        config = config.model_copy(update={"setup": config.setup.model_copy(update={"commands": None})})
    changes = {"base": landing.branch, "base_sha": onto, "head": onto, "existing": False, "landing": landing}
    moved = contract.model_copy(update={**changes, "first_base_sha": contract.first_base_sha or contract.base_sha})
    return complete_contract(moved, EffectiveConfig(config, contract.origins), worktree)


def _commit_on_head(
    session: WorkspaceSession, work: RebaseInput, fetched: _FetchedBranch, contract_hash: str, base_tests: BaseTests
) -> RebaseResult:
    """Commit the change on the new head when it has no conflicts and something is left of it, and return the result
    with the paths in conflict, if any; its checkpoint is empty and written next. A text on what landed is stored for
    the delivery's agent. Raises Superseded when a newer attempt has taken over the workspace."""
    vault, merged, contract = session.vault, fetched.merged, session.contract
    is_empty = merged.tree == vault.tree_of(fetched.onto)
    commit = ""
    if not merged.conflicts and not is_empty:
        session.lease.check()
        commit = _commit_on_branch(session.workspace, contract, work, fetched.onto, merged.tree)
    landed_text = describe_landed(vault, contract.first_base_sha, fetched.onto, work.place.branch, merged)
    verdict = base_tests.verdict
    return RebaseResult(
        onto=fetched.onto,
        contract=contract_hash,
        checkpoint="",
        commit=commit,
        tree="" if merged.conflicts else merged.tree,
        conflicts=_bounded_paths(merged.conflicts),
        landed_changes=vault.put_artifact(work.delivery, landed_text.encode()),
        baseline=base_tests.artifact,
        base_red=verdict is not None and verdict.status is TestsStatus.RED,
        summary=_summary_line(work.place, fetched, is_empty),
    )


def _write_checkpoint(
    session: WorkspaceSession, ref: str, work: RebaseInput, merged: MergeResult, result: RebaseResult
) -> RebaseResult:
    """Write a checkpoint of the merged files with the result in it, restore the worktree to it, and move the run's ref
    there: after this the rebase has happened. Returns the result with its checkpoint. Raises Superseded, before the ref
    is moved, when a newer attempt has taken over the workspace."""
    vault = session.vault
    metadata = {"format": 1, "delivery": work.delivery, "step": Step.REBASE, "attempt": work.number}
    metadata |= {"summary": result.summary, "result": result.model_dump(mode="json", exclude={"checkpoint"})}
    checkpoint = checkpoints.write_initial_checkpoint(
        session.workspace, metadata, exact_tree(vault, merged.tree), work.checkpoint
    )
    session.restore(checkpoint)
    session.lease.check()
    vault.move_ref(ref, checkpoint, vault.read_ref(ref))
    crash_point(CrashPoint.AFTER_REBASE)
    return result.model_copy(update={"checkpoint": checkpoint})


def _find_recorded(vault: Vault, ref: str, work: RebaseInput) -> RebaseResult | None:
    """Return the result that a killed attempt of this rebase has recorded; None when there is none. Raises Diverged
    when the run's ref went on with something else."""
    recorded = find_recorded_result(vault, ref, Step.REBASE, work.number, work.checkpoint)
    return RebaseResult.model_validate(recorded) if recorded is not None else None


def find_recorded_result(vault: Vault, ref: str, step: str, number: int, checkpoint: str) -> dict[str, Any] | None:
    """Return the result that a killed attempt has recorded in its checkpoint, with that checkpoint as `checkpoint`;
    None when there is no ref yet, or it still stands at the checkpoint that this attempt began with. Raises Diverged
    when the ref went on with another step or number."""
    tip = vault.read_ref(ref)
    if tip in (None, checkpoint):
        return None
    child = vault.first_parent_child(checkpoint, tip)
    turn = checkpoints.read_turn(vault, child) if child is not None else {}
    if child is None or (turn.get("step"), turn.get("attempt")) != (step, number):
        raise Diverged(f"{ref} is at {tip[:12]}, which is no {step} {number} of {checkpoint[:12]}")
    return {**turn["result"], "checkpoint": child}


def _commit_on_branch(workspace: Workspace, contract: Contract, work: RebaseInput, onto: str, tree: str) -> str:
    """Make the change's one commit on `onto`, move the delivery's own branch and the worktree's HEAD to it, and return
    it. A commit with the same files and trailers that the branch has already is used instead."""
    vault, ref = workspace.vault, f"refs/heads/{branch_name(work.delivery)}"
    trailers = landing_trailers(work.delivery, work.place)
    if contract.issue is not None:
        trailers[ISSUE_TRAILER] = str(contract.issue.number)
    if contract.config.git.sign_off:
        trailers["Signed-off-by"] = f"{IDENTITY['GIT_COMMITTER_NAME']} <{IDENTITY['GIT_COMMITTER_EMAIL']}>"
    vault.remove_stale_locks(ref)
    tip = vault.read_ref(ref)
    commit = find_commit(vault, ref, onto, trailers) if tip else None
    if commit is None or vault.tree_of(commit) != tree or commit != tip:
        lines = "\n".join(f"{name}: {value}" for name, value in trailers.items())
        commit = vault.objects.write_commit(tree, [onto], f"{subject_line(work.kind, work.subject)}\n\n{lines}")
        vault.move_ref(ref, commit, tip)
    workspace.advance_head(commit)
    return commit


def _bounded_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return as many of the paths, from the first, as fit into a result, each as escape_path writes it, of at most
    300 characters."""
    shown, remaining_chars = [], MAX_CONFLICT_CHARS
    for path in paths[:MAX_CONFLICT_PATHS]:
        text = escape_path(path)[:300]
        remaining_chars -= len(text)
        if remaining_chars < 0:
            break
        shown.append(text)
    return tuple(shown)


def _summary_line(landing: LandingPlace, fetched: _FetchedBranch, is_empty: bool) -> str:
    """Return one line about the change and the branch's head: how many files conflict, that all of it is there already,
    or that it stands on that head."""
    head_text = f"{landing.branch} at {fetched.onto[:7]}"
    if fetched.merged.conflicts:
        count = len(fetched.merged.conflicts)
        return f"{format_count(count, 'conflict')} with {head_text}"
    return f"all of it is on {head_text} already" if is_empty else f"stands on {head_text}"


class LandActivity(OnHost):
    """The activity that lands a delivery's commit."""

    @activity.defn(name=Step.LAND)
    async def land(self, work: LandInput) -> LandResult:
        """Move the integration branch to the delivery's commit, and return where the branch is; the result has no
        commit when somebody else moved the branch first.

        Raises ForgeRefused when the remote refuses, ForgeUnavailable when it does not answer (the workflow waits and
        tries again), Diverged when the commit is not what was tested, Superseded when a newer attempt has taken over
        the workspace.
        """
        async with self._host.lease_workspace(work.delivery) as (workspace, lease):
            contract = await in_thread(self._host.load_contract, workspace.vault, work.delivery, work.contract)
            place = _sealed_place(contract, work)
            update_heartbeat(doing=f"moving {place.branch}")
            facts = self._host.facts(work.delivery)
            await in_thread(require_commit, facts, workspace.vault, contract, work.commit)
            if not contract.is_task:  # the verdict is about all tasks together
                await in_thread(require_verdict, facts, contract, work.tests)
            result = await in_thread(_land_commit, workspace.vault.with_keys(self._host.forges), work, place)
            crash_point(CrashPoint.AFTER_LANDING)
            lease.check()
            return result


def _sealed_place(contract: Contract, work: LandInput) -> LandingPlace:
    """Return where the delivery lands, by its contract. Raises Diverged when it lands nowhere, or was told another
    branch."""
    if contract.landing is None or contract.landing.branch != work.place.branch:
        raise Diverged(f"this delivery does not land on {work.place.branch}")
    return contract.landing


def _land_commit(vault: Vault, work: LandInput, place: LandingPlace) -> LandResult:
    """Push the commit to the integration branch with a lease on `work.onto`, or move the branch in the vault for a
    plan's task. When the branch is elsewhere, look by trailers whether the delivery's commit is on it already; the
    result has no commit when it is not.

    Raises Diverged when the tests ran on another tree than the commit holds, ForgeRefused, ForgeUnavailable.
    """
    tree = vault.tree_of(work.commit)
    if work.tests is not None and work.tests.tree != tree:
        raise Diverged(f"tests ran on tree {work.tests.tree[:12]}, which is not what {work.commit[:12]} holds")
    branch, in_vault = place.branch, place.within is not None
    head = (land_in_vault if in_vault else land_on_remote)(vault, branch, work.onto, work.commit)
    commit = work.commit
    if head != commit:  # somebody was faster, or has built on what a killed attempt of ours had pushed
        head = vault_branch_head(vault, branch) if in_vault else vault.fetch_branch(branch) or head
        commit = find_landed(vault, work.onto, head, landing_trailers(work.delivery, place))
    if commit:
        return LandResult(commit=commit, head=head, summary=f"landed on {branch} as {commit[:7]}")
    return LandResult(head=head, summary=f"somebody else moved {branch} to {head[:7]}")
