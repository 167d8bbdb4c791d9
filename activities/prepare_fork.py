"""The preparation of a fork: a delivery that begins before a turn of another one, with that turn's files and
conversation.

Effect: a workspace for the fork in the other's vault, a contract and a branch of its own, and what the other has
written down copied for it. Looks first: a contract that is the fork's own already is kept. Key: the fork. Nothing of
the other delivery changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from temporalio import activity

from activities.rewind_target import check_checkpoint, with_agents
from perdure.adapters.git.retention import record_branches
from perdure.adapters.git.vault import RefMoved, Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.terms import BranchBase, find_target, is_from_this_home
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.session import BASE_FACT_FILES
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.errors import InvalidRequest, WorkspaceLost
from perdure.models.forking import ForkedFrom
from perdure.models.ids import branch_name, delivery_key, run_ref
from perdure.models.phases import Step
from perdure.models.steps import AGENTIC
from perdure.models.work import PreparedWorkspace, PrepareInput


async def prepare_fork(
    host: Host,
    work: PrepareInput,
    forked: ForkedFrom,
    previous: PreparedWorkspace,
    make_worktree: Callable[[Vault, Contract], Awaitable[Path]],
) -> PreparedWorkspace:
    """Prepare a fork from what the other delivery's preparation returned (`previous`), and return what the fork goes on
    with. A fork that was prepared before gets `previous` back: it is its own already.

    make_worktree  makes the workspace for a contract in a vault

    Raises as `_fork_contract`.
    """
    vault, contract, is_prepared = await in_thread(_fork_contract, host, work, forked, previous)
    if is_prepared:
        return previous
    await make_worktree(vault, contract)
    crash_point(CrashPoint.DURING_PREPARE)
    return await in_thread(_store_fork, host, vault, contract, forked, previous)


def _fork_contract(
    host: Host, work: PrepareInput, forked: ForkedFrom, previous: PreparedWorkspace
) -> tuple[Vault, Contract, bool]:
    """Return the vault, the fork's contract, and whether it is stored already. If it is not, it is made from the other
    delivery's contract: another branch, and the model and agent that the fork's request names.

    Raises WorkspaceLost where this host does not have the other delivery, InvalidRequest for a checkpoint that is
    damaged, a repository that is another one or not the sender's to name, a branch that cannot be.
    """
    origin_key = delivery_key(forked.delivery)
    vault = Workspace.open(host.home, origin_key).vault.with_keys(host.forges)
    with suppress(WorkspaceLost):
        return vault, host.load_contract(vault, work.delivery, previous.contract), True
    contract = host.load_contract(vault, origin_key, previous.contract)
    if forked.attempt and not contract.is_task:  # its own delivery has begun it: workflows.endings.check_parent
        return vault, _derive_contract(contract, work, forked, contract.source), False
    is_ours = is_from_this_home(host.home, work.delivery, work.request, activity.info().workflow_id or "")
    target = find_target(work.request, is_ours, host.config.local_repositories, host.forges)
    if target.url != contract.repository or contract.existing or contract.landing is not None:
        raise InvalidRequest(f"forked: {forked.delivery} cannot have this sibling", where=work.request.repository)
    check_checkpoint(vault, forked.checkpoint)
    branch = branch_name(work.delivery)
    if reason := BranchBase(vault, target.heads, contract.base, contract.base_sha, work.delivery).unpushable_reason(
        branch
    ):
        raise InvalidRequest(f"forked: {reason}", where=work.request.repository, fix="fork with another --id")
    return vault, _derive_contract(contract, work, forked, contract.source if is_ours else ""), False


def _derive_contract(contract: Contract, work: PrepareInput, forked: ForkedFrom, source: str) -> Contract:
    """Return the other delivery's contract under the fork's name and branch, with the model and the agent that the
    fork's request names. `source`: the checkout that setup may copy files from; empty: none. Raises InvalidRequest
    where the agent cannot take the turn."""
    step, _, turn = forked.at.partition(":")
    model_and_agent = work.request.model or "", work.request.agent or ""
    derived = with_agents(contract, *model_and_agent, Step(step.partition(".")[0]), int(turn or 1))
    ancestors = (*contract.forked_from, contract.delivery)
    identity = {"delivery": work.delivery, "branch": branch_name(work.delivery), "branches": {}}
    return derived.model_copy(update=identity | {"source": source, "forked_from": ancestors})


def _store_fork(
    host: Host, vault: Vault, contract: Contract, forked: ForkedFrom, previous: PreparedWorkspace
) -> PreparedWorkspace:
    """Store for the fork all that it goes on from, and return that: share the other's artifacts, point the fork's ref
    at the checkpoint, record its branch, copy what is known about the base, and store the contract.

    The other delivery may be removed afterwards. Safe to repeat.
    """
    origin_key = contract.forked_from[-1]
    vault.share_artifacts(origin_key, contract.delivery)
    with suppress(RefMoved):
        vault.move_ref(run_ref(contract.delivery, activity.info().workflow_run_id or ""), forked.checkpoint, None)
    record_branches(host.home, contract.delivery, (contract.branch,))
    for name in BASE_FACT_FILES:
        origin_file, own_file = (Path(host.home.workspace(key)) / name for key in (origin_key, contract.delivery))
        if origin_file.exists() and not own_file.exists():
            shutil.copyfile(origin_file, own_file)
    models = {str(step): getattr(contract.config.steps, step).model for step in AGENTIC}
    contract_hash = host.store_contract(vault, contract)
    changes = {"contract": contract_hash, "branch": contract.branch, "branches": {}, "models": models}
    return previous.model_copy(update=changes)


def fork_summary(forked: ForkedFrom) -> str:
    """Return one line on what a fork goes on from: `forked from night at implement:4 · 6 turns of it, not paid again`,
    or `attempt 2 at the plan of night`."""
    if forked.attempt:
        return f"attempt {forked.attempt} at the plan of {forked.delivery[:100]}"
    turns = f"{forked.turns} turn{'s' if forked.turns != 1 else ''}"
    return f"forked from {forked.delivery[:100]} at {forked.at} · {turns} of it, not paid again"
