"""Going on from an earlier turn of a delivery: the check of the turn that a delivery is to be rewound to or forked at
(activity `aim`), and the preparation of a fork with that turn's files and conversation, which activity `prepare` calls.

Effect of the check: when the caller wants it kept, the contract with another model or agent as an artifact; the same
contract twice is one artifact. It takes no lease.

Effect of a preparation: a workspace for the fork in the other's vault, a contract and a branch of its own, and the
other's artifacts and facts about the base shared or copied. Looks first: a contract that is the fork's own already is
kept. Key: the fork. Nothing of the other delivery changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.agents.resolve_agents import resolve_agents, unpriced_models
from perdure.adapters.git.retention import record_branches
from perdure.adapters.git.vault import RefMoved, Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.terms import BranchBase, find_target, is_from_this_home
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.session import BASE_FACT_FILES
from perdure.models.crash import CrashPoint
from perdure.models.delivery.request import ForkedFrom, RewindTargetInput, RewindTargetResult
from perdure.models.delivery.steps import AGENTIC
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import PreparedWorkspace, PrepareInput
from perdure.models.errors import InvalidRequest, WorkspaceLost
from perdure.models.ids import branch_name, delivery_key, run_ref
from perdure.models.phases import Step
from perdure.text import format_count, shorten


class RewindTargetActivity(OnHost):
    """The activity that checks a turn which is to be taken again, with another model or agent where one is named."""

    @activity.defn
    async def aim(self, work: RewindTargetInput) -> RewindTargetResult:
        """Check the turn that a delivery is to go on from, and return the contract from there on, with the requested
        model or agent, and the model of each step. The changed contract is stored when `work.keep` is set.

        Raises InvalidRequest when the checkpoint is damaged, or the agent cannot take the turn; WorkspaceLost when this
        host has no workspace of the delivery.
        """
        return await in_thread(self._check_target, work)

    def _check_target(self, work: RewindTargetInput) -> RewindTargetResult:
        """Check that the turn's checkpoint is whole and that the requested model and agent can go on from it; return
        the contract's hash and the model of each agentic step.

        Stores the contract in the vault when `work.keep` is set and model or agent change it; otherwise the hash is
        that of the old one. Raises InvalidRequest when either check fails, WorkspaceLost when this host does not have
        the delivery.
        """
        vault = Workspace.open(self._host.home, work.delivery).vault
        check_checkpoint(vault, work.checkpoint)
        contract = self._host.load_contract(vault, work.delivery, work.contract)
        new_contract = with_agents(contract, work.model, work.agent, work.step, work.turn)
        models = {str(step): getattr(new_contract.config.steps, step).model for step in AGENTIC}
        if not work.keep or new_contract == contract:
            return RewindTargetResult(contract=work.contract, models=models, unpriced=unpriced_models(new_contract))
        contract_hash = self._host.store_contract(vault, new_contract)
        return RewindTargetResult(contract=contract_hash, models=models, unpriced=unpriced_models(new_contract))


def check_checkpoint(vault: Vault, checkpoint: str) -> None:
    """Raise InvalidRequest when the checkpoint, or an object it consists of, is missing from the vault; else do
    nothing."""
    if reason := vault.find_damage(checkpoint):
        message = f"the checkpoint it begins with is damaged: {shorten(reason.partition(chr(10))[0], 200)}"
        raise InvalidRequest(message, where=checkpoint[:12], fix="go back to an earlier turn: perdure turns")


def with_agents(contract: Contract, model: str, agent: str, step: Step, turn: int) -> Contract:
    """Return the contract with this model and this agent for all agentic steps, and their settings resolved; when both
    are empty, the contract as it is, after the check of its agents.

    Raises InvalidRequest when the turn is in the middle of another agent's conversation (only the first turn of a step
    can change the agent), or an agent is unknown, unable to do its step, or not installed on this host.
    """
    steps, origins = contract.config.steps, dict(contract.origins)
    if agent and turn > 1 and getattr(steps, step).agent != agent:
        message = f"agent: {step} turn {turn} is in the middle of a conversation of {getattr(steps, step).agent}"
        raise InvalidRequest(message, fix=f"{agent} can begin at {step}:1; another model can go on anywhere")
    overrides = {name: value for name, value in (("model", model), ("agent", agent)) if value}
    for agentic_step in AGENTIC:
        steps = steps.model_copy(update={agentic_step: getattr(steps, agentic_step).model_copy(update=overrides)})
        origins |= {f"steps.{agentic_step}.{name}": "request" for name in overrides}
    agents = resolve_agents(contract.config.model_copy(update={"steps": steps}), origins)
    return contract.model_copy(update={"config": agents.config, "origins": agents.origins}) if overrides else contract


async def prepare_fork(
    host: Host,
    work: PrepareInput,
    forked: ForkedFrom,
    previous: PreparedWorkspace,
    make_worktree: Callable[[Vault, Contract], Awaitable[Path]],
) -> PreparedWorkspace:
    """Make a fork's workspace and contract from what the other delivery's preparation returned (`previous`), and return
    what the fork goes on with. A fork that was prepared before has nothing made, and gets `previous` back: it is its
    own already.

    make_worktree  makes the workspace for a contract in a vault

    Raises WorkspaceLost when this host does not have the other delivery, InvalidRequest when it cannot be forked so.
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
    """Return the vault, the fork's contract, and whether that is stored already. If it is not, it is made, not stored,
    from the other delivery's contract: with another branch, and the model and agent that the fork's request names. For
    an attempt at that delivery's plan nothing else is checked.

    Raises WorkspaceLost when this host does not have the other delivery; InvalidRequest when the agent cannot take the
    turn, and for any fork but an attempt when the checkpoint is damaged, the repository is another one or not the
    sender's to name, the other delivery works on an existing branch or belongs to a backlog, or the branch cannot be
    made.
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
        raise InvalidRequest(f"forked: {reason}", where=work.request.repository, fix="fork under another id")
    return vault, _derive_contract(contract, work, forked, contract.source if is_ours else ""), False


def _derive_contract(contract: Contract, work: PrepareInput, forked: ForkedFrom, source: str) -> Contract:
    """Return the other delivery's contract under the fork's name and branch, with the model and the agent that the
    fork's request names. `source`: the checkout that setup may copy files from; empty: none. Raises InvalidRequest when
    the agent cannot take the turn."""
    step, _, turn = forked.at.partition(":")
    model_and_agent = work.request.model or "", work.request.agent or ""
    derived = with_agents(contract, *model_and_agent, Step(step.partition(".")[0]), int(turn or 1))
    ancestors = (*contract.forked_from, contract.delivery)
    identity = {"delivery": work.delivery, "branch": branch_name(work.delivery), "branches": {}}
    return derived.model_copy(update=identity | {"source": source, "forked_from": ancestors})


def _store_fork(
    host: Host, vault: Vault, contract: Contract, forked: ForkedFrom, previous: PreparedWorkspace
) -> PreparedWorkspace:
    """Store for the fork all that it goes on from, and return the prepared workspace with the fork's contract, branch
    and models: share the other's artifacts, point the fork's ref at the checkpoint, record its branch, copy what is
    known about the base, and store the contract.

    The other delivery may be removed afterwards. Safe to repeat.
    """
    origin_key = contract.forked_from[-1]
    vault.share_artifacts(origin_key, contract.delivery)
    host.facts(contract.delivery).copy_facts(host.facts(origin_key))
    with suppress(RefMoved):
        vault.move_ref(run_ref(contract.delivery, activity.info().workflow_run_id or ""), forked.checkpoint, None)
    record_branches(host.home, contract.delivery, (contract.branch,))
    for name in BASE_FACT_FILES:
        origin_file, own_file = (Path(host.home.workspace(key)) / name for key in (origin_key, contract.delivery))
        if origin_file.exists() and not own_file.exists():
            shutil.copyfile(origin_file, own_file)
    models = {str(step): getattr(contract.config.steps, step).model for step in AGENTIC}
    contract_hash = host.store_contract(vault, contract)
    return previous.with_changes(
        {"agents": {"models": models}}, contract=contract_hash, branch=contract.branch, branches={}
    )


def fork_summary(forked: ForkedFrom) -> str:
    """Return one line on what a fork goes on from: `forked from night at implement:4 · 6 turns of it, not paid again`,
    or `attempt 2 at the plan of night`."""
    if forked.attempt:
        return f"attempt {forked.attempt} at the plan of {shorten(forked.delivery, 100)}"
    turns = format_count(forked.turns, "turn")
    return f"forked from {shorten(forked.delivery, 100)} at {forked.at} · {turns} of it, not paid again"
