"""The attack list of the page, over real HTTP: none of it gets anywhere."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import pytest
from visitors import Visitor, shut_page, visiting

from perdure.adapters.system.home import Home
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.models.errors import BadInput


async def test_without_a_token_nothing_is_shown_and_one_line_says_how_to_open_the_page(tmp_path: Path) -> None:
    async with shut_page(tmp_path) as page, visiting(page, enters=False) as stranger:
        for path in ("/", "/static/page.css", "/live/inbox", "/deliveries/x", "/?token=", "/?token=" + "0" * 64):
            status, text = await stranger.get(path)
            assert status == 401
            assert "perdure page" in text
            assert len(text.splitlines()) == 1
        status, _ = await stranger.post("/deliveries/x/decide/approve", {"of": "1"})
        assert status == 401


async def test_the_token_lies_in_a_file_of_its_owner_and_is_never_in_a_page(tmp_path: Path) -> None:
    async with shut_page(tmp_path) as page, visiting(page) as visitor:
        kept = tmp_path / "home" / "page.token"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert kept.read_text() == page.token
        assert len(page.token) == 64
        _, text = await visitor.get("/no-such-page")
        assert page.token not in text


async def test_a_cookie_of_another_home_opens_nothing(tmp_path: Path) -> None:
    async with (
        shut_page(tmp_path / "mine") as mine,
        shut_page(tmp_path / "theirs", ListenAddress(port=18300)) as theirs,
        visiting(theirs) as guest,
    ):
        stranger = Visitor(guest.session, mine)  # a browser sends cookies to every port
        assert (await stranger.get("/static/page.css"))[0] == 401
        (cookie,) = guest.session.cookie_jar
        renamed = f"{cookie_name(mine.token)}={cookie.value}"
        assert (await stranger.get("/static/page.css", {"Cookie": renamed}))[0] == 401
        assert (await stranger.get(f"/?token={theirs.token}"))[0] == 401


async def test_a_form_without_its_field_or_with_another_sessions_is_refused(tmp_path: Path) -> None:
    async with shut_page(tmp_path) as page, visiting(page) as ada, visiting(page) as eve:
        assert ada.csrf
        assert ada.csrf != eve.csrf
        for field in ("", eve.csrf, "0" * 64, ada.csrf[:-1], "ü"):
            status, text = await ada.post("/no-such-page", {}, csrf=field)
            assert (status, "was not sent by this page" in text) == (403, True), field
        assert (await ada.post("/no-such-page", {}))[0] == 404, "let in, and there is no such page"
        async with ada.session.put(page.url + "/no-such-page") as answer:
            assert answer.status == 405


@pytest.mark.parametrize("typed", ["inf", "-inf", "nan", "1e999", "much"])
@pytest.mark.parametrize("field", ["usd", "tokens"])
async def test_an_amount_that_is_no_number_is_refused_in_words(tmp_path: Path, field: str, typed: str) -> None:
    async with shut_page(tmp_path) as page, visiting(page) as visitor:
        status, text = await visitor.post("/deliveries/x/decide/add_budget", {"of": "1", field: typed})
        assert (status, "is no number" in text) == (400, True), text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost:8233"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_form_from_another_site_is_refused_even_with_its_field(tmp_path: Path, headers: dict[str, str]) -> None:
    async with shut_page(tmp_path) as page, visiting(page) as visitor:
        assert (await visitor.post("/no-such-page", {}, headers))[0] == 403
        assert (await visitor.post("/no-such-page", {}, {"Origin": page.url}))[0] == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1", "", "0.0.0.0:{port}"]
)
async def test_a_name_made_to_mean_this_machine_is_refused(tmp_path: Path, host: str) -> None:
    async with shut_page(tmp_path) as page, visiting(page) as visitor:
        port = page.url.rpartition(":")[2]
        status, text = await visitor.get("/static/page.css", {"Host": host.format(port=port)})
        assert (status, "not called by that name" in text) == (403, True)
        status, _ = await visitor.get(f"/?token={page.token}", {"Host": host.format(port=port)})
        assert status == 403
        assert (await visitor.get("/static/page.css", {"Host": f"LocalHost:{port}"}))[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e%2f%2e%2e%2fkey",
        "/static/..%5c..%5ckey",
        "/static/LICENSE.htmx",
        "/static/%00page.css",
        "//evil.example/%2e%2e",
    ],
)
async def test_no_path_leads_out_of_what_the_page_is_made_of(tmp_path: Path, path: str) -> None:
    async with shut_page(tmp_path) as page, visiting(page) as visitor:
        reader = socket.create_connection(("127.0.0.1", int(page.url.rpartition(":")[2])), timeout=60)
        (cookie,) = visitor.session.cookie_jar
        with reader:  # a client would tidy the path up
            head = f"GET {path} HTTP/1.1\r\nHost: {page.url[7:]}\r\nCookie: {cookie.key}={cookie.value}\r\n"
            await asyncio.get_running_loop().sock_sendall(_open(reader), f"{head}Connection: close\r\n\r\n".encode())
            answer = await asyncio.get_running_loop().sock_recv(reader, 65536)
        assert answer.split(b" ")[1] in (b"404", b"400"), answer[:200]


async def test_every_answer_forbids_scripts_of_others_frames_and_keeping(tmp_path: Path) -> None:
    async with shut_page(tmp_path) as page, visiting(page) as visitor:
        for path in ("/static/page.js", "/no-such-page", "/?token=wrong"):
            async with visitor.session.get(page.url + path) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert "Server" not in answer.headers
        (cookie,) = visitor.session.cookie_jar
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")


async def test_a_link_from_another_site_is_asked_for_once_more_by_a_page_of_ours(tmp_path: Path) -> None:
    async with shut_page(tmp_path) as page, visiting(page, enters=False) as visitor:
        status, text = await visitor.get('/deliveries/x"><b>', {"Sec-Fetch-Site": "cross-site"})
        assert status == 200
        assert 'content="0; url=/deliveries/x&quot;&gt;&lt;b&gt;"' in text
        assert (await visitor.get("/deliveries/x", {"Sec-Fetch-Site": "same-origin"}))[0] == 401


async def test_a_proxy_names_the_person_and_without_a_name_nobody_enters(tmp_path: Path) -> None:
    place = ListenAddress(port=18240, names=("perdure.example",), user_header="X-Person")
    async with shut_page(tmp_path, place) as page, visiting(page, enters=False) as visitor:
        assert (page.token, page.url) == ("", "https://perdure.example")
        visitor.page = type(page)(f"http://127.0.0.1:{place.port}", "")
        as_proxy = {"Host": "perdure.example", "X-Person": "ada"}
        status, text = await visitor.get("/no-such-page", as_proxy)
        assert (status, ">ada<" in text) == (404, True)
        assert (await visitor.get("/no-such-page", {"Host": "perdure.example"}))[0] == 401
        assert (await visitor.get("/no-such-page", {**as_proxy, "X-Person": " "}))[0] == 401
        assert (await visitor.get("/no-such-page", {**as_proxy, "Host": "evil.example"}))[0] == 403


async def test_beyond_this_machine_a_page_is_refused_without_tls_and_where_a_header_would_name_people(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadInput, match="readable on its way") as refused:
        async with shut_page(tmp_path, ListenAddress(host="0.0.0.0")):
            pass
    assert "--tls-cert" in refused.value.fix
    with pytest.raises(BadInput, match="could say in that header who they are"):
        ListenAddress(host="0.0.0.0", user_header="X-Person").make_ssl_context()
    with pytest.raises(BadInput, match="a certificate needs its key"):
        ListenAddress(certificate=tmp_path / "none.pem").make_ssl_context()
    with pytest.raises(BadInput, match="the certificate cannot be used"):
        ListenAddress(certificate=tmp_path / "none.pem", key=tmp_path / "none.key").make_ssl_context()


async def test_a_taken_port_is_left_to_its_owner_and_the_next_is_said(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        async with shut_page(tmp_path, ListenAddress(port=port)) as page:
            assert page.occupied_port == port
            assert int(page.url.rpartition(":")[2]) > port


async def test_two_pages_of_one_home_share_the_token(tmp_path: Path) -> None:
    async with shut_page(tmp_path) as one, shut_page(tmp_path) as other, visiting(one) as visitor:
        assert one.url != other.url
        assert (await Visitor(visitor.session, other).get("/static/page.css"))[0] == 200
    assert ensure_page_token(Home(tmp_path / "home")) == one.token


def cookie_name(token: str) -> str:
    from hashlib import sha256

    return f"perdure-{sha256(token.encode()).hexdigest()[:8]}"


def _open(one: socket.socket) -> socket.socket:
    one.setblocking(False)
    return one


async def test_words_of_a_form_whose_session_has_ended_are_in_the_answer(tmp_path: Path) -> None:
    async with shut_page(tmp_path) as page, visiting(page) as ada:
        form = {"text": "mind <b>the</b> sign", "note": "and why", "once": "1"}
        status, text = await ada.post("/deliveries/x/say", form, csrf="0" * 64)
        assert (status, text.endswith("which were not sent:\n\nmind <b>the</b> sign\n\nand why\n")) == (403, True), text
        ada.session.cookie_jar.clear()
        status, text = await ada.post("/deliveries/x/decide/reject", {"note": "too long"})
        assert (status, text.endswith("which were not sent:\n\ntoo long\n"), page.token in text) == (401, True, False)
        status, text = await ada.post("/deliveries/x/hold", {"text": " "})
        assert (status, "your words" in text.lower()) == (401, False)
        unreadable = {"Content-Type": "application/x-www-form-urlencoded; charset=nothing"}
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://elsewhere.test"}, unreadable):
            async with ada.session.post(f"{page.url}/deliveries/x/say", data="text=x", headers=headers) as answer:
                assert (answer.status, "x\n" in await answer.text()) == (401, False), headers
