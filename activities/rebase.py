"""Rebase: the delivery's change as one commit on the integration branch's head, or as files with conflicts to mend.

Effect: the workspace made anew on that head with setup and baseline, the commit, the delivery's own branch, and a
checkpoint on the run's ref, which comes last. Looks first: a checkpoint that is there is taken over, and a change that
is on the integration branch already has landed. Key: delivery, run, number, checkpoint. It moves nobody else's branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.on_host import OnHost
from activities.prepare import complete
from activities.run_tests import Base, test_base
from activities.terms import CONFIG_FILE
from perdure.adapters.forges.body import subject
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.branch import find_commit
from perdure.adapters.git.door import IDENTITY
from perdure.adapters.git.exact import exact_tree
from perdure.adapters.git.landing import Merged, bring_onto, fetch_landing, find_landed, head_here
from perdure.adapters.git.since import since
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.config import Effective
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.lease import Lease
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.backlog import LandingPlace
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.errors import Diverged
from perdure.models.ids import branch_name, run_ref
from perdure.models.landing import Rebased, RebaseInput
from perdure.models.phases import Step
from perdure.models.result import TestsStatus

CONFLICTS_MOST, CONFLICTS_CHARS = 50, 6000
"""Paths in a result: history keeps it."""


class Rebasing(OnHost):
    @activity.defn(name=Step.REBASE)
    async def rebase(self, work: RebaseInput) -> Rebased:
        """Raises ForgeRefused (the branch is gone, or was put back), ForgeUnavailable, SetupFailed, Superseded,
        Diverged, WorkspaceLost."""
        ref = run_ref(work.delivery, activity.info().workflow_run_id or "")
        async with self._host.lease(work.delivery) as (workspace, lease):
            vault = workspace.vault
            await in_thread(vault.remove_stale_locks, ref)
            if (made := await in_thread(_made, vault, ref, work)) is not None:
                return made
            contract = await in_thread(self._host.contract, vault, work.delivery, work.contract)
            now_doing(doing=f"fetching {work.place.branch}")
            found = await in_thread(_look, vault.with_keys(self._host.forges), contract, work)
            lease.check()
            if found.landed:
                return _there(work, found)
            if found.onto == contract.base_sha or (contract.task and not found.merged.conflicts):
                return await in_thread(_stays, workspace, lease, contract, work, found)
            workspace = await in_thread(self._moved, workspace, lease, found.onto)
            terms = await in_thread(_terms, contract, work.place, found.onto, workspace.path)
            sealed = await in_thread(self._host.keep_contract, vault, terms)
            crash_point(CrashPoint.DURING_REBASE)
            session = await self._host.opened(workspace, lease, terms)
            now_doing(doing=f"testing {work.place.branch}")
            base = await test_base(session, CONFIG_FILE) if terms.config.test and not terms.task else Base()
            rebased = await in_thread(_placed, session, work, found, sealed, base)
            return await in_thread(_sealed, session, ref, work, found.merged, rebased)

    def _moved(self, workspace: Workspace, lease: Lease, onto: str) -> Workspace:
        """A workspace for the new base, in the place of the old one: nobody else can be writing there. One that an
        attempt which died has made is used again."""
        record = workspace.record()
        if record.base_sha == onto and not workspace.validate():
            checkpoints.restore_base(workspace)
            return workspace
        generation = record.generation
        made = Workspace.create(self._host.home, workspace.vault, workspace.delivery, onto, generation=generation)
        lease.check()
        return made


@dataclass(frozen=True)
class _Found:
    """The integration branch as it was fetched. `landed`: the delivery's commit there, empty where there is none;
    `merged` is then of no use."""

    onto: str
    landed: str
    merged: Merged


def _look(vault: Vault, contract: Contract, work: RebaseInput) -> _Found:
    branch = work.place.branch
    onto = head_here(vault, branch) if contract.task else fetch_landing(vault, branch, work.landed)
    began = contract.began or contract.base_sha
    landed = find_landed(vault, began, onto, landing_trailers(work.delivery, work.place))
    merged = Merged("") if landed else bring_onto(vault, contract.base_sha, onto, work.head)
    return _Found(onto, landed, merged)


def landing_trailers(delivery: str, place: LandingPlace) -> dict[str, str]:
    """By which a delivery's commit on the integration branch is known again."""
    return {"Perdure-Delivery": delivery, "Perdure-Backlog": place.backlog, "Perdure-Item": place.item}


def _there(work: RebaseInput, found: _Found) -> Rebased:
    """A worker died between the push and its report, or the delivery was rewound: it has landed all the same."""
    return Rebased(
        onto=found.onto,
        contract=work.contract,
        checkpoint=work.checkpoint,
        moved=False,
        landed=found.landed,
        summary=f"is on {work.place.branch} already, as {found.landed[:7]}",
    )


def _stays(workspace: Workspace, lease: Lease, contract: Contract, work: RebaseInput, found: _Found) -> Rebased:
    """The branch is where the delivery began: the same files as one commit, and nothing to test again. Or it is a task
    without conflicts: it lands and ends, and no workspace is made for that."""
    lease.check()
    nothing = contract.task and found.merged.tree == workspace.vault.tree_of(found.onto)
    commit = "" if nothing else _committed(workspace, contract, work, found.onto, found.merged.tree)
    told = since(workspace.vault, contract.began, found.onto, work.place.branch, found.merged) if contract.began else ""
    return Rebased(
        onto=found.onto,
        contract=work.contract,
        checkpoint=work.checkpoint,
        commit=commit,
        tree=found.merged.tree,
        moved=False,
        since=workspace.vault.put_artifact(work.delivery, told.encode()) if told else "",
        summary=f"stands on {work.place.branch} at {found.onto[:7]}",
    )


