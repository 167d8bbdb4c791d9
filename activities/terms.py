"""The terms of a delivery: its repository, base, branch and configuration, all read before anything is made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.agents.builtin.opening import of_kind, of_role
from perdure.adapters.agents.chosen import chosen
from perdure.adapters.forges.base import HostedForge
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.landing import head_here
from perdure.adapters.git.publish import try_out
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.config import Effective, effective, load_repository_config
from perdure.adapters.repository.issues import read_issue
from perdure.adapters.repository.terms import (
    BranchBase,
    base_of,
    branches_of,
    check_branch,
    comes_from_here,
    find_source,
    find_target,
)
from perdure.models.backlog import LandingPlace
from perdure.models.contract import Contract
from perdure.models.errors import InvalidRequest
from perdure.models.ids import branch_name
from perdure.models.limits import CONFIG_BYTES, USD_MOST
from perdure.models.phases import Kind, Phase, why_not
from perdure.models.plan import ROLE
from perdure.models.request import DeliveryRequest
from perdure.models.specialists import Within
from perdure.models.steps import AGENTIC

CONFIG_FILE = "perdure.toml"


class Terms(OnHost):
    """Reads them on this host."""

    def read(self, delivery: str, request: DeliveryRequest) -> tuple[Vault, Contract, Effective]:
        """Read the issue, fetch, and read the base branch's settings; what the files say comes with the worktree."""
        if request.landing is not None and request.landing.within is not None:
            return self._of_task(delivery, request, request.landing, request.landing.within)
        keys = self._host.forges
        ours = comes_from_here(self._host.home, delivery, request, activity.info().workflow_id or "")
        target = find_target(request, ours, self._host.config.local_repositories, keys)
        issue = read_issue(keys.forge(target.url), request.issue, target.url) if request.issue is not None else None
        vault = Vault.open(self._host.home, target.url, keys)
        base, base_sha = base_of(vault, target, request)
        place = request.landing
        if place is not None and not place.ships and place.branch == target.heads.default:
            raise InvalidRequest("landing: nobody lands on the default branch", where=request.repository)
        head = base_sha
        if request.branch is not None:
            found = vault.fetch_branch(request.branch)
            if found is None:
                raise InvalidRequest(f"branch: there is no branch {request.branch}", where=request.repository)
            head = found
        settings = self.settings(vault, base, base_sha, request)
        if problem := why_not(settings.config.delivery.phases, request.branch):
            raise InvalidRequest(f"phases: {problem}", where=settings.origins.get("delivery.phases", ""))
        if settings.config.delivery.attempts > 1 and settings.config.delivery.specialists:
            what = "delivery.attempts: a plan is built by several specialists or several times, not both"
            raise InvalidRequest(what, where=settings.origins.get("delivery.attempts", ""), fix="leave one of them out")
        agents = chosen(settings.config, settings.origins)
        settings = Effective(agents.config, agents.origins)
        if request.branch is not None:
            check_branch(vault, request, settings.config.delivery.phases, base, base_sha, head, target.heads.default)
            branches = {"": request.branch}
        else:
            ground = BranchBase(vault, target.heads, base, base_sha, delivery)
            branches = branches_of(settings.config.git.branch, delivery, request, issue, CONFIG_FILE, ground)
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
            source=find_source(request, ours, target, bool(settings.config.setup.copy_files)),
            origins=settings.origins,
            grade=self._host.config.sandbox,
            allow_test_changes=request.allow_test_changes,
            prompts=_prompts(vault, base_sha, request, specialists=settings.config.delivery.specialists),
            issue=issue,
            landing=request.landing,
        )
        if (Phase.SHIP in settings.config.delivery.phases or request.push) and not self.hosted(contract):
            forge = keys.forge(target.url)  # one with accounts is asked where its token is
            if isinstance(forge, LocalForge):
                forge.check(base, empty=target.empty)
            try_out(vault, contract, None if target.empty else target.heads)
        return vault, contract, settings

    def _of_task(
        self, delivery: str, request: DeliveryRequest, place: LandingPlace, within: Within
    ) -> tuple[Vault, Contract, Effective]:
        """The terms of a plan's task: those of its delivery, on what other tasks have landed; nothing is fetched. It
        builds, and that is all: the verdict is about all tasks together."""
        vault = Workspace.open(self._host.home, within.delivery).vault
        whole, onto = self._host.contract(vault, within.delivery, within.terms), head_here(vault, place.branch)
        limits = whole.config.limits
        most = {"budget_usd": min(request.budget_usd or USD_MOST, limits.budget_usd), "tokens": within.tokens or None}
        builds = {"phases": (Phase.BUILD,), "document": False, "specialists": False}
        config = whole.config.model_copy(
            update={
                "delivery": whole.config.delivery.model_copy(update=builds),
                "limits": limits.model_copy(update=most),
                "gates": whole.config.gates.model_copy(update={"before": ()}),
                "ship": whole.config.ship.model_copy(update={"allow_untested": True}),
            }
        )
        mine = {"delivery": delivery, "branch": branch_name(delivery), "branches": {}, "existing": False}
        on = {"base_sha": onto, "head": onto, "began": "", "landing": place, "config": config}
        return vault, whole.model_copy(update=mine | on), Effective(config, whole.origins)

    def hosted(self, contract: Contract) -> bool:
        return isinstance(self._host.forges.forge(contract.repository), HostedForge)

    def settings(self, vault: Vault, base: str, base_sha: str, request: DeliveryRequest) -> Effective:
        """The settings of this request on that base: its perdure.toml, unless the request brings another, merged."""
        written = vault.show(base_sha, CONFIG_FILE, CONFIG_BYTES)
        text = written.decode(errors="replace") if written is not None else None
        return effective(
            host=self._host.config,
            env=os.environ,
            repository=load_repository_config(text, CONFIG_FILE) if text is not None else None,
            repository_name=f"{CONFIG_FILE} on {base}",
            config=load_repository_config(request.config, "--config") if request.config is not None else None,
            request=request,
        )


