"""`perdure doctor`, a worker and the client on a Temporal server that somebody else has set up, and not for Perdure."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from perdure.client.server.calls import run_on_host
from perdure.client.server.capabilities import log_missing_capabilities
from perdure.local.places import temporal_binary
from perdure.models.errors import PerdureError
from tests.cli.conftest import Cli
from tests.temporal_server import bare_server

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server without standalone activities, whose namespace has none of our search attributes."""
    with bare_server(tmp_path_factory.mktemp("server") / "log", "activity.enableStandalone=false") as address:
        yield address


async def test_doctor_names_what_the_server_lacks_and_how_to_get_it(address: str, tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home", tmp_path, {"TEMPORAL_ADDRESS": address})
    ran = await asyncio.to_thread(cli, "doctor", "--json")
    findings = [finding for finding in json.loads(ran.out) if finding["name"] in ("Temporal", "worker")]
    answers, activities, attributes, workers = findings
    assert (answers["mark"], activities["mark"], attributes["mark"], workers["mark"]) == ("✓", "!", "!", "!")
    assert answers["text"].startswith(f"{address} answers, as TEMPORAL_* says: server 1.")
    assert answers["text"].endswith(", keeps what has ended for 1 day")
    assert activities["text"].startswith("it has no standalone activities: logs, diff, verify")
    assert "activity.enableStandalone: true" in activities["fix"]
    assert "PerdureStatus" in attributes["text"]
    assert workers["text"] == "none takes work from queue perdure: deliveries wait for one"

    program, *arguments = attributes["fix"].split()
    assert program == "temporal"
    made = await asyncio.create_subprocess_exec(temporal_binary(), *arguments, "--address", address)
    assert await made.wait() == 0, "the command that it names can be typed"
    ran = await asyncio.to_thread(cli, "doctor", "--json")
    texts = [finding["text"] for finding in json.loads(ran.out) if finding["name"] == "Temporal"]
    assert len(texts) == 2, texts


async def test_doctor_names_a_namespace_that_is_not_there(address: str, tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home", tmp_path, {"TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": "nowhere"})
    ran = await asyncio.to_thread(cli, "doctor", "--json")
    (finding,) = [finding for finding in json.loads(ran.out) if finding["name"].lower() == "temporal"]
    assert finding["mark"] == "✗"
    assert "'nowhere'" in finding["text"]
    assert "TEMPORAL_NAMESPACE" in finding["fix"]


async def test_a_worker_says_at_its_start_what_will_not_work(address: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await log_missing_capabilities(await Client.connect(address))
    assert "this Temporal server has no standalone activities: logs, diff" in caplog.text


async def test_a_command_that_asks_a_host_says_what_the_server_lacks(address: str) -> None:
    client = await Client.connect(address)
    with pytest.raises(PerdureError, match="this Temporal server has no standalone activities") as raised:
        await run_on_host(client, "read", {}, dict, queue="host", about="calc", within=timedelta(seconds=5))
    assert "dynamic configuration" in raised.value.fix
