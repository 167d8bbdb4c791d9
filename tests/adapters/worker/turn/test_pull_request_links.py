"""The links of a delivery's pull request: to pages of its own repository alone, whatever a workflow names."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from turn_fixtures import in_activity

from activities.forge import ForgeActivities
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.host import Host
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.publishing import ShipInput
from perdure.models.delivery.turn import Contract
from tests.homes import fresh_home
from tests.repositories import CALC, make_target
from tests.twins.github import GitHubTwin


@pytest.mark.timeout(60)
async def test_links_that_a_workflow_names_lead_nowhere_but_below_the_repository_s_own_address(tmp_path: Path) -> None:
    token = "ghp_" + "t0psecret" * 4
    async with GitHubTwin(tmp_path / "github", token=token) as github:
        github.add_repository("me/calc", source=make_target(tmp_path / "calc.git", CALC))
        env = {"PATH": os.environ["PATH"], "PERDURE_GITHUB_URL": github.url, "PERDURE_GITHUB_TOKEN": token}
        host, own = Host.from_environment(fresh_home(tmp_path / "home"), env), f"{github.url}/me/calc"
        vault = Vault.open_or_create(host.home, own, host.forges)
        base = await asyncio.to_thread(vault.fetch_branch, "main") or ""
        head = vault.objects.write_commit(vault.tree_of(base), [base], "feat: nothing")
        Workspace.create(host.home, vault, "calc-sub", base)
        contract = Contract(
            delivery="calc-sub",
            repository=own,
            request="Add sub",
            base="main",
            base_sha=base,
            branch="perdure/calc-sub",
            config=RepositoryConfig(version=1),
        )
        named = {
            "plan.md": f"{own}/blob/{head}/plan.md",
            "tests.md": f"{own}-evil/blob/tests.md",
            "review.md": "https://evil.invalid/review.md",
            "receipt.json": f"{own.replace('://', '://evil@')}/receipt.json",
        }
        work = ShipInput(
            delivery="calc-sub",
            contract=host.store_contract(vault, contract),
            workflow_id="calc-sub",
            base="main",
            branch="perdure/calc-sub",
            head=head,
            title="feat: nothing",
            artifacts=named,
        )
        await in_activity(ForgeActivities(host).open_pull_request, work)
        (pull,) = github.pulls("me/calc")
        await host.close()
        assert named["plan.md"] in pull["body"]
        assert "evil" not in pull["body"]
