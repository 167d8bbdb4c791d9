"""What a worker finds out about its surroundings before it works."""

from __future__ import annotations

import pytest
from temporalio.client import Client

from perdure.adapters.host.home import Home
from perdure.adapters.host.host import Host
from perdure.models.config import HostConfig
from perdure.models.errors import WorkspaceLost


async def test_search_attributes_are_used_where_the_server_knows_them_and_done_without_elsewhere(
    home: Home, server: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(home, HostConfig(), None)
    elsewhere = await Client.connect(server, namespace="nowhere", lazy=True)
    await host.check_search_attributes(elsewhere)
    assert not host.attributes
    assert "going on without them" in caplog.text
    await host.check_search_attributes(await Client.connect(server))
    assert host.attributes
    await host.close()


async def test_the_models_key_leaves_the_environment_with_the_first_look(home: Home) -> None:
    environ = {"ANTHROPIC_API_KEY": "secret", "PATH": "/bin"}
    host = Host.open(home, environ)
    assert environ == {"PATH": "/bin"}
    assert host.model_or_refuse().secrets == ("secret",)
    await host.close()


async def test_a_host_that_knows_nothing_of_a_delivery_says_the_workspace_is_lost(home: Home) -> None:
    host = Host(home, HostConfig(), None)
    with pytest.raises(WorkspaceLost):
        async with host.lease("unknown"):
            pass
    await host.close()
