"""A turn that is to be taken anew, looked at before anything is rewound or forked. None of it takes a lease.

Effect: where that is asked for, terms with another model or agent as an artifact; the same terms twice are one.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.agents.chosen import chosen
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.models.contract import Contract
from perdure.models.errors import InvalidRequest
from perdure.models.forking import Aimed, AimInput
from perdure.models.phases import Step
from perdure.models.steps import AGENTIC


class Aiming(OnHost):
    @activity.defn
    async def aim(self, work: AimInput) -> Aimed:
        """Raises InvalidRequest for a damaged checkpoint and for an agent that cannot take the turn, WorkspaceLost when
        this host knows nothing of the delivery."""
        return await in_thread(self._aimed, work)

    def _aimed(self, work: AimInput) -> Aimed:
        vault = Workspace.open(self._host.home, work.delivery).vault
        check_checkpoint(vault, work.checkpoint)
        contract = self._host.contract(vault, work.delivery, work.contract)
        changed = with_agents(contract, work.model, work.agent, work.step, work.turn)
        models = {str(step): getattr(changed.config.steps, step).model for step in AGENTIC}
        if not work.keep or changed == contract:
            return Aimed(contract=work.contract, models=models)
        return Aimed(contract=self._host.keep_contract(vault, changed), models=models)


def check_checkpoint(vault: Vault, checkpoint: str) -> None:
    """InvalidRequest where something of it is missing."""
    if why := vault.broken(checkpoint):
        words = f"the checkpoint it begins with is damaged: {why.partition(chr(10))[0][:200]}"
        raise InvalidRequest(words, where=checkpoint[:12], fix="go back to an earlier turn: perdure turns")


def with_agents(contract: Contract, model: str, agent: str, step: Step, turn: int) -> Contract:
    """The terms with another model or agent for all steps. InvalidRequest where that agent cannot take this turn."""
    steps, origins = contract.config.steps, dict(contract.origins)
    if agent and turn > 1 and getattr(steps, step).agent != agent:
        what = f"agent: {step} turn {turn} is in the middle of a conversation of {getattr(steps, step).agent}"
        raise InvalidRequest(what, fix=f"{agent} can begin at {step}:1; another --model can go on anywhere")
    asked = {name: value for name, value in (("model", model), ("agent", agent)) if value}
    for one in AGENTIC:
        steps = steps.model_copy(update={one: getattr(steps, one).model_copy(update=asked)})
        origins |= {f"steps.{one}.{name}": "request" for name in asked}
    agents = chosen(contract.config.model_copy(update={"steps": steps}), origins)
    return contract.model_copy(update={"config": agents.config, "origins": agents.origins}) if asked else contract
