"""What goes wrong between git and a remote over http is told apart: try again, or do this."""

from __future__ import annotations

import pytest
from aiohttp import web
from git_server import GitServer

from perdure.adapters.git.command import GIT_LINE_CHARS, GitError
from perdure.adapters.git.credentials import connection_fix, main_line, push_fix
from perdure.adapters.git.publish import push_commit
from perdure.adapters.git.remote import remote_failure, remote_heads, remote_tip
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from tests.twins.github import smart_http
from tests.twins.github.smart_http import Cut, Moment, Refusal, Visit, protect

SHIP = "perdure/demo-1"


@pytest.fixture
def vault(server: GitServer, home: Home) -> Vault:
    return Vault.open_or_create(home, f"{server.url}/me/calc", server)


@pytest.fixture
def made(vault: Vault) -> str:
    _, base = vault.fetch()
    return vault.git.execute("commit-tree", f"{base}^{{tree}}", "-p", base, "-m", "more").text


def refused(vault: Vault, made: str) -> ForgeRefused:
    with pytest.raises(ForgeRefused) as caught:
        push_commit(vault, vault.url, made, SHIP, None)
    return caught.value


@pytest.mark.parametrize(
    ("answer", "says", "fix"),
    [
        (smart_http.NO_WRITE, "Write access to repository not granted", "Contents and Pull requests: read and write"),
        (Refusal(403, "Permission to me/calc.git denied to ada."), "Permission to me/calc.git denied", "write access"),
        (smart_http.NOT_FOUND, "Repository not found", "add it to the token's repositories"),
        (smart_http.BAD_CREDENTIALS, "Invalid username or token", "expired or revoked"),
        (smart_http.ARCHIVED, "archived so it is read-only", "unarchive"),
        (Refusal(403, "The 'x' organization has enabled or enforced SAML SSO."), "SAML SSO", "single sign-on"),
        (Refusal(403, "Your account is suspended."), "suspended", "usable again"),
        (Refusal(403, "Nobody knows this text."), "Nobody knows", "write access"),
    ],
)
def test_a_closed_door_is_final_and_says_what_opens_it(
    server: GitServer, vault: Vault, made: str, answer: Refusal, says: str, fix: str
) -> None:
    server.answers["me/calc"] = answer
    error = refused(vault, made)
    assert says in error.what
    assert fix in error.fix
    assert error.where == vault.url


@pytest.mark.parametrize("rules", [False, True])
def test_a_protected_branch_is_final_and_names_the_setting(
    server: GitServer, vault: Vault, made: str, rules: bool
) -> None:
    protect(server.root / "me/calc.git", "perdure/*", rules=rules)
    error = refused(vault, made)
    assert ("GH013" if rules else "GH006") in error.what
    assert "[git] branch" in error.fix


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ("error: GH001: Large files detected.", "Git LFS"),
        ("error: GH013: Repository rule violations found\necho - GITHUB PUSH PROTECTION", "take the secret out"),
        ("refusing to allow a Personal Access Token to create workflow without `workflow` scope", "workflow scope"),
    ],
)
def test_what_github_does_not_take_names_the_way_out(
    server: GitServer, vault: Vault, made: str, said: str, fix: str
) -> None:
    hook = server.root / "me/calc.git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{said}\nEOF\nexit 1\n")
    hook.chmod(0o755)
    assert fix in refused(vault, made).fix


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_is_not_well_is_worth_another_try(
    server: GitServer, vault: Vault, made: str, status: int
) -> None:
    for when in (Moment.OPENED, Moment.ASKED):

        def answer(visit: Visit, moment: Moment, when: Moment = when) -> web.Response | None:
            page = "<html>repository x not found</html>"  # whatever a page says
            return web.Response(status=status, text=page) if moment is when else None

        server.disturb = answer
        with pytest.raises(ForgeUnavailable, match=f"{status}|hung up"):
            push_commit(vault, vault.url, made, SHIP, None)
        with pytest.raises(ForgeUnavailable):
            remote_heads(vault.url, server)
        server.disturb = lambda visit, moment: None
        assert remote_tip(vault.url, SHIP, server) is None


def test_a_push_cut_before_its_effect_is_worth_another_try(server: GitServer, vault: Vault, made: str) -> None:
    server.disturb = lambda visit, moment: smart_http.CUT if visit.write and moment is Moment.ASKED else None
    with pytest.raises(ForgeUnavailable, match="broke off"):
        push_commit(vault, vault.url, made, SHIP, None)
    server.disturb = lambda visit, moment: None
    push_commit(vault, vault.url, made, SHIP, None)
    assert remote_tip(vault.url, SHIP, server) == made


@pytest.mark.parametrize("answer", [smart_http.CUT, web.Response])
def test_a_push_whose_answer_is_lost_has_worked(
    server: GitServer, vault: Vault, made: str, answer: Cut | type[web.Response]
) -> None:
    def lost(visit: Visit, moment: Moment) -> web.Response | Cut | None:
        if moment is not Moment.DONE:
            return None
        return answer if isinstance(answer, Cut) else answer(status=502)

    server.disturb = lost
    push_commit(vault, vault.url, made, SHIP, None)
    server.disturb = lambda visit, moment: None
    assert remote_tip(vault.url, SHIP, server) == made


def test_a_server_that_is_gone_is_worth_another_try(server: GitServer, vault: Vault, made: str) -> None:
    server.__exit__(None, None, None)
    try:
        for ask in (lambda: push_commit(vault, vault.url, made, SHIP, None), lambda: vault.fetch("main")):
            with pytest.raises(ForgeUnavailable, match="cannot be reached"):
                ask()
    finally:
        server.__enter__()


def test_git_that_was_ended_for_taking_too_long_is_worth_another_try() -> None:
    slow = GitError(["push"], None, "remote: Repository not found.\nno end after 600 s")
    assert isinstance(remote_failure("https://github.com/me/calc", slow), ForgeUnavailable)


@pytest.mark.parametrize(
    "word", ["repository ", "write access ", "access ", "permission to ", "transport '", "://", "x"]
)
def test_a_line_of_a_megabyte_is_cut_before_anything_is_looked_for_in_it(word: str) -> None:
    """Each place where a refusal could begin would be read to the end of the line: 10^10 steps and more."""
    line = word * (10**6 // len(word))
    said = GitError(["push"], 128, f"remote: {line}\nfatal: {line} not found")
    meaning = remote_failure("https://github.com/me/calc", said)
    assert isinstance(meaning, ForgeRefused) is (word == "repository "), "its end counts too"
    assert connection_fix(said.stderr) == push_fix(said.stderr) == ""
    assert len(str(meaning)) < 3 * GIT_LINE_CHARS


def test_what_is_cut_out_of_a_line_cannot_hold_half_a_secret() -> None:
    before = "x" * (GIT_LINE_CHARS // 2 - 60)
    said = GitError(["push"], 128, f"fatal: {before} https://me:{'s3cret' * 20}@host/calc {before}{before}")
    assert "s3cret" not in said.stderr
    assert "s3cret" not in str(said)


@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        (
            "warning: redirecting to https://x/\nremote: Repository not found.\nfatal: repository",
            "Repository not found.",
        ),
        ("remote: error: GH006: no\nremote: error: \nremote: error: - ask", "GH006: no"),
        ("Cloning\nfatal: unable to access", "fatal: unable to access"),
        ("something", "something"),
        ("", ""),
    ],
)
def test_the_line_that_says_most_is_told(stderr: str, line: str) -> None:
    assert main_line(stderr) == line
