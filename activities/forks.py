"""The terms and the workspace of a delivery that begins before a turn of another one.

Effect: a workspace for the sibling in the other's vault, its own terms and branch, what the other has written down kept
for it too. Looks first: terms that are the sibling's own already are kept. Key: the sibling. Nothing of the other
delivery changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from temporalio import activity

from activities.aiming import check_checkpoint, with_agents
from perdure.adapters.git.retention import note_branches
from perdure.adapters.git.vault import RefMoved, Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.terms import BranchBase, comes_from_here, find_target
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.session import NOTED
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.errors import InvalidRequest, WorkspaceLost
from perdure.models.forking import ForkedFrom
from perdure.models.ids import branch_name, delivery_key, run_ref
from perdure.models.phases import Step
from perdure.models.steps import AGENTIC
from perdure.models.work import Prepared, PrepareInput


async def as_sibling(
    host: Host,
    work: PrepareInput,
    forked: ForkedFrom,
    previous: Prepared,
    worktree: Callable[[Vault, Contract], Awaitable[Path]],
) -> Prepared:
    """All that a sibling goes on with, its own from here on; prepared before, it is that already."""
    vault, contract, own = await in_thread(_terms, host, work, forked, previous)
    if own:
        return previous
    await worktree(vault, contract)
    crash_point(CrashPoint.DURING_PREPARE)
    return await in_thread(_keep, host, vault, contract, forked, previous)


def _terms(host: Host, work: PrepareInput, forked: ForkedFrom, previous: Prepared) -> tuple[Vault, Contract, bool]:
    """The sibling's terms, and whether they are its own already; else they are the other's with another branch.

    Raises WorkspaceLost where this host does not have the other delivery, InvalidRequest for a checkpoint that is
    damaged, a repository that is another one or not the sender's to name, a branch that cannot be.
    """
    origin = delivery_key(forked.delivery)
    vault = Workspace.open(host.home, origin).vault.with_keys(host.forges)
    with suppress(WorkspaceLost):
        return vault, host.contract(vault, work.delivery, previous.contract), True
    contract = host.contract(vault, origin, previous.contract)
    if forked.attempt and not contract.task:  # its delivery has begun it: workflows.endings.heed_parent
        return vault, _own(contract, work, forked, contract.source), False
    ours = comes_from_here(host.home, work.delivery, work.request, activity.info().workflow_id or "")
    target = find_target(work.request, ours, host.config.local_repositories, host.forges)
    if target.url != contract.repository or contract.existing or contract.landing is not None:
        raise InvalidRequest(f"forked: {forked.delivery} cannot have this sibling", where=work.request.repository)
    check_checkpoint(vault, forked.checkpoint)
    branch = branch_name(work.delivery)
    if why := BranchBase(vault, target.heads, contract.base, contract.base_sha, work.delivery).taken(branch):
        raise InvalidRequest(f"forked: {why}", where=work.request.repository, fix="fork with another --id")
    return vault, _own(contract, work, forked, contract.source if ours else ""), False


def _own(contract: Contract, work: PrepareInput, forked: ForkedFrom, source: str) -> Contract:
    """The terms under the sibling's name, with the model and the agent that were asked for."""
    step, _, turn = forked.at.partition(":")
    asked = work.request.model or "", work.request.agent or ""
    terms = with_agents(contract, *asked, Step(step.partition(".")[0]), int(turn or 1))
    older = (*contract.forked, contract.delivery)
    mine = {"delivery": work.delivery, "branch": branch_name(work.delivery), "branches": {}}
    return terms.model_copy(update=mine | {"source": source, "forked": older})


def _keep(host: Host, vault: Vault, contract: Contract, forked: ForkedFrom, previous: Prepared) -> Prepared:
    """Keep for the sibling all it goes on from; the other may be removed afterwards. Safe to repeat."""
    origin = contract.forked[-1]
    vault.share_artifacts(origin, contract.delivery)
    with suppress(RefMoved):
        vault.move_ref(run_ref(contract.delivery, activity.info().workflow_run_id or ""), forked.checkpoint, None)
    note_branches(host.home, contract.delivery, (contract.branch,))
    for name in NOTED:
        there, here = (Path(host.home.workspace(key)) / name for key in (origin, contract.delivery))
        if there.exists() and not here.exists():
            shutil.copyfile(there, here)
    models = {str(step): getattr(contract.config.steps, step).model for step in AGENTIC}
    terms = host.keep_contract(vault, contract)
    own = {"contract": terms, "branch": contract.branch, "branches": {}, "models": models}
    return previous.model_copy(update=own)


def forked_words(forked: ForkedFrom) -> str:
    """`forked from night at implement:4 · 6 turns of it`."""
    if forked.attempt:
        return f"attempt {forked.attempt} at the plan of {forked.delivery[:100]}"
    turns = f"{forked.turns} turn{'s' if forked.turns != 1 else ''}"
    return f"forked from {forked.delivery[:100]} at {forked.at} · {turns} of it, not paid again"
