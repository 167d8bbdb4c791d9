"""Which forge an origin has, and to whom a token is shown: its own server, nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.forges.base import HostedForge
from perdure.adapters.forges.github.forge import GitHub
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.forges.select import Forges
from perdure.models.errors import BadInput, ForgeRefused

TOKEN = "ghp_0123456789abcdef"
ENTERPRISE = "https://ghe.example.com"


def forges(**environ: str) -> Forges:
    return Forges.from_environment(environ)


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/me/durations",
        "https://github.com/me/durations.git",
        "https://github.com/me/durations/",
        "https://GitHub.com:443/me/durations.git",
        "git@github.com:me/durations.git",
        "GitHub.com:me/durations",
        "ssh://git@github.com/me/durations.git",
        "ssh://git@ssh.github.com:443/me/durations.git",
    ],
)
def test_every_way_to_write_a_repository_there_is_that_repository(url: str) -> None:
    forge = forges().forge(url)
    assert isinstance(forge, GitHub)
    assert isinstance(forge, HostedForge)
    assert forge.web_url == "https://github.com/me/durations"


@pytest.mark.parametrize(
    "url",
    [
        "https://gitlab.com/me/durations",
        "https://github.com.evil.example/me/durations",
        "https://evil.example/github.com/me/durations",
        "https://github.com@evil.example/me/durations",
        "https://github.com:8443/me/durations",
        "http://github.com/me/durations",
        "https://gist.github.com/me/durations",
        "https://github.com/me",
        "https://github.com/me/durations/pull/1",
        "https://github.com/me/../you",
        "https://github.com/me/dura tions",
        "https://github.com:port/me/durations",
        "git@gitlab.com:me/durations.git",
        "ssh://git@evil.example/me/durations",
        "git@github.com:/me/durations/../../x",
    ],
)
def test_what_only_looks_like_it_has_no_forge_and_gets_no_token(url: str) -> None:
    known = forges(PERDURE_GITHUB_TOKEN=TOKEN)
    assert known.forge(url) is None
    assert known.credential(url) is None


def test_local_origins_keep_their_forge(tmp_path: Path) -> None:
    known = forges(PERDURE_GITHUB_TOKEN=TOKEN)
    assert isinstance(known.forge(str(tmp_path)), LocalForge)
    assert isinstance(known.forge(f"file://{tmp_path}"), LocalForge)
    assert known.credential(str(tmp_path)) is None


def test_the_credential_is_for_https_urls_of_the_tokens_own_server() -> None:
    known = forges(PERDURE_GITHUB_TOKEN=TOKEN)
    shown = known.credential("https://github.com/me/durations.git")
    assert shown is not None
    assert (shown.server, shown.username, shown.password) == ("https://github.com", "x-access-token", TOKEN)
    assert TOKEN not in repr(shown)
    assert known.credential("git@github.com:me/durations.git") is None
    assert forges().credential("https://github.com/me/durations.git") is None
    assert known.secrets == (TOKEN,)


def test_a_token_for_github_com_is_never_for_another_server() -> None:
    known = forges(PERDURE_GITHUB_URL=ENTERPRISE, GH_TOKEN=TOKEN, GITHUB_TOKEN="other")
    assert known.credential(f"{ENTERPRISE}/me/durations") is None
    shown = known.credential("https://github.com/me/durations")
    assert shown is not None
    assert (shown.server, shown.password) == ("https://github.com", TOKEN)
    own = forges(PERDURE_GITHUB_URL=ENTERPRISE, PERDURE_GITHUB_TOKEN="ghp_own", GH_TOKEN=TOKEN)
    shown = own.credential(f"{ENTERPRISE}/me/durations")
    assert shown is not None
    assert (shown.server, shown.password) == (ENTERPRISE, "ghp_own")
    theirs = forges(GH_ENTERPRISE_TOKEN="ghp_ent").credential("https://github.com/me/durations")
    assert theirs is None


def test_an_enterprise_server_is_the_home_of_plain_names() -> None:
    assert forges().home_server() == "https://github.com"
    known = forges(PERDURE_GITHUB_URL=f"{ENTERPRISE.upper()}/", GH_ENTERPRISE_TOKEN=TOKEN)
    assert known.home_server() == ENTERPRISE
    forge = known.forge("git@ghe.example.com:me/durations.git")
    assert isinstance(forge, GitHub)
    assert forge.web_url == f"{ENTERPRISE}/me/durations"
    assert known.secrets == (TOKEN,)


def test_tokens_are_taken_out_of_the_environment_whichever_is_used() -> None:
    names = ("PERDURE_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
    environ = dict.fromkeys(names, TOKEN) | {"PATH": "/bin", "PERDURE_GITHUB_URL": ENTERPRISE}
    Forges.from_environment(environ)
    assert environ == {"PATH": "/bin", "PERDURE_GITHUB_URL": ENTERPRISE}


def test_our_own_variable_comes_first() -> None:
    shown = forges(GITHUB_TOKEN="c", GH_TOKEN="b", PERDURE_GITHUB_TOKEN="a").credential("https://github.com/a/b")
    assert shown is not None
    assert shown.password == "a"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("github.com", "no http address"),
        ("ftp://github.com", "no http address"),
        ("https://", "no http address"),
        ("https://ghe.example.com:port", "no address"),
        ("https://me:secret@ghe.example.com", "more than"),
        ("https://ghe.example.com/?x=1", "more than"),
        ("https://ghe.example.com/api/v3", "names the API"),
        ("https://api.github.com", "names the API"),
        ("http://ghe.example.com", "plain http"),
        ("http://127.0.0.1.example.com", "plain http"),
    ],
)
def test_a_malformed_server_is_refused_without_repeating_it(url: str, why: str) -> None:
    with pytest.raises(BadInput, match=why) as refused:
        forges(PERDURE_GITHUB_URL=url)
    assert "PERDURE_GITHUB_URL" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://localhost:1", "http://[::1]:8080"])
def test_plain_http_is_for_this_machine_alone(url: str) -> None:
    shown = forges(PERDURE_GITHUB_URL=url, PERDURE_GITHUB_TOKEN=TOKEN).credential(f"{url}/me/calc.git")
    assert shown is not None
    assert shown.server == url


def test_where_the_api_is() -> None:
    from perdure.adapters.forges.github.server import GitHubServer

    assert GitHubServer.parse("https://github.com").api_url == "https://api.github.com"
    assert GitHubServer.parse(ENTERPRISE).api_url == f"{ENTERPRISE}/api/v3"
    assert GitHubServer.parse("https://acme.ghe.com").api_url == "https://api.acme.ghe.com"


def test_a_token_with_a_line_break_is_refused_without_showing_it() -> None:
    for bad in (f"{TOKEN}\n{TOKEN}", f"{TOKEN} x", "ghp_ä"):
        with pytest.raises(BadInput, match="no token has") as refused:
            forges(PERDURE_GITHUB_TOKEN=bad)
        assert TOKEN not in str(refused.value)
        assert refused.value.where == "PERDURE_GITHUB_TOKEN"


def test_an_app_needs_its_id_and_a_key_that_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="without PERDURE_GITHUB_APP_KEY"):
        forges(PERDURE_GITHUB_APP_ID="1")
    with pytest.raises(BadInput, match="without PERDURE_GITHUB_APP_ID"):
        forges(PERDURE_GITHUB_APP_KEY="/k.pem")
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        forges(PERDURE_GITHUB_APP_ID="1", PERDURE_GITHUB_APP_KEY=str(tmp_path / "gone.pem"))
    key = tmp_path / "k.pem"
    key.write_text("hello")
    with pytest.raises(BadInput, match="no private key"):
        forges(PERDURE_GITHUB_APP_ID="1", PERDURE_GITHUB_APP_KEY=str(key))
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nx\n")
    with pytest.raises(BadInput, match="only one can act"):
        forges(PERDURE_GITHUB_APP_ID="1", PERDURE_GITHUB_APP_KEY=str(key), PERDURE_GITHUB_TOKEN=TOKEN)
    assert forges(PERDURE_GITHUB_APP_ID="1", PERDURE_GITHUB_APP_KEY=str(key), GH_TOKEN=TOKEN).secrets == (
        key.read_text(),
    )


def test_without_a_token_nothing_is_written_and_the_refusal_says_what_to_grant() -> None:
    from perdure.adapters.forges.base import Proposal

    forge = forges(PERDURE_GITHUB_URL="http://127.0.0.1:9").forge("http://127.0.0.1:9/me/calc")
    assert isinstance(forge, GitHub)
    proposal = Proposal(delivery="d", title="t", body="b", head="h", head_sha="0" * 40, base="main")
    for write in (
        lambda: forge.check_access("main"),
        lambda: forge.open_or_update_pull(proposal),
        lambda: forge.write_status_comment(1, "d", "t"),
    ):
        with pytest.raises(ForgeRefused, match="no token for GitHub") as refused:
            write()
        assert refused.value.where == "PERDURE_GITHUB_TOKEN"
        assert "repo" in refused.value.fix
        assert "Pull requests" in refused.value.fix
