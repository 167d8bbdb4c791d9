"""Builds the contract of a delivery, its fixed terms: repository, base, branch, configuration, issue and prompts, all
read before anything is made. Activities `prepare` and `follow` and those of a backlog call it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.agents.builtin.opening import kind_prompt_name, role_prompt_name
from perdure.adapters.agents.resolve_agents import resolve_agents
from perdure.adapters.forges.base import HostedForge
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.landing import vault_branch_head
from perdure.adapters.git.publish import check_push_allowed
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.config import (
    EffectiveConfig,
    load_repository_config,
    merge_config,
    read_committed_config,
)
from perdure.adapters.repository.terms import (
    BranchBase,
    branch_names,
    check_branch,
    fetch_base,
    fetch_issue,
    find_source,
    find_target,
    is_from_this_home,
)
from perdure.models.backlog.request import LandingPlace
from perdure.models.config.repository import CONFIG_FILE
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.specialists import ParentDelivery
from perdure.models.delivery.steps import AGENTIC, ROLE
from perdure.models.delivery.turn import Contract
from perdure.models.errors import InvalidRequest
from perdure.models.ids import branch_name
from perdure.models.limits import CONFIG_BYTES, USD_MOST
from perdure.models.phases import Kind, Phase, invalid_phases_reason
from perdure.models.rules.admission import gates_refusal


class ContractBuilder(OnHost):
    """Reads, on this host, all that goes into a delivery's contract."""

    def build_contract(self, delivery: str, request: DeliveryRequest) -> tuple[Vault, Contract, EffectiveConfig]:
        """Read the issue, open or make the vault, fetch the base, read its settings, and return the vault, the contract
        and the settings it was made from. Detected commands and notes from the repository's files are not in it yet:
        `complete_contract` adds them once there is a worktree.

        When the delivery publishes to an origin without accounts, dry runs check first that it may push. The contract
        of a plan's task is made from its parent's, without fetching anything. Raises InvalidRequest or BadInput for a
        request or settings that cannot be carried out, ForgeRefused or ForgeUnavailable when remote or forge does not
        give what is needed, WorkspaceLost for a task whose parent is not on this host.
        """
        if request.landing is not None and request.parent_delivery is not None:
            return self._build_for_task(delivery, request, request.landing, request.parent_delivery)
        forges = self._host.forges
        is_ours = is_from_this_home(self._host.home, delivery, request, activity.info().workflow_id or "")
        target = find_target(request, is_ours, self._host.config.local_repositories, forges)
        issue = fetch_issue(forges.forge(target.url), request.issue, target.url) if request.issue is not None else None
        vault = Vault.open_or_create(self._host.home, target.url, forges, self._host.config.git.filters)
        base, base_sha = fetch_base(vault, target, request)
        landing = request.landing
        if landing is not None and not landing.ships and landing.branch == target.heads.default:
            raise InvalidRequest("landing: nobody lands on the default branch", where=request.repository)
        head = base_sha
        if request.branch is not None:
            tip = vault.fetch_branch(request.branch)
            if tip is None:
                raise InvalidRequest(f"branch: there is no branch {request.branch}", where=request.repository)
            head = tip
        settings = self.read_settings(vault, base, base_sha, request)
        if problem := invalid_phases_reason(settings.config.delivery.phases, request.branch):
            raise InvalidRequest(f"phases: {problem}", where=settings.origins.get("delivery.phases", ""))
        if problem := gates_refusal(request, settings.config.delivery.phases):
            raise InvalidRequest(problem, where=settings.origins.get("delivery.phases", ""))
        if settings.config.delivery.attempts > 1 and settings.config.delivery.specialists:
            message = "delivery.attempts: a plan is built by several specialists or several times, not both"
            raise InvalidRequest(
                message, where=settings.origins.get("delivery.attempts", ""), fix="leave one of them out"
            )
        agents = resolve_agents(settings.config, settings.origins)
        settings = EffectiveConfig(agents.config, agents.origins)
        if request.branch is not None:
            check_branch(vault, request, settings.config.delivery.phases, base, base_sha, head, target.heads.default)
            branches = {"": request.branch}
        else:
            branch_base = BranchBase(vault, target.heads, base, base_sha, delivery)
            branches = branch_names(settings.config.git.branch, delivery, request, issue, CONFIG_FILE, branch_base)
        contract = Contract(
            delivery=delivery,
            repository=target.url,
            request=request.request,
            base=base,
            base_sha=base_sha,
            head=head,
            existing=request.branch is not None,
            branch=branches[""],
            branches={kind: name for kind, name in branches.items() if kind},
            config=settings.config,
            source=find_source(request, is_ours, target, bool(settings.config.setup.copy_files)),
            origins=settings.origins,
            grade=self._host.config.sandbox,
            allow_test_changes=request.allow_test_changes,
            prompts=_read_prompts(vault, base_sha, request, specialists=settings.config.delivery.specialists),
            issue=issue,
            landing=request.landing,
            sealed=True,
        )
        if (Phase.SHIP in settings.config.delivery.phases or request.push) and not self.has_hosted_forge(contract):
            forge = forges.forge(target.url)  # one with accounts is asked where its token is
            if isinstance(forge, LocalForge):
                pushed = request.branch if {*settings.config.delivery.phases} - {Phase.SHIP} else None
                forge.check_access(base, empty=target.empty, existing_branch=pushed or "")
            check_push_allowed(vault, contract, None if target.empty else target.heads)
        return vault, contract, settings

    def _build_for_task(
        self, delivery: str, request: DeliveryRequest, landing: LandingPlace, parent: ParentDelivery
    ) -> tuple[Vault, Contract, EffectiveConfig]:
        """Return vault, contract and settings of a plan's task: those of its parent delivery, on what other tasks have
        landed, with the task's share of budget and tokens, and no gates that wait for a person; nothing is fetched. A
        task only builds: it is not tested, documented or reviewed, because the verdict is about all tasks together.
        Raises WorkspaceLost when this host does not have the parent."""
        vault = Workspace.open(self._host.home, parent.delivery).vault
        parent_contract, onto = (
            self._host.load_contract(vault, parent.delivery, parent.terms),
            vault_branch_head(vault, landing.branch),
        )
        limits = parent_contract.config.limits
        limit_changes = {
            "budget_usd": min(request.budget_usd or USD_MOST, limits.budget_usd),
            "tokens": parent.tokens or None,
        }
        delivery_changes = {"phases": (Phase.BUILD,), "document": False, "specialists": False}
        config = parent_contract.config.model_copy(
            update={
                "delivery": parent_contract.config.delivery.model_copy(update=delivery_changes),
                "limits": limits.model_copy(update=limit_changes),
                "gates": parent_contract.config.gates.model_copy(update={"before": ()}),
                "ship": parent_contract.config.ship.model_copy(update={"allow_untested": True}),
            }
        )
        identity = {"delivery": delivery, "branch": branch_name(delivery), "branches": {}, "existing": False}
        position = {"base_sha": onto, "head": onto, "first_base_sha": "", "landing": landing, "config": config}
        return (
            vault,
            parent_contract.model_copy(update=identity | position),
            EffectiveConfig(config, parent_contract.origins),
        )

    def has_hosted_forge(self, contract: Contract) -> bool:
        """Return True when the repository's forge is one with accounts and issues, such as GitHub."""
        return isinstance(self._host.forges.forge(contract.repository), HostedForge)

    def read_settings(self, vault: Vault, base: str, base_sha: str, request: DeliveryRequest) -> EffectiveConfig:
        """Read perdure.toml of the commit `base_sha`, and return it merged with the settings of host, environment and
        request and any configuration sent with the request. Without that file the others alone count. Raises
        InvalidRequest or BadInput for a setting that is not valid."""
        text = read_committed_config(vault.git, base_sha)
        return merge_config(
            host=self._host.config,
            env=os.environ,
            repository=load_repository_config(text, CONFIG_FILE) if text is not None else None,
            repository_name=f"{CONFIG_FILE} on {base}",
            config=load_repository_config(request.config, "config") if request.config is not None else None,
            request=request,
        )


