"""A token reaches its server, through git, and nobody and nothing else."""

from __future__ import annotations

import os
import shutil
import time
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from git_server import TOKEN, GitServer, certificate

from perdure.adapters.git.command import Git, GitError
from perdure.adapters.git.credentials import NO_KEYS, Credential
from perdure.adapters.git.publish import push_commit
from perdure.adapters.git.remote import remote_heads, remote_tip
from perdure.adapters.git.target import resolve_repository
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.models.errors import BadInput, ForgeRefused, ForgeUnavailable
from tests.repositories import make_origin
from tests.secret_watch import SecretWatch, hits
from tests.twins.github.smart_http import Moved, Refusal

SHIP = "perdure/demo-1"


class Keys:
    """One key, whatever is asked for."""

    def __init__(self, server: str, token: str = TOKEN) -> None:
        self._credential = Credential(server, "x-access-token", token)

    def credential(self, url: str) -> Credential | None:
        return self._credential

    def home_server(self) -> str:
        return self._credential.server


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a person whose keychain answers for every server, and for this one in particular, and logs it."""
    home = tmp_path / "owner"
    home.mkdir()
    helper = home / "keychain"
    helper.write_text(
        f'#!/bin/sh\necho "$1" >>{home}/asked\ncat >>{home}/asked\necho username=ada\necho password=ada1\n'
    )
    helper.chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[credential]\nhelper = {helper}\nusername = mallory\n"
        f'[credential "http://127.0.0.1"]\nhelper = {helper}\nuseHttpPath = true\n[core]\naskPass = {helper}\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_ASKPASS", str(helper))
    return home


def change(vault: Vault, base: str, size: int = 10) -> str:
    blob = vault.git.execute("hash-object", "-w", "--stdin", stdin=os.urandom(size)).text
    tree = vault.git.execute("mktree", stdin=f"100644 blob {blob}\tbig.bin\n".encode()).text
    return vault.git.execute("commit-tree", tree, "-p", base, "-m", "big").text


@pytest.mark.parametrize("size", [10, 8_000_000])
def test_a_private_repository_is_fetched_from_and_pushed_to(server: GitServer, home: Home, size: int) -> None:
    url = f"{server.url}/me/calc"
    vault = Vault.open_or_create(home, url, server)
    name, base = vault.fetch()
    made = change(vault, base, size)
    push_commit(vault, url, made, SHIP, None)
    assert (name, remote_tip(url, SHIP, server)) == ("main", made)
    assert vault.fetch_branch(SHIP) == made
    assert server.passwords == {None, TOKEN}, "git shows it only when it is asked"


def test_over_https_the_token_is_given_to_a_server_that_git_trusts_and_to_no_other(
    server: GitServer, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GitServer(server.root, tls=certificate(tmp_path / "tls.pem")) as secure:
        url = f"{secure.url}/me/calc"
        vault = Vault.open_or_create(home, url, secure)
        with pytest.raises(ForgeUnavailable, match="certificate") as caught:
            vault.fetch()
        assert "GIT_SSL_CAINFO" in caught.value.fix
        assert secure.visits == []
        monkeypatch.setenv("GIT_SSL_CAINFO", str(tmp_path / "tls.pem"))
        made = change(vault, vault.fetch()[1])
        push_commit(vault, url, made, SHIP, None)
        assert remote_tip(url, SHIP, secure) == made
        assert TOKEN in secure.passwords


def test_a_vault_on_disk_has_no_keys_until_it_is_given_some(server: GitServer, home: Home) -> None:
    made = Vault.open_or_create(home, f"{server.url}/me/calc", server)
    assert Vault.open_existing(made.path).keys is NO_KEYS
    with pytest.raises(ForgeRefused, match="could not read Username") as caught:
        Vault.open_existing(made.path).fetch()
    assert "PERDURE_GITHUB_TOKEN" in caught.value.fix
    assert Vault.open_existing(made.path).with_keys(server).fetch() == made.fetch()
    assert TOKEN not in repr(made)


def test_the_token_is_in_no_process_file_or_log(
    server: GitServer, home: Home, owner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    for name in ("GIT_TRACE", "GIT_TRACE_CURL", "GIT_TRACE2_EVENT", "GIT_TRACE_PACKET", "GIT_TRACE_SETUP"):
        monkeypatch.setenv(name, str(traces / name))
    monkeypatch.setenv("GIT_TRACE_REDACT", "0")
    monkeypatch.setenv("GIT_CURL_VERBOSE", "1")
    server.pause_s = 0.1  # so that there is time to look
    url = f"{server.url}/me/calc"
    with SecretWatch([TOKEN]) as watch:
        vault = Vault.open_or_create(home, url, server)
        _, base = vault.fetch()
        push_commit(vault, url, change(vault, base, 100_000), SHIP, None)
    assert {"git", "git-remote-http"} <= watch.seen
    assert TOKEN in server.passwords
    assert not watch.scan(tmp_path), hits(watch.found)
    assert list(traces.iterdir()) == []
    assert not (owner / "asked").exists(), "a keychain neither answers for us nor keeps our token"


def test_without_keys_the_owners_own_keychain_answers(server: GitServer, owner: Path) -> None:
    with pytest.raises(ForgeRefused, match="Invalid username or token") as caught:
        remote_heads(f"{server.url}/me/calc")
    assert "git ls-remote" in caught.value.fix
    assert "ada1" in server.passwords
    assert (owner / "asked").read_text().startswith("get\n")


def test_a_wrong_token_is_refused_at_once_and_for_good(server: GitServer, owner: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ForgeRefused, match="Invalid username or token") as caught:
        remote_heads(f"{server.url}/me/calc", Keys(server.url, "ghp_WrongWrongWrong"))
    assert "expired or revoked" in caught.value.fix
    assert "ghp_Wrong" not in f"{caught.value} {caught.value.__cause__}"
    assert [visit.password for visit in server.visits] == [None, "ghp_WrongWrongWrong"]
    assert time.monotonic() - began < 30
    assert not (owner / "asked").exists()


def test_a_redirect_to_another_server_gets_no_secret(server: GitServer, tmp_path: Path, owner: Path) -> None:
    with GitServer(server.root, redirect=server.url) as first:
        with pytest.raises(ForgeRefused):
            remote_heads(f"{first.url}/me/calc", Keys(first.url))
        assert server.passwords == {None}
        assert not (owner / "asked").exists()


def test_a_renamed_repository_is_followed_and_its_new_address_told(server: GitServer, home: Home) -> None:
    server.answers["me/old"] = Moved("me/calc")
    for ending in ("", ".git"):
        url = f"{server.url}/me/old{ending}"
        heads = remote_heads(url, server)
        assert (heads.default, heads.moved_to) == ("main", f"{server.url}/me/calc{ending}")
        vault = Vault.open_or_create(home, url, server)
        push_commit(vault, url, change(vault, vault.fetch()[1]), f"{SHIP}{ending}", None)
    assert remote_heads(f"{server.url}/me/calc", server).moved_to is None


def test_the_secret_is_told_again_after_a_redirect_but_not_for_ever(server: GitServer) -> None:
    seen = Git(as_owner=True)
    credential = Credential(server.url, "x-access-token", TOKEN)
    again = "for n in 1 2 3 4 5 6; do printf 'url=%s\\n\\n' \"$1\" | git credential fill; done; true"
    ask = ("-c", f"alias.ask=!f() {{ {again}; }}; f", "ask")
    told = seen.execute(*ask, f"{server.url}/me/calc", credential=credential).text
    assert told.count(f"password={TOKEN}") == 4
    other = seen.execute(*ask, "http://127.0.0.1:1/me/calc", credential=credential)
    assert TOKEN not in other.text


def test_a_server_that_repeats_the_token_is_not_quoted(server: GitServer) -> None:
    packed = b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    server.answers["me/calc"] = Refusal(403, f"you said {TOKEN} and {packed}")
    with pytest.raises(ForgeRefused) as caught:
        remote_heads(f"{server.url}/me/calc", Keys(server.url))
    assert caught.value.what.startswith("the remote refuses: you said *** and ")
    assert packed[24:-4] not in caught.value.what
    assert isinstance(caught.value.__cause__, GitError)
    assert packed[:40] not in f"{caught.value} {caught.value.__cause__} {caught.value.__cause__.stderr}"


def test_tokens_in_variables_are_not_for_git(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GITLAB_TOKEN")
    for name in (*names, "PERDURE_GITHUB_TOKEN", "PERDURE_GITHUB_APP_KEY"):
        monkeypatch.setenv(name, TOKEN)
    for door in (Git(), Git(as_owner=True)):
        assert TOKEN not in door.text("-c", "alias.look=!env", "look")


def test_not_even_the_program_that_starts_git_sees_what_is_not_for_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "env"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nset >{tmp_path}/seen\nexec {shutil.which("env")} "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("ANTHROPIC_API_KEY", TOKEN)
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    Git(as_owner=True).execute("version")
    seen = (tmp_path / "seen").read_text()
    assert ("GH_TOKEN=''" in seen, TOKEN in seen) == (True, False)


def test_owner_and_name_mean_a_repository_on_the_home_server(server: GitServer, tmp_path: Path) -> None:
    target = resolve_repository("me/calc", tmp_path, server)
    assert (target.url, target.name, target.checkout) == (f"{server.url}/me/calc", "calc", None)
    assert NO_KEYS.home_server() == "https://github.com"
    make_origin(tmp_path / "me" / "calc")
    assert resolve_repository("me/calc", tmp_path, server).url == str(tmp_path / "me/calc"), (
        "a path that exists is meant itself"
    )
    with pytest.raises(BadInput, match="there is no directory me/gone, and http") as caught:
        resolve_repository("me/gone", tmp_path, server)
    assert "Repository not found" in caught.value.what
    for path in ("../calc", "me/..", "me/calc/x", "./x"):
        with pytest.raises(BadInput, match=r"there is no|not a git"):
            resolve_repository(path, tmp_path / "me", server)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"server": "http://ghe.example.com"}, "plain http"),
        ({"server": "https://github.com/"}, "not the address"),
        ({"server": "https://ada:pw@github.com"}, "not the address"),
        ({"server": "ssh://github.com"}, "not the address"),
        ({"password": "one\ntwo"}, "line break"),
        ({"password": ""}, "empty"),
        ({"password": "x" * 5000}, "too long"),
        ({"username": "a\nb"}, "line break"),
    ],
)
def test_what_git_cannot_be_told_is_no_credential(change: dict[str, str], says: str) -> None:
    good = Credential("https://github.com", "x-access-token", TOKEN)
    with pytest.raises(BadInput, match=says) as caught:
        replace(good, **change)
    assert "pw" not in str(caught.value)
    assert TOKEN not in repr(good)
