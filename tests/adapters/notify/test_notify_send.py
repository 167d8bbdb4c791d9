"""Whom a host tells, and one try to tell one address: which answers count, and nothing but its host is shown."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest

from perdure.adapters.notify.addresses import Address, Listeners, parse_secret, webhook_headers
from perdure.adapters.notify.webhook import NOTIFY_RETRY_AFTER_S, parse_retry_after, post_notice
from perdure.adapters.repository.config import load_repository_config
from perdure.adapters.repository.host import load_host_config
from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.models.config.host import NotifySettings
from perdure.models.errors import BadInput, NoticeRefused, NoticeUnheard
from tests.receiver import SECRET, Receiver, genuine
from tests.waiting import patient

PATH = "/services/T0/B0/this-part-is-a-secret"
KEYS = (parse_secret(SECRET, "x"),)


def address(receiver: Receiver) -> Address:
    return Address(receiver.url.removeprefix("http://"), receiver.url + PATH)


async def test_what_is_sent_is_signed_as_the_specification_says_and_its_body_arrives_byte_by_byte() -> None:
    async with Receiver.open() as receiver:
        status = await post_notice(address(receiver), "notice-1", '{"text": "ä"}'.encode(), KEYS)
    (told,) = receiver.told
    assert (status, told.path, told.id) == (204, PATH, "notice-1")
    assert told.body == '{"text": "ä"}'.encode()
    assert told.headers["content-type"] == "application/json"
    assert genuine(told)
    assert abs(int(told.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 300


def test_a_signature_is_the_one_of_the_specification() -> None:
    key = parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "x")
    made = webhook_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', [key])
    assert made["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_while_a_secret_is_replaced_both_sign_and_without_one_nothing_pretends_to() -> None:
    old = "whsec_" + "b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQ="
    async with Receiver.open() as receiver:
        await post_notice(address(receiver), "n", b"{}", (*KEYS, parse_secret(old, "x")))
        await post_notice(address(receiver), "n", b"{}", ())
    assert genuine(receiver.told[0])
    assert genuine(receiver.told[0], old)
    assert "webhook-signature" not in receiver.told[1].headers


@pytest.mark.parametrize(
    ("status", "asked", "pause"),
    [(503, "7", 7.0), (500, "", None), (429, "99999", NOTIFY_RETRY_AFTER_S), (408, "0", 1.0)],
)
async def test_an_answer_that_may_change_is_worth_another_try_after_the_pause_it_asks_for(
    status: int, asked: str, pause: float | None
) -> None:
    async with Receiver.open() as receiver:
        receiver.answers = [(status, {"retry-after": asked} if asked else {})]
        with pytest.raises(NoticeUnheard, match=f"^127.0.0.1:\\d+ answered {status}$") as unheard:
            await post_notice(address(receiver), "n", b"{}", KEYS)
    assert unheard.value.retry_after == pause


@asynccontextmanager
async def raw(answer: bytes, *, stays: bool = False, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    """Somebody who answers these bytes whatever is asked, and then hangs up, or does not."""
    over = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(65536)
            writer.write(answer)
            await writer.drain()
            if stays:
                await over.wait()
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Address(f"127.0.0.1:{port}", f"http{'s' if tls else ''}://127.0.0.1:{port}{PATH}")
    finally:
        over.set()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("answer", "stays"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", True),  # hangs after its headers
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", False),  # hangs up in its body
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + bytes(1_000_000), True),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", False),
    ],
)
async def test_what_follows_the_headers_is_not_waited_for(answer: bytes, stays: bool) -> None:
    async with asyncio.timeout(patient(10)), raw(answer, stays=stays) as address:
        assert await post_notice(address, "n", b"{}", KEYS) == 200


@pytest.mark.parametrize(
    "answer",
    [b"", b"hello", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000 + b"\r\n\r\n", b"HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n"],
)
async def test_what_is_no_answer_is_worth_another_try(answer: bytes) -> None:
    async with raw(answer) as address:
        with pytest.raises(NoticeUnheard, match=f"^{address.name} did not answer$"):
            await post_notice(address, "n", b"{}", KEYS)


async def test_a_certificate_nobody_vouches_for_is_refused_until_the_host_trusts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *files], cwd=tmp_path, check=True, capture_output=True, timeout=30)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    async with raw(b"HTTP/1.1 204 OK\r\n\r\n", tls=tls) as address:
        with pytest.raises(NoticeUnheard, match="its certificate or its TLS is not accepted"):
            await post_notice(address, "n", b"{}", KEYS)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert await post_notice(address, "n", b"{}", KEYS) == 204
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
        with pytest.raises(NoticeUnheard, match="SSL_CERT_FILE"):
            await post_notice(address, "n", b"{}", KEYS)


@pytest.mark.parametrize("proxy", ["socks5://u:pass-secret@h:1", "ftp://u:pass-secret@h", "http://u:pass-secret@h:x"])
async def test_a_proxy_that_is_none_is_named_by_its_variable_alone(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(NoticeUnheard, match="HTTP_PROXY") as error:
        await post_notice(Address("h", "http://h.invalid/"), "n", b"{}", KEYS)
    assert "secret" not in str(error.value)


async def test_a_password_in_an_address_is_sent_as_one() -> None:
    async with Receiver.open() as receiver:
        await post_notice(Address("h", receiver.url.replace("//", "//me:p%40ss@") + PATH), "n", b"{}", KEYS)
    assert receiver.told[0].headers["authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_not_tried_again(status: int) -> None:
    async with Receiver.open() as elsewhere, Receiver.open() as receiver:
        receiver.answers = [(status, {"location": elsewhere.url})]
        with pytest.raises(NoticeRefused, match=f"answered {status}: it sends elsewhere"):
            await post_notice(address(receiver), "n", b"{}", KEYS)
    assert len(receiver.told) == 1
    assert elsewhere.told == []


@pytest.mark.parametrize(("status", "words"), [(400, ""), (403, ""), (404, ""), (410, "nobody listens there any more")])
async def test_a_no_is_not_tried_again(status: int, words: str) -> None:
    async with Receiver.open() as receiver:
        receiver.answers = [(status, {})]
        with pytest.raises(NoticeRefused, match=f"answered {status}.*{words}"):
            await post_notice(address(receiver), "n", b"{}", KEYS)


async def test_one_who_does_not_answer_costs_no_more_than_the_time_for_a_try() -> None:
    async with Receiver.open() as receiver:
        receiver.answers = [(0, {})]
        with pytest.raises(NoticeUnheard, match=r"did not answer within 1 s"):
            await post_notice(address(receiver), "n", b"{}", KEYS, timeout_s=1)


async def test_nobody_there_is_told_from_no_such_host() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        port = taken.getsockname()[1]
        with pytest.raises(NoticeUnheard, match="could not be reached: nobody listens there"):
            await post_notice(Address(f"127.0.0.1:{port}", f"http://127.0.0.1:{port}{PATH}"), "n", b"{}", KEYS)
    with pytest.raises(NoticeUnheard, match=r"nowhere\.invalid could not be reached"):
        await post_notice(Address("nowhere.invalid", f"https://nowhere.invalid{PATH}"), "n", b"{}", KEYS)


async def test_the_path_of_an_address_is_in_no_log_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with Receiver.open() as receiver:
        receiver.answers = [(200, {}), (503, {}), (404, {})]
        await post_notice(address(receiver), "n", b"{}", KEYS)
        for kind in (NoticeUnheard, NoticeRefused):
            with pytest.raises(kind) as error:
                await post_notice(address(receiver), "n", b"{}", KEYS)
            assert "secret" not in str(error.value)
    assert len(receiver.told) == 3
    assert "this-part-is-a-secret" not in caplog.text
    assert "this-part-is-a-secret" not in repr(address(receiver))


async def test_what_others_send_over_the_same_library_is_logged_as_before(caplog: pytest.LogCaptureFixture) -> None:
    import httpx2

    caplog.set_level(logging.INFO)
    async with Receiver.open() as receiver:
        await post_notice(address(receiver), "n", b"{}", KEYS)
        async with httpx2.AsyncClient() as client:
            await client.get(receiver.url + "/other")
    assert "/other" in caplog.text


def test_a_pause_may_be_a_date() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert parse_retry_after(format_datetime(datetime(2026, 1, 1, 0, 1, tzinfo=UTC), usegmt=True), now) == 60
    assert parse_retry_after("Wed, 31 Dec 2025 23:00:00 GMT", now) == 1, "it is over"
    hopeless = ("", "soon", "nan", "inf", "1e400", "Thu, 01 Jan 99999 00:00:00 GMT", "Thu, 01 Jan 2026 00:00:00 -0000")
    assert [parse_retry_after(text, now) for text in hopeless] == [None] * 7


def test_a_pause_is_never_below_what_the_tries_before_have_earned() -> None:
    assert [parse_retry_after(text, min_pause_s=64.0) for text in ("0", "1", "65", "")] == [64, 64, 65, None]


def test_a_secret_that_cannot_be_one_is_refused_and_not_shown() -> None:
    for secret in ("whsec_not base64!", "whsec_c2hvcnQ=", "short"):
        with pytest.raises(BadInput) as error:
            parse_secret(secret, "PERDURE_WEBHOOK_SECRET")
        assert secret not in str(error.value)
    assert parse_secret("sixteen bytes ok", "x") == b"sixteen bytes ok"


SLACK = "https://hooks.slack.com/services/T0/B0/secret-part"


def listeners(**env: str) -> Listeners:
    return Listeners.from_settings(NotifySettings(), env)


def test_addresses_are_named_by_their_hosts_the_second_of_one_host_by_a_number() -> None:
    settings = NotifySettings.model_validate({"url": [SLACK, "http://10.0.0.7:8065/hooks/x", SLACK + "2"]})
    found = Listeners.from_settings(settings, {})
    assert [address.name for address in found.addresses] == [
        "hooks.slack.com",
        "10.0.0.7:8065",
        "hooks.slack.com (2)",
    ]
    assert found.names_for("ended") == tuple(address.name for address in found.addresses)
    assert "secret-part" not in repr(found) + repr(settings) + settings.model_dump_json()


def test_the_variables_stand_for_the_file_and_are_gone_from_the_environment() -> None:
    env = {"PERDURE_WEBHOOK_URL": f"{SLACK} https://b.example/", "PERDURE_WEBHOOK_SECRET": SECRET, "PATH": "/bin"}
    found = Listeners.from_environment(NotifySettings.model_validate({"url": "https://a.example/"}), env)
    assert found.names_for("waiting") == ("hooks.slack.com", "b.example")
    assert env == {"PATH": "/bin"}
    assert {SLACK, SECRET} <= set(found.secrets)


def test_a_worker_keeps_them_out_of_its_environment_and_out_of_what_tools_print(tmp_path: Path) -> None:
    env = {"PERDURE_WEBHOOK_URL": SLACK, "PERDURE_WEBHOOK_SECRET": SECRET}
    host = Host.from_environment(Home(tmp_path), env)
    assert env == {}
    said = str(host.redact_blocks([{"type": "text", "text": f"{SLACK} {SECRET}"}]))
    assert "secret-part" not in said
    assert SECRET not in said
    host.inflight.close()


def test_who_is_named_twice_is_told_once_and_an_address_of_another_form_is_named_by_its_host() -> None:
    found = listeners(PERDURE_WEBHOOK_URL=f"{SLACK} http://[::1]:80/x {SLACK} https://me:pass-secret@b.example/x")
    assert found.names_for("ended") == ("hooks.slack.com", "[::1]:80", "b.example")
    assert "secret" not in repr(found)


def test_an_empty_secret_signs_nothing_and_several_of_both_may_stand_on_lines() -> None:
    assert listeners(PERDURE_WEBHOOK_URL=SLACK, PERDURE_WEBHOOK_SECRET=" ").keys == ()
    found = listeners(
        PERDURE_WEBHOOK_URL=f"{SLACK}\nhttps://b.example/\n", PERDURE_WEBHOOK_SECRET=f"{SECRET}\n{SECRET}"
    )
    assert (len(found.addresses), len(found.keys)) == (2, 2)


def test_only_events_that_are_wanted_are_told_and_a_test_always() -> None:
    found = Listeners.from_settings(NotifySettings.model_validate({"url": SLACK, "events": ["question", "ended"]}), {})
    assert [bool(found.names_for(event)) for event in ("question", "ended", "waiting", "budget")] == [
        True,
        True,
        False,
        False,
    ]
    assert found.names_for("test")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/x-secret",
        "hooks/x-secret",
        "http://",
        "http://h:port/x-secret",
        "https://a'b/x-secret",
        "http://[::1/x-secret",
    ],
)
def test_what_is_no_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(BadInput, match="this is not an") as error:
        listeners(PERDURE_WEBHOOK_URL=f"https://fine.example {url}")
    assert "secret" not in str(error.value)
    assert "PERDURE_WEBHOOK_URL, address 2" in str(error.value)


def test_a_line_break_in_an_address_of_the_file_is_refused() -> None:
    with pytest.raises(BadInput, match="this is not an") as error:
        Listeners.from_settings(NotifySettings.model_validate({"url": "https://h.example/x-secret\nx: y"}), {})
    assert "secret" not in str(error.value)


def test_more_addresses_than_are_told_are_refused() -> None:
    with pytest.raises(BadInput, match="at most 10"):
        listeners(PERDURE_WEBHOOK_URL=" ".join([SLACK] * 11))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[notify]\nurl = 5", "one address in quotes"),
        ('[notify]\nurl = ["https://h/x-secret", 5]', "one address in quotes"),
        ('[notify]\nevents = ["end"]', "ended"),
        ('[notify]\nurls = "https://h/x-secret"', "did you mean url"),
    ],
)
def test_a_wrong_file_is_refused_by_line_without_the_address(
    text: str, words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("c") / "config.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=words) as error:
        load_host_config({}, file)
    assert "config.toml:2" in str(error.value)
    assert "secret" not in str(error.value)


def test_a_repository_cannot_name_who_is_told() -> None:
    with pytest.raises(BadInput, match="unknown key notify"):
        load_repository_config('version = 1\n[notify]\nurl = "https://h/x"', "perdure.toml")
