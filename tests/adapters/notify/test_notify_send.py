"""One try to tell one address: which answers count, which are tried again, and that the address is shown nowhere."""

from __future__ import annotations

import logging
import socket
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from perdure.adapters.notify.addresses import Address
from perdure.adapters.notify.send import retry_after, send
from perdure.adapters.notify.sign import headers, key_of
from perdure.models.errors import BadInput, NoticeRefused, NoticeUnheard
from perdure.models.policy import NOTIFY_RETRY_AFTER_S
from tests.receiver import SECRET, Receiver, genuine

PATH = "/services/T0/B0/this-part-is-a-secret"
KEYS = (key_of(SECRET, "x"),)


def address(receiver: Receiver) -> Address:
    return Address(receiver.url.removeprefix("http://"), receiver.url + PATH)


async def test_what_is_sent_is_signed_as_the_specification_says_and_its_body_arrives_byte_by_byte() -> None:
    async with Receiver.open() as receiver:
        status = await send(address(receiver), "notice-1", '{"text": "ä"}'.encode(), KEYS)
    (told,) = receiver.told
    assert (status, told.path, told.id) == (204, PATH, "notice-1")
    assert told.body == '{"text": "ä"}'.encode()
    assert told.headers["content-type"] == "application/json"
    assert genuine(told)
    assert abs(int(told.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 300


def test_a_signature_is_the_one_of_the_specification() -> None:
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "x")
    made = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', [key])
    assert made["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_while_a_secret_is_replaced_both_sign_and_without_one_nothing_pretends_to() -> None:
    old = "whsec_" + "b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQ="
    async with Receiver.open() as receiver:
        await send(address(receiver), "n", b"{}", (*KEYS, key_of(old, "x")))
        await send(address(receiver), "n", b"{}", ())
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
            await send(address(receiver), "n", b"{}", KEYS)
    assert unheard.value.retry_after == pause


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_not_tried_again(status: int) -> None:
    async with Receiver.open() as elsewhere, Receiver.open() as receiver:
        receiver.answers = [(status, {"location": elsewhere.url})]
        with pytest.raises(NoticeRefused, match=f"answered {status}: it sends elsewhere"):
            await send(address(receiver), "n", b"{}", KEYS)
    assert len(receiver.told) == 1
    assert elsewhere.told == []


@pytest.mark.parametrize(("status", "words"), [(400, ""), (403, ""), (404, ""), (410, "nobody listens there any more")])
async def test_a_no_is_not_tried_again(status: int, words: str) -> None:
    async with Receiver.open() as receiver:
        receiver.answers = [(status, {})]
        with pytest.raises(NoticeRefused, match=f"answered {status}.*{words}"):
            await send(address(receiver), "n", b"{}", KEYS)


async def test_one_who_does_not_answer_costs_no_more_than_the_time_for_a_try() -> None:
    async with Receiver.open() as receiver:
        receiver.answers = [(0, {})]
        with pytest.raises(NoticeUnheard, match=r"did not answer within 1 s"):
            await send(address(receiver), "n", b"{}", KEYS, within=1)


async def test_nobody_there_is_told_from_no_such_host() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        port = taken.getsockname()[1]
        with pytest.raises(NoticeUnheard, match="could not be reached: nobody listens there"):
            await send(Address(f"127.0.0.1:{port}", f"http://127.0.0.1:{port}{PATH}"), "n", b"{}", KEYS)
    with pytest.raises(NoticeUnheard, match=r"nowhere\.invalid could not be reached"):
        await send(Address("nowhere.invalid", f"https://nowhere.invalid{PATH}"), "n", b"{}", KEYS)


async def test_the_path_of_an_address_is_in_no_log_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with Receiver.open() as receiver:
        receiver.answers = [(200, {}), (503, {}), (404, {})]
        await send(address(receiver), "n", b"{}", KEYS)
        for kind in (NoticeUnheard, NoticeRefused):
            with pytest.raises(kind) as error:
                await send(address(receiver), "n", b"{}", KEYS)
            assert "secret" not in str(error.value)
    assert len(receiver.told) == 3
    assert "this-part-is-a-secret" not in caplog.text
    assert "this-part-is-a-secret" not in repr(address(receiver))


async def test_what_others_send_over_the_same_library_is_logged_as_before(caplog: pytest.LogCaptureFixture) -> None:
    import httpx2

    caplog.set_level(logging.INFO)
    async with Receiver.open() as receiver:
        await send(address(receiver), "n", b"{}", KEYS)
        async with httpx2.AsyncClient() as client:
            await client.get(receiver.url + "/other")
    assert "/other" in caplog.text


def test_a_pause_may_be_a_date() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert retry_after(format_datetime(datetime(2026, 1, 1, 0, 1, tzinfo=UTC), usegmt=True), now) == 60
    assert [retry_after(text, now) for text in ("", "soon", "nan", "inf")] == [None] * 4


def test_a_secret_that_cannot_be_one_is_refused_and_not_shown() -> None:
    for secret in ("whsec_not base64!", "whsec_c2hvcnQ=", "short"):
        with pytest.raises(BadInput) as error:
            key_of(secret, "PERDURE_WEBHOOK_SECRET")
        assert secret not in str(error.value)
    assert key_of("sixteen bytes ok", "x") == b"sixteen bytes ok"