def _read_prompts(vault: Vault, base_sha: str, request: DeliveryRequest, *, specialists: bool) -> dict[str, str]:
    """Return the repository's own prompts, by name, as they are on the base: an agent's change to them does not count.
    Of prompts for roles, only that of a backlog item's role, or all when the plan's tasks have roles (`specialists`).
    Raises InvalidRequest for a prompt whose name no role can have."""
    prompt_paths = vault.list_folder(base_sha, ".perdure/prompts")  # seldom any: one look instead of seven
    roles = [request.landing.role] if request.landing is not None and request.landing.role else []
    roles += _find_roles(prompt_paths) if specialists else []
    names = (*map(str, AGENTIC), *map(kind_prompt_name, Kind), *map(role_prompt_name, roles))
    paths = {name: f".perdure/prompts/{name}.md" for name in names}
    contents = {
        name: vault.read_file(base_sha, path, CONFIG_BYTES) for name, path in paths.items() if path in prompt_paths
    }
    return {name: text.decode(errors="replace") for name, text in contents.items() if text is not None}


def _find_roles(prompt_paths: Iterable[str]) -> list[str]:
    """Return the roles that the repository has prompts for, sorted. Raises InvalidRequest when the name of a prompt is
    none that a role can have."""
    beginning, ending = f".perdure/prompts/{role_prompt_name('')}", ".md"
    role_paths = [path for path in sorted(prompt_paths) if path.startswith(beginning) and path.endswith(ending)]
    roles = [path.removeprefix(beginning).removesuffix(ending) for path in role_paths]
    for path, role in zip(role_paths, roles, strict=True):
        if not re.fullmatch(ROLE, role):
            message = "delivery.specialists: a role's name is lower case letters, digits and dashes, at most 30"
            raise InvalidRequest(message, where=path, fix="rename the prompt")
    return roles
