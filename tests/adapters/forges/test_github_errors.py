"""Every failure at GitHub is either worth another try, and says when, or a person's to mend, and says how."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import quote

import pytest
from canned_github import Canned, canned

from perdure.adapters.forges.github import transport
from perdure.adapters.forges.github.account import AppAccount, TokenAccount
from perdure.adapters.forges.github.forge import GitHub
from perdure.adapters.forges.github.server import GitHubServer
from perdure.adapters.worker.attempt import _to_application_error
from perdure.models.errors import ForgeRefused, ForgeUnavailable

TOKEN = "ghp_0123456789abcdef"
REPO = "GET /api/v3/repos/me/calc"


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned() as laid_out:
        yield laid_out


def forge(server: Canned) -> GitHub:
    at = GitHubServer.parse(server.url)
    return GitHub(at, "me/calc", TokenAccount(at.api_url, TOKEN, "PERDURE_GITHUB_TOKEN"))


def refused(server: Canned, status: int, body: Any, **headers: str) -> ForgeRefused:
    server.put(REPO, status, body, **headers)
    with pytest.raises(ForgeRefused) as caught:
        forge(server).find_open_pull("x")
    assert TOKEN not in str(caught.value) + repr(caught.value.__cause__) + repr(caught.value.__context__ or "")
    return caught.value


def unavailable(server: Canned, status: int, body: Any, **headers: str) -> ForgeUnavailable:
    server.put(REPO, status, body, **headers)
    with pytest.raises(ForgeUnavailable) as caught:
        forge(server).find_open_pull("x")
    return caught.value


def test_a_token_that_is_not_accepted_names_its_variable(server: Canned) -> None:
    error = refused(server, 401, {"message": "Bad credentials"})
    assert "Bad credentials" in error.what
    assert error.where == "PERDURE_GITHUB_TOKEN"


@pytest.mark.parametrize("status", [401, 403, 422, 429])
def test_a_server_that_repeats_our_token_puts_it_into_no_error(server: Canned, status: int) -> None:
    basic, short = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode(), "a" * 290
    for text in (f"token {TOKEN}", f"Basic {basic}", f"{short}{TOKEN}", f"auth={quote(TOKEN + '/+')}"):
        for body in ({"message": text}, {"message": "x", "errors": [{"message": text}]}, text):
            server.put(REPO, status, body)
            with pytest.raises((ForgeRefused, ForgeUnavailable)) as caught:
                forge(server).find_open_pull("x")
            shown = str(caught.value) + str(_to_application_error(caught.value, 1))
            assert TOKEN[:12] not in shown
            assert basic[24:40] not in shown


@pytest.mark.parametrize(
    ("limit", "value", "error"),
    [("FORGE_READ_ANSWERS", 20, ForgeRefused), ("FORGE_READ_BYTES", 2_000, ForgeRefused),
     ("FORGE_READ_S", 0.0, ForgeUnavailable)],
)  # fmt: skip
def test_a_server_whose_pages_have_no_end_is_not_read_for_ever(
    server: Canned, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, error: type[Exception]
) -> None:
    monkeypatch.setattr(transport, limit, value)
    url = f"{server.url}/api/v3/repos/me/calc"
    server.put(REPO, 200, {"id": 1, "name": "calc", "full_name": "me/calc", "url": url, "owner": {"login": "me"}})
    pulls = [{"number": 1, "url": f"{url}/pulls/1", "head": {"ref": "other", "repo": None}}]
    server.put(f"{REPO}/pulls", 200, pulls, Link=f'<{url}/pulls?page=2>; rel="next"')
    with pytest.raises(error, match=r"has no end|did not end"):
        forge(server).find_open_pull("x")
    assert len(server.asked) <= 25
    server.put(f"{REPO}/pulls", 200, [])
    if limit != "FORGE_READ_S":
        assert forge(server).find_open_pull("x") is None  # each read has its own limits


def test_an_exhausted_budget_is_waited_for_by_the_servers_own_clock(server: Canned) -> None:
    wrong_clock = time.time() - 86_400
    headers = {"x_ratelimit_remaining": "0", "x_ratelimit_reset": str(int(wrong_clock) + 120)}
    for status in (403, 429):
        error = unavailable(
            server, status, {"message": "API rate limit exceeded"}, **headers, Date=formatdate(wrong_clock)
        )
        assert error.retry_after == pytest.approx(121, abs=1.1)
    headers["x_ratelimit_reset"] = str(int(wrong_clock) + 7200)
    assert unavailable(server, 403, {}, **headers, Date=formatdate(wrong_clock)).retry_after == 3600


def test_a_secondary_limit_is_waited_for_as_long_as_it_says_or_a_minute(server: Canned) -> None:
    said = {"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}
    assert unavailable(server, 403, said, retry_after="17").retry_after == 17
    assert unavailable(server, 429, said, retry_after="99999").retry_after == 3600
    assert unavailable(server, 403, said).retry_after == 60
    assert unavailable(server, 429, {"message": "too many"}).retry_after == 60


def test_single_sign_on_names_the_organisation_and_not_the_secret_address(server: Canned) -> None:
    error = refused(
        server,
        403,
        {"message": "Resource protected by organization SAML enforcement."},
        x_github_sso="required; url=https://github.com/orgs/acme/sso?authorization_request=AZSCKRETABC",
    )
    assert "acme" in error.what
    assert "SSO" in error.fix
    assert "AZSCKRETABC" not in str(error)


def test_a_missing_permission_is_named_as_the_settings_page_names_it(server: Canned) -> None:
    error = refused(
        server,
        403,
        {"message": "Resource not accessible by personal access token"},
        x_accepted_github_permissions="pull_requests=write; contents=write,issues=read",
    )
    assert error.fix == "give PERDURE_GITHUB_TOKEN Pull requests: write or Contents: write and Issues: read"


def test_a_missing_scope_is_named(server: Canned) -> None:
    error = refused(
        server, 403, {"message": "Must have rights"}, x_oauth_scopes="gist, read:org", x_accepted_oauth_scopes="repo"
    )
    assert "lacks the scope repo" in error.what
    hidden = refused(server, 404, {"message": "Not Found"}, x_oauth_scopes="gist")
    assert "lacks the scope repo" in hidden.what
    assert hidden.fix == "give PERDURE_GITHUB_TOKEN the scope repo"


def test_other_refusals_keep_githubs_own_words(server: Canned) -> None:
    assert "archived" in refused(server, 403, {"message": "Repository was archived so is read-only."}).what
    assert "no repository me/calc" in refused(server, 404, {"message": "Not Found"}).what
    body = {
        "message": "Validation Failed",
        "errors": [{"field": "head", "code": "invalid"}, {"message": "Too long"}, "x"],
    }
    assert "Validation Failed: head invalid; Too long; x" in refused(server, 422, body).what
    assert len(refused(server, 422, {"message": "\x1b[31m" + "y" * 5000}).what) < 400
    assert "\x1b" not in refused(server, 451, {"message": "\x1b[31mDMCA"}).what


def test_the_workflow_is_told_when_to_come_back() -> None:
    asked = _to_application_error(ForgeUnavailable("GitHub wants us to slow down", retry_after=17), 1).next_retry_delay
    assert asked is not None
    assert 17 <= asked.total_seconds() <= 18.7
    assert _to_application_error(ForgeUnavailable("GitHub cannot be reached"), 1).next_retry_delay is None


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_github_that_is_not_well_is_tried_again(server: Canned, status: int) -> None:
    error = unavailable(server, status, b"<html>Unicorn!</html>", retry_after="5")
    assert (error.retry_after, error.retryable) == (5, True)


@pytest.mark.parametrize("body", [b"<html>", b"[1", b"{", b"", b"null", b"[]", b'{"full_name": 7}', b"\xff\xfe"])
def test_an_answer_that_is_not_githubs_is_tried_again(server: Canned, body: bytes) -> None:
    assert "cannot be understood" in unavailable(server, 200, body).what


def test_nobody_there_is_tried_again() -> None:
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ForgeUnavailable, match="cannot be reached: Connection refused"):
            forge(Canned(url)).find_open_pull("x")


def test_a_redirect_to_another_server_gets_no_token(server: Canned) -> None:
    with canned() as elsewhere:
        other = elsewhere.url.replace("127.0.0.1", "localhost")
        error = refused(server, 301, {"message": "Moved"}, location=f"{other}/api/v3/repos/me/calc")
        assert "sends us to another" in error.what
        assert elsewhere.asked == []


def test_redirects_in_a_circle_end(server: Canned) -> None:
    for one, other in (("calc", "calc2"), ("calc2", "calc")):
        server.put(f"GET /api/v3/repos/me/{one}", 301, {}, location=f"{server.url}/api/v3/repos/me/{other}")
    with pytest.raises(ForgeRefused, match="more than once"):
        forge(server).find_open_pull("x")
    assert len(server.asked) == 2


def test_every_request_says_who_we_are_and_which_api_we_mean(server: Canned) -> None:
    refused(server, 404, {"message": "Not Found"})
    (_, _, headers) = server.asked[0]
    assert headers["authorization"] == f"token {TOKEN}"
    assert headers["user-agent"].startswith("perdure/")
    assert headers["x-github-api-version"] == "2022-11-28"


def test_a_list_that_comes_unfiltered_makes_nobodys_pull_request_ours(server: Canned) -> None:
    def pull(number: int, ref: str, repository: int | None) -> dict[str, Any]:
        repo = {"id": repository, "full_name": "x/calc"} if repository else None
        head = {"ref": ref, "sha": "0" * 40, "repo": repo}
        return {"number": number, "html_url": "u", "title": "t", "draft": False, "body": "", "head": head}

    owner = {"login": "me", "url": f"{server.url}/api/v3/users/me"}
    there = {"id": 1, "full_name": "me/calc", "owner": owner, "url": f"{server.url}/api/v3/repos/me/calc"}
    server.put(REPO, 200, there)
    others = [pull(1, "other", 1), pull(2, "mine", 2), pull(3, "mine", None)]
    server.put(f"{REPO}/pulls", 200, others)
    assert forge(server).find_open_pull("mine") is None
    server.put(f"{REPO}/pulls", 200, [*others, pull(5, "mine", 1), pull(4, "mine", 1)])
    found = forge(server).find_open_pull("mine")
    assert found is not None
    assert found.number == 4


def test_nothing_is_tried_twice_by_the_client_itself(server: Canned) -> None:
    unavailable(server, 502, {"message": "Bad Gateway"})
    assert len(server.asked) == 1


def test_an_apps_bad_key_is_named(server: Canned, tmp_path: Path) -> None:
    at = GitHubServer.parse(server.url)
    account = AppAccount(at.api_url, "7", "-----BEGIN RSA PRIVATE KEY-----\nnonsense\n-----END RSA PRIVATE KEY-----\n")
    with pytest.raises(ForgeRefused, match="private key") as caught:
        GitHub(at, "me/calc", account).find_open_pull("x")
    assert caught.value.where == "PERDURE_GITHUB_APP_KEY"
    assert "nonsense" not in str(caught.value)


def test_a_build_servers_token_learns_its_name_over_graphql(server: Canned) -> None:
    at = GitHubServer.parse(server.url)
    server.put("GET /api/v3/user", 403, {"message": "Resource not accessible by integration"})
    server.put("POST /api/graphql", 200, {"data": {"viewer": {"login": "github-actions[bot]"}}})
    assert TokenAccount(at.api_url, "ghs_x", "GITHUB_TOKEN").login_name("me/calc") == "github-actions[bot]"
