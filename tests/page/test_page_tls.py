"""The page over TLS and behind a real proxy, in a real browser: entered, decided on, live, and nobody is named by the
browser itself."""

from __future__ import annotations

import asyncio
import base64
import datetime
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import aiohttp
import pytest
from browsing import chromium, looking, open_review, question
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from playwright.async_api import Page as Browsed
from playwright.async_api import expect
from temporalio.client import Client
from visitors import PLAN, stands_waiting

from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.page.server import serve_page
from tests import needs
from tests.page.test_page_browsed import client_of
from tests.temporal_server import joined
from tests.waiting import patient

pytestmark = pytest.mark.timeout(240)

NAME = "perdure.localhost"
"""Browsers resolve it to this machine by themselves."""

GUIDE = (Path(__file__).parents[2] / "docs" / "page.md").read_text(encoding="utf-8")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of its own for NAME and 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "page.pem", tmp_path / "page.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    return files


async def decides_and_sees_what_comes(page: Browsed, client: Client) -> None:
    await expect(question(page, "first")).to_be_visible()
    await stands_waiting(client, "second", PLAN)
    await expect(question(page, "second")).to_be_visible()  # not asked for: it came
    await (await open_review(page, "first")).get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("status").filter(has_text="first: recorded, not yet read")).to_be_visible()
    (cookie,) = [one for one in await page.context.cookies() if one.get("name", "").startswith("perdure-")]
    assert (cookie.get("secure"), cookie.get("httpOnly")) == (True, True)


async def test_over_tls_the_token_opens_the_page_and_the_cookie_is_for_https_alone(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    home = Home(tmp_path / "home")
    place = ListenAddress(port=19200, certificate=certificate[0], key=certificate[1])
    async with chromium() as browser, joined(home):
        client = await client_of(home)
        await stands_waiting(client, "first", PLAN)
        async with serve_page(Perdure(client), ensure_page_token(home), place) as page:
            assert page.url.startswith("https://127.0.0.1:")
            async with looking(browser, page, ignore_https_errors=True) as ada:
                await decides_and_sees_what_comes(ada, client)
            async with aiohttp.ClientSession() as plain:
                with pytest.raises(aiohttp.ClientError):  # nothing is said without TLS
                    await plain.get(page.url.replace("https", "http"))


async def test_behind_the_proxy_of_the_guide_people_are_who_the_proxy_says_whatever_their_browser_sends(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    needs.require("nginx")
    home = Home(tmp_path / "home")
    place = ListenAddress(port=19260, names=(NAME,), user_header="X-Person")
    async with chromium() as browser, joined(home):
        client = await client_of(home)
        await stands_waiting(client, "first", PLAN)
        async with (
            serve_page(Perdure(client), ensure_page_token(home), place) as page,
            nginx(tmp_path, certificate) as port,
        ):
            behind = replace(page, url=f"https://{NAME}:{port}")
            known = {"username": "ada", "password": "open sesame"}
            lies = {"X-Person": "the owner", "X-Forwarded-Proto": "http"}
            async with looking(
                browser, behind, ignore_https_errors=True, http_credentials=known, extra_http_headers=lies
            ) as ada:
                await expect(ada.get_by_text("ada", exact=True)).to_be_visible()
                await expect(ada.get_by_text("the owner")).to_have_count(0)
                await decides_and_sees_what_comes(ada, client)
            sent = [event async for event in client.get_workflow_handle("first").fetch_history_events()]
            (decided,) = [one.workflow_execution_signaled_event_attributes for one in sent if one.event_type == 26]
            assert b'"by":"ada"' in decided.input.payloads[0].data.replace(b" ", b"")
            async with aiohttp.ClientSession(headers={**lies, "Host": f"{NAME}:{port}"}) as stranger:
                answer = await stranger.get(f"https://127.0.0.1:{port}", ssl=False)
                assert answer.status == 401


@asynccontextmanager
async def nginx(root: Path, certificate: tuple[Path, Path]) -> AsyncIterator[int]:
    """The guide's server, as whoever runs this test: its port."""
    found = re.search(r"<!-- tested: nginx -->\n```nginx\n(.*?)```", GUIDE, re.DOTALL)
    assert found, "docs/page.md has no example nginx"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hashed = base64.b64encode(sha1(b"open sesame").digest()).decode()
    (root / "users").write_text(f"ada:{{SHA}}{hashed}\n")
    server = found[1]
    for there, here in {
        "443 ssl": f"127.0.0.1:{port} ssl",
        "perdure.example": NAME,
        "/etc/ssl/perdure.pem": str(certificate[0]),
        "/etc/ssl/perdure.key": str(certificate[1]),
        "/etc/nginx/perdure.users": str(root / "users"),
        "127.0.0.1:8240": "127.0.0.1:19260",
    }.items():
        assert there in server, there
        server = server.replace(there, here)
    kept = "".join(
        f"{name}_temp_path {root}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = f"daemon off;\nmaster_process off;\npid {root}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
    (root / "nginx.conf").write_text(f"{text}http {{\naccess_log off;\n{kept}{server}\n}}\n")
    program = needs.find_program("nginx")
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        program, "-p", str(root), "-c", str(root / "nginx.conf"), "-e", "stderr", stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(patient(30)):
            while True:
                assert process.returncode is None, (await process.communicate())[1]
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()