def of_task(contract: Contract) -> dict[str, Any]:
    """The rest of what is prepared for a plan's task: nobody is asked about its limits, nothing judged alone."""
    if contract.landing is None or contract.landing.within is None:
        return {}
    return {"inspects": False, "asks": False, "gates": (), "title": contract.landing.within.title}


def _prompts(vault: Vault, base_sha: str, request: DeliveryRequest, *, specialists: bool) -> dict[str, str]:
    """The repository's own prompts, from the base branch: an agent's change to them does not count. Of roles that of an
    item of a backlog, or all where the plan's tasks have roles."""
    there = vault.listed(base_sha, ".perdure/prompts")  # seldom any: one look instead of seven
    roles = [request.landing.role] if request.landing is not None and request.landing.role else []
    roles += _roles(there) if specialists else []
    names = (*map(str, AGENTIC), *map(of_kind, Kind), *map(of_role, roles))
    paths = {name: f".perdure/prompts/{name}.md" for name in names}
    found = {name: vault.show(base_sha, path, CONFIG_BYTES) for name, path in paths.items() if path in there}
    return {name: text.decode(errors="replace") for name, text in found.items() if text is not None}


def _roles(there: Iterable[str]) -> list[str]:
    """The roles that the repository has prompts for. Raises InvalidRequest for a name that no role can have."""
    beginning, ending = f".perdure/prompts/{of_role('')}", ".md"
    names = [path for path in sorted(there) if path.startswith(beginning) and path.endswith(ending)]
    roles = [path.removeprefix(beginning).removesuffix(ending) for path in names]
    for path, role in zip(names, roles, strict=True):
        if not re.fullmatch(ROLE, role):
            what = "delivery.specialists: a role's name is lower case letters, digits and dashes, at most 30"
            raise InvalidRequest(what, where=path, fix="rename the prompt")
    return roles
