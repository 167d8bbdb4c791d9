"""Certificates and proxies of the environment, as the model's client takes them: a mistake in them is told before
anything is asked, and a model on this host is asked directly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.agents.builtin.model import Model, ModelRequest
from perdure.adapters.agents.proxied.base import ProxiedRequest
from perdure.adapters.agents.proxied.upstream import Upstream, UpstreamClient
from perdure.adapters.agents.proxied.wires import WIRES
from perdure.adapters.system.http_client import client_options, proxy_note
from perdure.cli.host.doctor import MISSING, OK, _run_check, check_key
from perdure.models.errors import BadInput, ModelRefusesUs, ModelUnavailable
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal

QUESTION = ModelRequest(
    model="claude-sonnet-5-5",
    max_tokens=100,
    effort="low",
    system="Step: implement\n\nWork.",
    tools=(),
    messages=({"role": "user", "content": [{"type": "text", "text": "hello"}]},),
    schema=None,
)


def with_builtin(url: str) -> Callable[[Callable[[], None]], Awaitable[Any]]:
    model = Model("key", url)

    async def ask(begun: Callable[[], None]) -> Any:
        try:
            return await model.ask(QUESTION, on_first_event=begun, on_text=lambda _: None)
        finally:
            await model.aclose()

    return ask


def with_proxied(url: str) -> Callable[[Callable[[], None]], Awaitable[Any]]:
    name, wire = next(iter(WIRES.items()))
    client = UpstreamClient(Upstream(name, url, "key", "ANTHROPIC_API_KEY", "x-api-key"), wire)

    async def ask(begun: Callable[[], None]) -> Any:
        request = ProxiedRequest(name, "/v1/messages", "m", {}, "key", 1.0, 1, [])
        try:
            return await client.fetch_reply(request, {}, begun)
        finally:
            await client.aclose()

    return ask


@pytest.mark.parametrize("client", [with_builtin, with_proxied])
@pytest.mark.parametrize(
    ("variable", "value", "what"),
    [
        ("SSL_CERT_FILE", "/nowhere/company.pem", "SSL_CERT_FILE cannot be used: No such file"),
        ("SSL_CERT_FILE", __file__, "SSL_CERT_FILE cannot be used: no certificates"),
        ("SSL_CERT_DIR", "/nowhere", "SSL_CERT_DIR cannot be used: No such file"),
        ("https_proxy", "ftp://me:secret@proxy", "https_proxy: this is no HTTP proxy"),
    ],
)
async def test_what_the_environment_names_wrongly_is_told_and_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, client: Any, variable: str, value: str, what: str
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    begun: list[str] = []
    with pytest.raises(ModelRefusesUs) as error:
        await client("https://127.0.0.1:9")(lambda: begun.append("begun"))
    assert what in error.value.what
    assert variable in error.value.where
    assert "secret" not in str(error.value)
    assert "billed" not in str(error.value)
    assert begun == []
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    (line,) = await asyncio.to_thread(_run_check, check_key)
    assert (line.mark, what in line.text) == (MISSING, True)


async def test_a_model_on_this_host_is_asked_directly_and_another_one_by_the_proxy_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://me:secret@127.0.0.1:9")
    async with Rehearsal(Screenplay.parse('[[line]]\nsay = "hello"\n')) as rehearsal:
        reply = await with_builtin(rehearsal.url)(lambda: None)
        assert reply.message["content"][0]["text"] == "hello"
    with pytest.raises(ModelUnavailable) as error:
        await with_builtin("http://models.example.com")(lambda: None)
    assert error.value.where == "http://models.example.com through the proxy 127.0.0.1:9 (http_proxy)"
    monkeypatch.setenv("no_proxy", "example.com")
    assert proxy_note("http://models.example.com") == ""
    assert proxy_note("http://[::1]:80") == proxy_note("http://localhost") == ""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://models.example.org")
    (line,) = check_key()
    assert (line.mark, line.text.partition(" set ")[2]) == (OK, "through the proxy 127.0.0.1:9 (http_proxy)")


def test_certificates_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert client_options("https://example.com")["verify"]
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path))
    with pytest.raises(BadInput, match="SSL_CERT_FILE cannot be used"):
        client_options("https://example.com")
