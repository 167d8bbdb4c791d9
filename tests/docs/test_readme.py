"""README and plain starts keep what they say: their snippets run, their links lead somewhere."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from perdure.local.places import temporal_binary
from perdure.local.server import find_server
from perdure.models.delivery.request import parse_request
from tests import needs
from tests.engine import HAPPY, Engine, make_target, pulls, until
from tests.guide import example

ROOT = Path(__file__).parents[2]
TEXTS = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/submitting.md"))


def snippet(name: str) -> str:
    """The code block behind `<!-- tested: name -->`."""
    found = re.search(rf"<!-- tested: {name} -->\n```\w+\n(.*?)```", TEXTS, re.DOTALL)
    assert found, f"no snippet {name}"
    return found[1]


shared = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory, ports: int) -> AsyncIterator[Engine]:
    """One for all snippets: each has a repository and a delivery of its own."""
    async with Engine.open(tmp_path_factory.mktemp("engine"), HAPPY, ports=ports, own_server=True) as engine:
        engine.worker()
        yield engine


@pytest.fixture(scope="module")
def ports() -> int:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return 25000 + 60 * worker


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    return make_target(tmp_path / "calc.git")


def stranger(engine: Engine, origin: Path, cwd: Path) -> dict[str, Any]:
    """How somebody with nothing of ours runs a program: their Temporal address, our repository's path."""
    address = engine.client.service_client.config.target_host
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTHONPATH"))}
    env = kept | {"TEMPORAL_ADDRESS": address, "REPOSITORY": str(origin)}
    return {"cwd": cwd, "env": env, "capture_output": True, "text": True, "timeout": 90}


async def run(command: list[str], options: dict[str, Any]) -> str:
    import asyncio

    done = await asyncio.to_thread(subprocess.run, command, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def test_the_request_in_the_readme_is_a_request() -> None:
    request = parse_request(json.loads(snippet("request")))
    assert request.budget_usd == 5.0
    assert request.phases is not None
    assert len(request.phases) == 5
    parse_request(json.loads(snippet("web")))


@pytest.mark.parametrize("file", ["README.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))])
def test_every_link_leads_to_a_file(file: str) -> None:
    path = ROOT / file
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.timeout(120)
@shared
async def test_python_with_nothing_of_ours_gets_a_pull_request(engine: Engine, origin: Path, tmp_path: Path) -> None:
    code = snippet("plain-python")
    assert "perdure" not in code.replace('task_queue="perdure"', "")
    out = await run([sys.executable, "-c", code], stranger(engine, origin, tmp_path))
    assert out == f"delivered {pulls_url(origin)}\n"


@pytest.mark.timeout(120)
@shared
async def test_the_temporal_command_gets_a_pull_request(engine: Engine, origin: Path, tmp_path: Path) -> None:
    options = stranger(engine, origin, tmp_path)
    options["env"]["PATH"] = f"{temporal_binary().parent}:{options['env']['PATH']}"
    out = await run(["bash", "-euc", snippet("plain-shell")], options)
    assert "delivered" in out
    assert len(pulls(origin)) == 1


@pytest.mark.timeout(180)
@shared
async def test_typescript_gets_a_pull_request(
    engine: Engine, origin: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The snippet is JavaScript as well: it has no types of its own."""
    needs.require("node")
    program = tmp_path / "client.mjs"
    program.write_text(snippet("plain-typescript"))
    options = stranger(engine, origin, tmp_path)
    await run(["node", "--check", str(program)], options)
    program = program.rename(example(tmp_path_factory, tmp_path / "example") / program.name)
    assert await run(["node", str(program)], options) == f"delivered {pulls_url(origin)}\n"


@pytest.mark.timeout(120)
@shared
async def test_what_the_web_ui_form_sends_gets_a_pull_request(engine: Engine, origin: Path) -> None:
    """The form posts this to its own server, with its own token against forged requests."""
    server = await find_server(engine.home)
    assert server is not None
    sent = json.loads(snippet("web")) | {"repository": str(origin)}
    payload = {
        "metadata": {"encoding": base64.b64encode(b"json/plain").decode()},
        "data": base64.b64encode(json.dumps(sent).encode()).decode(),
    }
    body = {"workflowType": {"name": "Delivery"}, "taskQueue": {"name": "perdure"}, "input": {"payloads": [payload]}}
    url = f"{server.ui_url}/api/v1/namespaces/{server.namespace}/workflows/from-the-web"
    with urllib.request.urlopen(f"{server.ui_url}/api/v1/settings", timeout=10) as settings:
        cookie = settings.headers.get("Set-Cookie", "").partition(";")[0]
    headers = {"Content-Type": "application/json", "Cookie": cookie, "X-CSRF-TOKEN": cookie.partition("=")[2]}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")

    def accepted() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return bool(json.load(answer)["runId"])
        except urllib.error.HTTPError as error:
            if error.code != 503:  # the UI dials its server again a second after it was not there yet
                raise
            return False

    await until(accepted, timeout=30, every=0.5)
    await until(lambda: pulls(origin), timeout=90)
    assert len(pulls(origin)) == 1


def pulls_url(origin: Path) -> str:
    assert len(pulls(origin)) == 1
    return f"{origin}#pull/1"
