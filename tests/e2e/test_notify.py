"""A gate is heard of, decided by what was sent, and its end is told; a worker's death in between repeats, not loses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.client.doctor import failed_notices
from perdure.models.crash import CrashPoint
from tests.cli.conftest import Cli
from tests.engine import BUILT, HAPPY, Engine, check_shipped, finished, make_target, until
from tests.receiver import SECRET, Receiver, genuine
from tests.secret_watch import SecretWatch, hits


@pytest.mark.timeout(120)
async def test_a_gate_is_told_the_worker_dies_before_it_can_say_so_and_what_was_sent_decides(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    path = "/services/T0/B0/this-part-is-a-secret"
    async with Receiver.open() as receiver:
        env = {
            "PERDURE_WEBHOOK_URL": receiver.url + path,
            "PERDURE_WEBHOOK_SECRET": SECRET,
            "PERDURE_CRASH_AT": CrashPoint.AFTER_NOTICE,
        }
        async with Engine.open(tmp_path, HAPPY, ports=ports, env=env, measured=True, own_server=True) as engine:
            kept = engine.kept()
            watch = SecretWatch([path.rpartition("/")[2], SECRET], carriers=("worker.py",))
            with watch:
                submitted = await engine.submit(
                    origin, **{**BUILT, "phases": ["plan", "build", "ship"]}, gates=["plan"]
                )
                twice = await until(lambda: len(receiver.of("waiting")) == 2 and receiver.of("waiting"))
                assert len({told.id for told in twice}) == 1, "sent again after a death, under the same id"
                (way, *_) = twice[0].json["decisions"]
                assert twice[0].json["links"]["web_ui"].endswith("/namespaces/default/workflows/calc-sub")
                assert (
                    await engine.handle().execute_update(way["update"], way["said"])
                    == f"approved: plan {way['said']['of']}"
                )
                result = await finished(submitted, engine)
                (ended,) = await until(lambda: receiver.of("ended"))
            check_shipped(origin, engine, result, {})
            assert result.receipt.worker_deaths == 1
            assert ended.json["result"]["status"] == "delivered"
            assert ended.json["result"]["head_sha"] == result.head_sha
            assert all(genuine(told) and told.path == path for told in receiver.told)
            history = (await engine.handle().fetch_history()).to_json()
            assert path not in history
            kept.let_go()
            watch.scan(engine.home.root)
            assert not watch.found, hits(watch.found)


@pytest.mark.timeout(120)
async def test_who_was_not_told_is_named_by_doctor_and_by_the_report(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Receiver.open() as receiver:
        receiver.answers = [(404, {})] * 5
        host = receiver.url.removeprefix("http://")
        env = {"PERDURE_WEBHOOK_URL": receiver.url + "/secret-part"}
        async with Engine.open(tmp_path, HAPPY, ports=ports, env=env, measured=True) as engine:
            engine.worker()
            submitted = await engine.submit(origin, **BUILT)
            result = await finished(submitted, engine)
            assert result.status == "delivered", "it does not fail by that"
            assert await until(submitted.delivery.failed_notices) == [f"{host} answered 404"]
            cli = Cli(engine.home.root, tmp_path, {})
            findings = [found for found in json.loads(cli("doctor", "--json").out) if found["name"] == "notify"]
            assert [found["text"] for found in findings] == [f"not told of calc-sub: {host} answered 404"]
            shown = cli("report", "calc-sub")
            assert f"! {host} answered 404" in shown.out, shown
            receiver.answers = [(403, {})]
            tried = [await asyncio.to_thread(cli, "doctor", "--notify") for _ in range(2)]
            assert [(ran.code, ran.out.splitlines()[0]) for ran in tried] == [
                (1, f"✗ notify     {host} answered 403"),
                (0, f"✓ notify     {host} answered 204"),
            ]
            assert [told.path for told in receiver.of("test")] == ["/secret-part"] * 2
            assert await failed_notices(engine.client) == [f"calc-sub: {host} answered 404"], (
                "a test is nobody's delivery"
            )
