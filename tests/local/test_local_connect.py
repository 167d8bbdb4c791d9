"""Which Temporal a command talks to, and what it says when there is none."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import time
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import Client

from perdure.adapters.system.home import Home
from perdure.local.connect import connect_to_temporal, embedded_environment, external_server_config, heartbeat_throttle
from perdure.local.identity import find_free_ports
from perdure.local.server import ensure_server, stop_server
from perdure.local.supervisor import has_running_deliveries
from perdure.models.errors import BadInput, TemporalUnreachable
from tests.waiting import until


def quiet(_: str) -> None: ...


async def test_nothing_configured_means_the_embedded_server(home: Home) -> None:
    server = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    client = await connect_to_temporal(home, start=False, say=quiet)
    assert client.service_client.config.target_host == server.address
    assert client.namespace == "default"


async def test_without_a_server_and_not_to_start_one_it_says_how_to(home: Home) -> None:
    with pytest.raises(TemporalUnreachable) as error:
        await connect_to_temporal(home, start=False, say=quiet)
    assert "perdure up" in error.value.fix
    assert error.value.exit_code == 3
    assert not home.root.exists()


async def test_temporal_variables_win_over_the_embedded_server(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "elsewhere")
    client = await connect_to_temporal(Home(home.root / "nothing-here"), start=True, say=quiet)
    assert client.namespace == "elsewhere"
    assert not (home.root / "nothing-here").exists()


async def test_the_own_address_in_a_variable_means_the_embedded_server(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(home.root))
    server = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address.replace("127.0.0.1", "localhost"))
    assert external_server_config() is None
    await stop_server(home)
    assert external_server_config() is None
    again = await ensure_server(home, say=quiet)
    assert (await connect_to_temporal(home, start=False, say=quiet)).service_client.config.target_host == again.address
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "team")
    assert external_server_config() is not None
    monkeypatch.delenv("TEMPORAL_NAMESPACE")
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"{server.address}0")
    assert external_server_config() is not None


async def test_a_profile_counts_as_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile = tmp_path / "temporal.toml"
    profile.write_text('[profile.default]\naddress = "temporal.internal:7233"\nnamespace = "team"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(profile))
    assert external_server_config() == {"target_host": "temporal.internal:7233", "namespace": "team"}
    for name in embedded_environment(os.environ).keys() ^ os.environ.keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", embedded_environment(os.environ)["TEMPORAL_CONFIG_FILE"])
    assert external_server_config() is None


async def test_a_variable_that_is_not_text_is_left_out_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWD", os.fsdecode(b"/home/caf\xe9"))
    assert external_server_config() is None
    monkeypatch.setenv("TEMPORAL_ADDRESS", os.fsdecode(b"caf\xe9:7233"))
    with pytest.raises(BadInput, match="not UTF-8") as refused:
        external_server_config()
    assert refused.value.where == "environment variable TEMPORAL_ADDRESS"
    assert "unset it" in refused.value.fix


async def test_a_profile_that_does_not_exist_is_bad_input(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_PROFILE", "nope")
    with pytest.raises(BadInput, match="nope"):
        await connect_to_temporal(home, start=True, say=quiet)


async def test_a_closed_port_is_unreachable_with_its_address(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{find_free_ports().grpc}"
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    with pytest.raises(TemporalUnreachable) as error:
        await connect_to_temporal(home, start=True, say=quiet)
    assert error.value.where == address
    assert "TEMPORAL_ADDRESS" in error.value.fix


async def test_a_name_that_is_nobodys_is_told_without_the_librarys_own_words(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "nonsense.invalid:7233")
    with pytest.raises(TemporalUnreachable, match="lookup address") as error:
        await connect_to_temporal(home, start=True, say=quiet)
    assert "tonic" not in error.value.what


async def test_a_port_that_never_answers_is_given_up(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.local.connect.SERVER_ANSWER_S", 0.5)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        monkeypatch.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{listener.getsockname()[1]}")
        began = time.monotonic()
        with pytest.raises(TemporalUnreachable, match="answered within"):
            await connect_to_temporal(home, start=True, say=quiet)
    assert time.monotonic() - began < 10


def is_stopped(pid: int) -> bool:
    """Return True once each thread of a process is stopped."""
    states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


async def test_a_server_that_falls_silent_is_told_of_once_with_the_time_and_again_the_next_time(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, lines = await ensure_server(home, say=quiet, port=find_free_ports().grpc), list[str]()
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setenv("PERDURE_HOME", str(home.root / "another"))
    client = await connect_to_temporal(Home(home.root / "another"), start=False, say=lines.append)
    for outage in (1, 2):
        await client.count_workflows()
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await until(partial(is_stopped, server.pid))  # its threads go on until one of them has taken the signal
            asked = [asyncio.ensure_future(client.count_workflows()) for _ in range(2)]
            await until(lambda outage=outage: len(lines) == outage, 10)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await asyncio.gather(*asked)
    line = re.compile(r"Temporal has not answered since \d\d:\d\d:\d\d; it is asked again")
    assert all(map(line.fullmatch, lines)), lines


async def test_a_running_delivery_keeps_a_worker_busy(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not await has_running_deliveries(home), "a server that is down runs nothing"
    await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    assert not await has_running_deliveries(home)
    client = await connect_to_temporal(home, start=False, say=quiet)
    await client.start_workflow("Delivery", id="waiting", task_queue="nobody")
    while not await has_running_deliveries(home):
        time.sleep(0.05)
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{find_free_ports().grpc}")
    assert await has_running_deliveries(home), "a server elsewhere that cannot be asked may be running some"


@pytest.mark.parametrize(
    ("address", "seconds"),
    [
        ("team.a1b2c.tmprl.cloud:7233", 5),
        ("eu-west-1.aws.api.temporal.io:7233", 5),
        ("localhost:7233", 1),
        ("temporal.example.org:7233", 1),
        ("tmprl.cloud.example.org:7233", 1),
    ],
)
async def test_heartbeats_that_are_paid_for_reach_the_server_every_five_seconds(address: str, seconds: int) -> None:
    client = await Client.connect(address, lazy=True)
    assert heartbeat_throttle(client).total_seconds() == seconds
