"""The check of a turn that a delivery is to be rewound to or forked at, before anything is changed. It takes no lease.

Effect: where the caller wants it kept, the contract with another model or agent as an artifact; the same contract twice
is one artifact.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.agents.resolve_agents import resolve_agents
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.models.contract import Contract
from perdure.models.errors import InvalidRequest
from perdure.models.forking import RewindTargetInput, RewindTargetResult
from perdure.models.phases import Step
from perdure.models.steps import AGENTIC


class RewindTargetActivity(OnHost):
    """The activity that checks a turn which is to be taken again, with another model or agent where one is named."""

    @activity.defn
    async def aim(self, work: RewindTargetInput) -> RewindTargetResult:
        """Check the turn that is to be taken again, and return the contract from there on with the model of each step.

        Raises InvalidRequest for a damaged checkpoint and for an agent that cannot take the turn, WorkspaceLost when
        this host has no workspace of the delivery.
        """
        return await in_thread(self._check_target, work)

    def _check_target(self, work: RewindTargetInput) -> RewindTargetResult:
        """Check that the turn's checkpoint is whole and that the requested model and agent can go on from it; return
        the contract's hash and the model of each agentic step.

        Stores the changed contract in the vault where `work.keep` is set; otherwise the hash is that of the old one.
        """
        vault = Workspace.open(self._host.home, work.delivery).vault
        check_checkpoint(vault, work.checkpoint)
        contract = self._host.load_contract(vault, work.delivery, work.contract)
        new_contract = with_agents(contract, work.model, work.agent, work.step, work.turn)
        models = {str(step): getattr(new_contract.config.steps, step).model for step in AGENTIC}
        if not work.keep or new_contract == contract:
            return RewindTargetResult(contract=work.contract, models=models)
        return RewindTargetResult(contract=self._host.store_contract(vault, new_contract), models=models)


def check_checkpoint(vault: Vault, checkpoint: str) -> None:
    """Raise InvalidRequest where the checkpoint, or something it consists of, is missing from the vault."""
    if reason := vault.find_damage(checkpoint):
        message = f"the checkpoint it begins with is damaged: {reason.partition(chr(10))[0][:200]}"
        raise InvalidRequest(message, where=checkpoint[:12], fix="go back to an earlier turn: perdure turns")


def with_agents(contract: Contract, model: str, agent: str, step: Step, turn: int) -> Contract:
    """Return the contract with this model and this agent for all agentic steps; where both are empty, the contract as
    it is.

    Raises InvalidRequest where the turn is in the middle of another agent's conversation (only the first turn of a step
    can change the agent), and for an agent that is unknown, unable to do its step, or not installed on this host.
    """
    steps, origins = contract.config.steps, dict(contract.origins)
    if agent and turn > 1 and getattr(steps, step).agent != agent:
        message = f"agent: {step} turn {turn} is in the middle of a conversation of {getattr(steps, step).agent}"
        raise InvalidRequest(message, fix=f"{agent} can begin at {step}:1; another --model can go on anywhere")
    overrides = {name: value for name, value in (("model", model), ("agent", agent)) if value}
    for agentic_step in AGENTIC:
        steps = steps.model_copy(update={agentic_step: getattr(steps, agentic_step).model_copy(update=overrides)})
        origins |= {f"steps.{agentic_step}.{name}": "request" for name in overrides}
    agents = resolve_agents(contract.config.model_copy(update={"steps": steps}), origins)
    return contract.model_copy(update={"config": agents.config, "origins": agents.origins}) if overrides else contract
