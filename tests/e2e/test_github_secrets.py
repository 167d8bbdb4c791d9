"""The forge's token is in the worker's memory and on its way to GitHub, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToJson

from perdure.models.delivery.result import Status
from tests.engine import HAPPY, finished
from tests.engine_with_github import ID, TOKEN, engine_with_github
from tests.secret_watch import SecretWatch, hits, recording


@pytest.mark.long
@pytest.mark.timeout(400)  # every git it starts is a shell script first
async def test_the_token_appears_in_no_child_no_file_no_history_no_log_and_no_pull_request(
    tmp_path: Path, ports: int
) -> None:
    async with engine_with_github(tmp_path, HAPPY, ports=ports, own_server=True) as world:
        seen = tmp_path / "seen"
        shims = recording(seen, ("git", "env"))  # of each that is started, whenever that is
        worker = world.engine.program(PATH=f"{shims}:{os.environ['PATH']}")
        with SecretWatch((TOKEN,), roots=(worker.pid,)) as watch:  # and what lives for more than a moment
            world.github.faults.add("pulls/create", "unauthorized", times=1)  # its error goes into history
            submitted = await world.submit(phases=["build", "test", "ship"])
            first = await finished(submitted, world.engine, timeout=150)
            assert (first.status, first.reason) == (Status.NOT_DELIVERED, "forge_refused")
            await submitted.delivery.retry()
            result = await finished(submitted, world.engine, timeout=150)
        assert result.status is Status.DRAFT, (result.message, world.engine.worker_log()[-3000:])
        assert {"git", "git-remote-http"} <= watch.seen, watch.seen
        async for execution in world.engine.client.list_workflows():
            history = await world.engine.client.get_workflow_handle(
                execution.id, run_id=execution.run_id
            ).fetch_history()
            for event in history.events:
                watch.scan_bytes(f"history of {execution.id}", MessageToJson(event).encode())
                watch.scan_bytes(f"history of {execution.id}", event.SerializeToString())  # payloads as they are
        watch.scan_bytes("result", str(result).encode())
        watch.scan_bytes("pull requests", str(world.github.pulls("me/calc")).encode())
        watch.scan_bytes("comments", str(world.github.comments("me/calc", world.issue)).encode())
        assert TOKEN.encode() not in Path(f"/proc/{worker.pid}/environ").read_bytes()
        assert {path.name.partition(".")[0] for path in seen.glob("*.*")} == {"git", "env"}
        watch.scan(seen, world.engine.home.root, world.engine.log, world.bare, Path.home() / ".gitconfig")
        assert watch.found == [], hits(watch.found)
        assert ID in str(list(world.engine.home.root.rglob("*")))
