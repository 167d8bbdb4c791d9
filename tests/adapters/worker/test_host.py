"""What a worker finds out about its surroundings before it works."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import Client

from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.models.config.host import HostConfig
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.turn import Contract
from perdure.models.errors import WorkspaceLost
from tests.repositories import make_target


async def test_search_attributes_are_used_where_the_server_knows_them_and_done_without_elsewhere(
    home: Home, server: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(home, HostConfig(), None)
    elsewhere = await Client.connect(server, namespace="nowhere", lazy=True)
    await host.load_search_attributes(elsewhere)
    assert not host.search_attributes
    assert host.extra_search_attributes == ()
    assert "going on without them" in caplog.text
    await host.load_search_attributes(await Client.connect(server))
    assert host.search_attributes
    assert host.extra_search_attributes == ("PerdureChange", "PerdureLabels", "PerdureTitle", "PerdureWaiting")
    await host.close()


async def test_the_models_key_leaves_the_environment_with_the_first_look(home: Home) -> None:
    environ = {"ANTHROPIC_API_KEY": "secret", "PATH": "/bin"}
    host = Host.from_environment(home, environ)
    assert environ == {"PATH": "/bin"}
    assert host.require_model().secrets == ("secret",)
    await host.close()


async def test_the_keys_of_every_wire_leave_the_environment_and_are_redacted(home: Home) -> None:
    keys = {
        "OPENAI_API_KEY": "sk-of-one-vendor",
        "GEMINI_API_KEY": "AI-of-another",
        "ANTHROPIC_AUTH_TOKEN": "a-token-1",
    }
    environ = {**keys, "OPENAI_BASE_URL": "http://user:hidden-word@127.0.0.1:9/v1", "PATH": "/bin"}
    host = Host.from_environment(home, environ)
    assert not set(keys) & set(environ)
    assert sorted(host.upstreams) == ["anthropic", "gemini", "openai-chat", "openai-responses"]
    assert host.upstreams["anthropic"].credentials() == {"authorization": "Bearer a-token-1"}
    assert host.upstreams["gemini"].credentials() == {"x-goog-api-key": "AI-of-another"}
    assert host.upstreams["openai-chat"].base_url == "http://user:hidden-word@127.0.0.1:9/v1"
    printed = [{"type": "text", "text": " ".join([*keys.values(), "hidden-word"])}]
    assert host.redact_blocks(printed) == [{"type": "text", "text": " ".join(["[redacted]"] * 4)}]
    await host.close()


async def test_a_host_that_knows_nothing_of_a_delivery_says_the_workspace_is_lost(home: Home) -> None:
    host = Host(home, HostConfig(), None)
    with pytest.raises(WorkspaceLost):
        async with host.lease_workspace("unknown"):
            pass
    await host.close()


async def test_terms_that_somebody_else_wrote_are_no_terms(home: Home, tmp_path: Path) -> None:
    """A request may carry a plan of any words, which is an artifact of its delivery like the terms."""
    host = Host(home, HostConfig(), None)
    vault = Vault.open_or_create(home, str(make_target(tmp_path / "calc.git")))
    terms = Contract(
        delivery="d", repository="/r", request="x", base="main", base_sha="", branch="b", grade="off", source="/etc",
        config=RepositoryConfig(version=1),
    )  # fmt: skip
    assert host.load_contract(vault, "d", host.store_contract(vault, terms)) == terms
    said = terms.model_dump_json().encode()
    for forged in (said, b"\n" + said, b"0" * 64 + b"\n" + said, b"\xff\n" + said):
        with pytest.raises(WorkspaceLost, match="not made by this PERDURE_HOME"):
            host.load_contract(vault, "d", vault.put_artifact("d", forged))
    sealed = vault.get_artifact("d", host.store_contract(vault, terms))
    with pytest.raises(WorkspaceLost, match="not made by this PERDURE_HOME"):
        host.load_contract(vault, "e", vault.put_artifact("e", sealed))
    await host.close()
