"""Webhooks of a real worker are verified by the samples in Go and Node, with the Standard Webhooks libraries."""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from perdure.local.identity import find_free_ports
from tests.client_samples import CLIENTS, fetch_or_leave_out
from tests.engine import HAPPY, Engine, make_target, until
from tests.guide import example
from tests.needs import require
from tests.receiver import SECRET

pytestmark = [pytest.mark.story, pytest.mark.timeout(400)]


@pytest.mark.parametrize("language", ["go", "typescript"])
async def test_a_receiver_takes_what_a_worker_sends_and_nothing_else(
    tmp_path: Path, ports: int, language: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    command = build_go(tmp_path) if language == "go" else build_typescript(tmp_path_factory, tmp_path)
    port = find_free_ports().ui
    address = f"127.0.0.1:{port}" if language == "go" else str(port)
    url, log = f"http://127.0.0.1:{port}/", tmp_path / "told"
    env = {**os.environ, "PERDURE_WEBHOOK_SECRET": SECRET}
    with log.open("w") as output:
        receiver = subprocess.Popen([*command, address], env=env, stdout=output, stderr=subprocess.STDOUT)
    try:
        await until(lambda: answered(url) == 401)
        async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
            engine.worker(PERDURE_WEBHOOK_URL=url, PERDURE_WEBHOOK_SECRET=SECRET)
            await engine.submit(make_target(tmp_path / "calc.git"), id="told", phases=["plan"], gates=["plan"])
            await until(lambda: "waiting told approve the plan: Add sub" in log.read_text())
            await engine.handle("told").cancel()
            await until(lambda: "ended told" in log.read_text())
    finally:
        receiver.kill()
        receiver.wait()


def build_go(tmp_path: Path) -> list[str]:
    require("go")
    fetch_or_leave_out("the receiver in Go", ["go", "mod", "download"], CLIENTS / "go")
    words = ["go", "build", "-mod=readonly", "-o", str(tmp_path / "webhook"), "./webhook"]
    subprocess.run(words, cwd=CLIENTS / "go", check=True, timeout=300)
    return [str(tmp_path / "webhook")]


def build_typescript(shared: pytest.TempPathFactory, tmp_path: Path) -> list[str]:
    project = example(shared, tmp_path / "typescript")
    subprocess.run([str(project / "node_modules" / ".bin" / "tsc")], cwd=project, check=True, timeout=120)
    return ["node", str(project / "dist" / "webhook.js")]


def answered(url: str) -> int:
    """Return the status for a message that nobody has signed; 0: nobody listens yet."""
    try:
        return int(urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST"), timeout=10).status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
