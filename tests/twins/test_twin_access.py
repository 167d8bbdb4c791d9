"""Who may do what on the twin: classic and fine-grained tokens, Apps, nobody."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from typing import Any

import github
import jwt
import pytest
from github import Auth

TOKEN = "ghp_" + "0123456789abcdef" * 2
PEOPLE = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def create() -> Any:
    return lambda repository: repository.create_pull("main", "work", title="A title")


async def test_a_token_that_is_none_is_401_in_githubs_words(hub: Any) -> None:
    told = await hub.ask("GET", "/user", token="ghp_wrong")
    assert (told.status, told.body["message"]) == (401, "Bad credentials")
    hub.twin.add_token("ghp_old", login="old")
    assert (await hub.ask("GET", "/user", token="ghp_old")).body["login"] == "old"
    hub.twin.revoke("ghp_old")
    assert (await hub.ask("GET", "/user", token="ghp_old")).status == 401
    assert (await hub.ask("GET", "/user", token=None)).status == 401
    assert (await hub.ask("GET", "/user", token=None, Authorization="token ghp_wrong")).status == 401


async def test_what_is_private_is_not_there_for_others(hub: Any) -> None:
    hub.twin.add_repository("me/secret", private=True)
    hub.twin.add_token("ghp_stranger", login="eve", permissions={})
    hub.twin.add_token("ghp_public", scopes=("public_repo",))
    hub.twin.add_token("github_pat_other", kind="fine-grained", permissions={"me/calc": "write"})
    for token in (None, "ghp_stranger", "ghp_public", "github_pat_other"):
        for path in ("", "/pulls", "/issues/1"):
            told = await hub.ask("GET", f"/repos/me/secret{path}", token=token)
            assert (told.status, told.body["message"]) == (404, "Not Found")
        assert await _fetch(hub, "me/secret", token) != 0
    assert (await hub.ask("GET", "/repos/me/secret")).body["private"] is True


async def test_the_account_s_role_is_in_the_repository_and_binds(hub: Any) -> None:
    hub.branch("work")
    number = hub.twin.add_issue("me/calc", "An issue")
    hub.twin.add_token("ghp_reader", login="reader", permissions={"me/calc": "read"})
    role = await hub.do(lambda repository: repository.permissions, token="ghp_reader")
    assert (role.pull, role.push, role.admin) == (True, False, False)
    told = await hub.refused(create(), token="ghp_reader")
    assert (told.status, told.body["errors"][0]["message"]) == (422, "must be a collaborator")
    told = await hub.refused(lambda repository: repository.get_issue(number).add_to_labels("x"), token="ghp_reader")
    assert told.status == 403
    await hub.do(lambda repository: repository.get_issue(number).create_comment("may I?"), token="ghp_reader")
    hub.twin.add_token("ghp_owner", login="me", permissions={})
    assert (await hub.do(lambda repository: repository.permissions, token="ghp_owner")).admin


async def test_a_comment_is_its_authors_and_the_collaborators_to_change(hub: Any) -> None:
    number = hub.twin.add_issue("me/calc", "An issue")
    comment = hub.twin.add_comment("me/calc", number, "bob", "mine")
    hub.twin.add_token("ghp_eve", login="eve", permissions={})
    address = f"/repos/me/calc/issues/comments/{comment}"
    assert (await hub.ask("PATCH", address, {"body": "hers"}, token="ghp_eve")).status == 403
    assert (await hub.ask("DELETE", address, token="ghp_eve")).status == 403
    assert (await hub.ask("PATCH", address, {"body": "ours"})).status == 200


async def test_classic_tokens_show_their_scopes_and_need_one_to_write(hub: Any) -> None:
    number = hub.twin.add_issue("me/calc", "An issue")
    hub.twin.add_token("ghp_none", scopes=("gist",))
    told = await hub.ask("GET", "/repos/me/calc", token="ghp_none")
    assert (told.status, told.headers["X-OAuth-Scopes"], told.headers["X-Accepted-OAuth-Scopes"]) == (
        200,
        "gist",
        "repo",
    )
    path = f"/repos/me/calc/issues/{number}/comments"
    assert (await hub.ask("POST", path, {"body": "hello"}, token="ghp_none")).status == 404
    assert (await hub.ask("POST", path, {"body": "hello"}, token=None)).status == 401


async def test_a_fine_grained_token_without_a_permission_is_told_which(hub: Any) -> None:
    hub.branch("work")
    number = hub.twin.add_issue("me/calc", "An issue")
    levels = {"me/calc": "write"}
    hub.twin.add_token(
        "github_pat_1", kind="fine-grained", permissions=levels, grants={"contents": "write", "issues": "write"}
    )
    told = await hub.refused(create(), token="github_pat_1")
    assert (told.status, told.body["message"]) == (403, "Resource not accessible by personal access token")
    assert told.headers["x-accepted-github-permissions"] == "pull_requests=write"
    assert "x-oauth-scopes" not in told.headers
    role = await hub.do(lambda repository: repository.permissions, token="github_pat_1")
    assert role.push  # the account's; what the token may, it does not say
    await hub.do(lambda repository: repository.get_issue(number).create_comment("this it may"), token="github_pat_1")
    assert await _push(hub, "me/calc", "github_pat_1") == 0
    hub.twin.add_token("github_pat_2", kind="fine-grained", permissions=levels, grants={"pull_requests": "write"})
    assert (await hub.do(create(), token="github_pat_2")).number == number + 1
    assert await _push(hub, "me/calc", "github_pat_2") != 0


async def test_an_app_acts_as_its_bot_where_it_is_installed(hub: Any) -> None:
    hub.twin.add_repository("me/other")
    pem = hub.twin.add_app(77, slug="perdure-app", repositories=("me/calc",))
    hub.branch("work")
    number = hub.twin.add_issue("me/calc", "An issue")

    def work() -> Any:
        app = github.GithubIntegration(auth=Auth.AppAuth(77, pem), base_url=f"{hub.twin.url}/api/v3", retry=None)
        with pytest.raises(github.UnknownObjectException):
            app.get_repo_installation("me", "other")
        issued = app.get_access_token(app.get_repo_installation("me", "calc").id)
        repository = hub.client(issued.token).get_repo("me/calc")
        comment = repository.get_issue(number).create_comment("I am a bot")
        pull = repository.create_pull("main", "work", title="T")
        return issued.token, app.get_app().slug, comment.user.login, pull.user.login, repository.permissions.push

    token, *said = await asyncio.to_thread(work)
    assert token.startswith("ghs_")
    assert said == ["perdure-app", "perdure-app[bot]", "perdure-app[bot]", False]
    assert await _push(hub, "me/calc", token) == 0
    told = await hub.ask("GET", "/user", token=token)
    assert (told.status, told.body["message"]) == (403, "Resource not accessible by integration")
    elsewhere = hub.twin.add_issue("me/other", "An issue")
    told = await hub.ask("POST", f"/repos/me/other/issues/{elsewhere}/comments", {"body": "no"}, token=token)
    assert told.status == 403
    hub.twin.end_tokens()
    assert (await hub.ask("GET", "/repos/me/calc", token=token)).status == 401


async def test_an_app_without_a_permission_is_told_which(hub: Any) -> None:
    pem = hub.twin.add_app(77, repositories=("me/calc",), permissions={"metadata": "read", "issues": "read"})
    number = hub.twin.add_issue("me/calc", "An issue")
    signed = _signed(pem)
    installed = (await hub.ask("GET", "/repos/me/calc/installation", token=signed)).body["id"]
    path = f"/app/installations/{installed}/access_tokens"
    assert (await hub.ask("POST", path, {"permissions": {"issues": "write"}}, token=signed)).status == 422
    token = (await hub.ask("POST", path, token=signed)).body["token"]
    told = await hub.ask("POST", f"/repos/me/calc/issues/{number}/comments", {"body": "no"}, token=token)
    assert (told.status, told.headers["X-Accepted-GitHub-Permissions"]) == (403, "issues=write; pull_requests=write")
    hub.twin.suspend_app(77)
    assert (await hub.ask("POST", path, token=signed)).status == 403


async def test_only_the_apps_own_fresh_signature_opens(hub: Any) -> None:
    pem, other = (hub.twin.add_app(number, repositories=("me/calc",)) for number in (77, 78))
    good = await hub.ask("GET", "/app", token=_signed(pem))
    assert (good.status, good.body["id"]) == (200, 77)
    wrong = (
        _signed(other),
        _signed(pem, iss="99"),
        _signed(pem, exp=int(time.time()) - 120),
        _signed(pem, exp=int(time.time()) + 3600),
        _signed(pem, iat=int(time.time()) + 3600),
        "a.b.c",
        TOKEN,
    )
    assert [(await hub.ask("GET", "/app", token=token)).status for token in wrong] == [401] * len(wrong)
    told = await hub.ask("GET", "/repos/me/calc", token=_signed(pem))
    assert told.status == 403


async def test_a_repository_with_a_new_name_is_found_by_its_old_one(hub: Any) -> None:
    number = hub.twin.add_issue("me/calc", "An issue")
    hub.twin.rename("me/calc", "you/sums")
    told = await hub.ask("GET", "/repos/me/calc/pulls?head=me:x&state=all")
    assert told.status == 301
    assert "/api/v3/repositories/" in told.headers["Location"]
    assert told.headers["Location"].endswith("/pulls?head=me%3Ax&state=all")
    assert (await hub.ask("POST", f"/repos/me/calc/issues/{number}/comments", {"body": "hello"})).status == 307
    assert (await hub.do(lambda repository: repository.full_name)) == "you/sums"
    issue = await hub.do(lambda repository: repository.get_issue(number))
    await asyncio.to_thread(lambda: issue.create_comment("hello"))
    assert hub.twin.comments("you/sums", number)[0]["body"] == "hello"
    assert await _fetch(hub, "me/calc") == 0
    hub.twin.add_repository("me/calc")
    assert (await hub.ask("GET", "/repos/me/calc")).status == 200


async def test_protected_branches_are_shown_and_guarded(hub: Any) -> None:
    hub.branch("perdure/x")
    assert (await hub.ask("GET", "/repos/me/calc/branches/perdure/x")).body["protected"] is False
    hub.twin.protect("me/calc", "main")
    hub.twin.protect("me/calc", "perdure/**")
    for name in ("main", "perdure/x"):
        assert (await hub.do(lambda repository, n=name: repository.get_branch(n))).protected
    assert (await hub.ask("GET", "/repos/me/calc/branches/gone")).status == 404
    assert await _push(hub, "me/calc", branch="perdure/y") != 0
    assert await _push(hub, "me/calc", branch="ours/y") == 0


def _signed(pem: str, **more: Any) -> str:
    now = int(time.time())
    return jwt.encode({"iat": now - 30, "exp": now + 300, "iss": "77", **more}, pem, algorithm="RS256")


def _address(hub: Any, name: str, token: str | None) -> str:
    who = f"://x-access-token:{token}@" if token else "://"
    return f"{hub.twin.url.replace('://', who)}/{name}.git"


async def _fetch(hub: Any, name: str, token: str | None = TOKEN) -> int:
    return await _git("ls-remote", _address(hub, name, token))


async def _push(hub: Any, name: str, token: str = TOKEN, branch: str = "pushed") -> int:
    what = f"main:refs/heads/{branch}"
    return await _git("--git-dir", str(hub.bare), "push", "-f", _address(hub, name, token), what)


async def _git(*arguments: str) -> int:
    """git's exit code; in a thread, for the twin answers from this loop."""
    command = ["git", "-c", "safe.directory=*", *arguments]
    done = await asyncio.to_thread(lambda: subprocess.run(command, env=PEOPLE, capture_output=True, timeout=60))
    return done.returncode