def _terms(contract: Contract, place: LandingPlace, onto: str, tree: Path) -> Contract:
    """The delivery's terms on its new base. What its owner wrote down stays; what was detected is looked for again:
    others may have brought the first test."""
    config = contract.config
    if contract.origins.get("test") == "detected":
        config = config.model_copy(update={"test": None})
    if contract.origins.get("setup.commands") == "detected":
        config = config.model_copy(update={"setup": config.setup.model_copy(update={"commands": None})})
    on = {"base": place.branch, "base_sha": onto, "head": onto, "existing": False, "landing": place}
    terms = contract.model_copy(update={**on, "began": contract.began or contract.base_sha})
    return complete(terms, Effective(config, contract.origins), tree)


def _placed(session: WorkspaceSession, work: RebaseInput, found: _Found, sealed: str, base: Base) -> Rebased:
    """The commit where there are no conflicts, and all that is to be said; but for the checkpoint, which says it."""
    vault, merged, terms = session.vault, found.merged, session.contract
    nothing = merged.tree == vault.tree_of(found.onto)
    commit = ""
    if not merged.conflicts and not nothing:
        session.lease.check()
        commit = _committed(session.workspace, terms, work, found.onto, merged.tree)
    told = since(vault, terms.began, found.onto, work.place.branch, merged)
    verdict = base.verdict
    return Rebased(
        onto=found.onto,
        contract=sealed,
        checkpoint="",
        commit=commit,
        tree="" if merged.conflicts else merged.tree,
        conflicts=_few(merged.conflicts),
        since=vault.put_artifact(work.delivery, told.encode()),
        baseline=base.artifact,
        base_red=verdict is not None and verdict.status is TestsStatus.RED,
        summary=_summary(work.place, found, nothing),
    )


def _sealed(session: WorkspaceSession, ref: str, work: RebaseInput, merged: Merged, made: Rebased) -> Rebased:
    """The files' checkpoint with the result in it, then the ref: after this the rebase has happened."""
    vault = session.vault
    told = {"format": 1, "delivery": work.delivery, "step": Step.REBASE, "attempt": work.number}
    told |= {"summary": made.summary, "result": made.model_dump(mode="json", exclude={"checkpoint"})}
    checkpoint = checkpoints.begin(session.workspace, told, exact_tree(vault, merged.tree), work.checkpoint)
    session.restore(checkpoint)
    session.lease.check()
    vault.move_ref(ref, checkpoint, vault.read_ref(ref))
    crash_point(CrashPoint.AFTER_REBASE)
    return made.model_copy(update={"checkpoint": checkpoint})


def _made(vault: Vault, ref: str, work: RebaseInput) -> Rebased | None:
    made = made_before(vault, ref, Step.REBASE, work.number, work.checkpoint)
    return Rebased.model_validate(made) if made is not None else None


def made_before(vault: Vault, ref: str, step: str, number: int, checkpoint: str) -> dict[str, Any] | None:
    """The result of an attempt that died before it could report it; None where the run stands at the checkpoint still.
    Diverged where it went on with something else."""
    tip = vault.read_ref(ref)
    if tip in (None, checkpoint):
        return None
    child = vault.first_parent_child(checkpoint, tip)
    turn = checkpoints.read_turn(vault, child) if child is not None else {}
    if child is None or (turn.get("step"), turn.get("attempt")) != (step, number):
        raise Diverged(f"{ref} is at {tip[:12]}, which is no {step} {number} of {checkpoint[:12]}")
    return {**turn["result"], "checkpoint": child}


def _committed(workspace: Workspace, contract: Contract, work: RebaseInput, onto: str, tree: str) -> str:
    """The one commit, on the delivery's own branch and in the worktree's HEAD; the one that is there is taken over."""
    vault, ref = workspace.vault, f"refs/heads/{branch_name(work.delivery)}"
    trailers = landing_trailers(work.delivery, work.place)
    if contract.config.git.sign_off:
        trailers["Signed-off-by"] = f"{IDENTITY['GIT_COMMITTER_NAME']} <{IDENTITY['GIT_COMMITTER_EMAIL']}>"
    vault.remove_stale_locks(ref)
    tip = vault.read_ref(ref)
    made = find_commit(vault, ref, onto, trailers) if tip else None
    if made is None or vault.tree_of(made) != tree or made != tip:
        lines = "\n".join(f"{name}: {value}" for name, value in trailers.items())
        made = vault.objects.commit(tree, [onto], f"{subject(work.kind, work.subject)}\n\n{lines}")
        vault.move_ref(ref, made, tip)
    workspace.advance(made)
    return made


def _few(paths: tuple[str, ...]) -> tuple[str, ...]:
    """As many as fit, a sound text each."""
    shown, room = [], CONFLICTS_CHARS
    for path in paths[:CONFLICTS_MOST]:
        said = path.encode(errors="surrogateescape").decode(errors="replace")[:300]
        room -= len(said)
        if room < 0:
            break
        shown.append(said)
    return tuple(shown)


def _summary(place: LandingPlace, found: _Found, nothing: bool) -> str:
    on = f"{place.branch} at {found.onto[:7]}"
    if found.merged.conflicts:
        count = len(found.merged.conflicts)
        return f"{count} conflict{'s' if count != 1 else ''} with {on}"
    return f"all of it is on {on} already" if nothing else f"stands on {on}"
