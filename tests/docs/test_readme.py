"""README and plain starts keep what they say: their snippets run, their links lead somewhere."""

from __future__ import annotations

import base64
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from perdure.local.server import find_server
from perdure.models.delivery.request import parse_request
from tests.engine import HAPPY, Engine, make_target, pulls, until

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


def test_the_request_in_the_readme_is_a_request() -> None:
    written = re.search(r"{.*}", snippet("request"), re.DOTALL)
    assert written
    request = parse_request(json.loads(written[0]))
    assert request.budget_usd == 5.0
    assert request.phases is not None
    assert len(request.phases) == 3
    parse_request(json.loads(snippet("web")))


def test_the_page_about_submitting_is_two_printed_pages_beside_its_code() -> None:
    page = (ROOT / "docs/submitting.md").read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|<!--.*?-->|\]\([^)]*\)", "", page, flags=re.DOTALL)
    assert len(prose.split()) <= 1100


@pytest.mark.parametrize("file", ["README.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))])
def test_every_link_leads_to_a_file(file: str) -> None:
    path = ROOT / file
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


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
