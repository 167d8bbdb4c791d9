"""The twin holds every request against GitHub's own description, and fails on demand."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from email.utils import parsedate_to_datetime
from importlib.resources import files
from typing import Any

import aiohttp
import pytest

from tests.twins.github import api, description, rights
from tests.twins.github.answers import Reply

ISSUE = "/repos/me/calc/issues/1"
PULLS = "/repos/me/calc/pulls"


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("POST", f"{ISSUE}/comments", {"text": "hello"}, "'body' is a required property"),
        ("POST", f"{ISSUE}/comments", {"body": "hello", "colour": "red"}, "colour: no such field"),
        ("POST", f"{ISSUE}/comments", {"body": 7}, "7 is not of type 'string'"),
        ("POST", f"{ISSUE}/comments", None, "body: missing"),
        ("PATCH", f"{PULLS}/1", {"state": "merged"}, "'merged' is not one of"),
        ("POST", f"{ISSUE}/labels", {"labels": [{"name": "x", "size": 3}]}, "size: no such field"),
        ("POST", f"{ISSUE}/labels", [], "is too short|non-empty|not valid"),
        ("GET", f"{PULLS}?state=every", None, "'every' is not one of"),
        ("GET", f"{PULLS}?heads=me:x", None, "heads: there is none"),
        ("GET", f"{PULLS}?head=x", None, "does not filter at all"),
        ("GET", f"{PULLS}?per_page=101", None, "GitHub gives 1 to 100"),
        ("GET", f"{PULLS}?page=0", None, "begin with 1"),
        ("GET", f"{PULLS}?page=x", None, "'x' is not of type 'integer'"),
        ("GET", f"{PULLS}?state=open&state=all", None, "given twice"),
        ("GET", "/repos/me/calc/issues/one", None, "'one' is not of type 'integer'"),
        ("GET", ISSUE, {"body": "?"}, "there is none for this operation"),
        ("GET", "/repos/me/calc/stargazers", None, "no operation that the twin knows"),
        ("DELETE", PULLS, None, "no operation that the twin knows"),
    ],
)
async def test_what_github_does_not_describe_is_refused_and_remembered(
    hub: Any, method: str, path: str, body: Any, words: str
) -> None:
    hub.twin.add_issue("me/calc", "An issue")
    told = await hub.ask(method, path, body)
    assert told.status == 400
    (violation,) = hub.twin.violations
    assert any(each in violation for each in words.split("|")), violation
    assert violation.startswith(f"{method} /api/v3{path.partition('?')[0]}")
    assert hub.twin.comments("me/calc", 1) == []
    hub.twin.violations.clear()


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"User_Agent": ""}, 403, "no User-Agent"),
        ({"Accept": "text/html"}, 400, "header Accept: text/html"),
        ({"X_GitHub_Api_Version": "2020-01-01"}, 400, "2020-01-01 is none of"),
        ({"Content_Type": "text/plain"}, 400, "header Content-Type: text/plain"),
    ],
)
async def test_headers_that_github_does_not_take_are_refused(
    hub: Any, headers: dict[str, str], status: int, words: str
) -> None:
    hub.twin.add_issue("me/calc", "An issue")
    told = await hub.ask("POST", f"{ISSUE}/comments", {"body": "hello"}, **headers)
    assert told.status == status
    assert words in hub.twin.violations[0]
    hub.twin.violations.clear()


async def test_a_body_that_is_no_json_is_refused(hub: Any) -> None:
    hub.twin.add_issue("me/calc", "An issue")
    headers = {"User-Agent": "tests", "Content-Type": "application/json", "Accept": "*/*"}
    address = f"{hub.twin.url}/api/v3{ISSUE}/comments"
    async with hub.session.post(address, data=b'{"body": ', headers=headers) as answer:
        assert answer.status == 400
    assert "Problems parsing JSON" in hub.twin.violations.pop()


async def test_a_reply_that_does_not_fit_is_never_given(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not the twin is replaced but its mistake is made: there is no other way to see that it would be noticed.
    def crash(call: object) -> Reply:
        raise ZeroDivisionError

    wrong = {
        "repos/get": lambda call: Reply(200, {"id": 1, "stars": 3}),
        "pulls/list": lambda call: Reply(201, {}),
        "users/get-authenticated": crash,
    }
    for name, handler in wrong.items():
        monkeypatch.setitem(api._HANDLERS, name, handler)
    for path, *words in (
        ("/repos/me/calc", "is a required property", "stars: no such field"),
        ("/repos/me/calc/pulls", "not a status of pulls/list"),
        ("/user", "ZeroDivisionError"),
    ):
        told = await hub.ask("GET", path)
        assert told.status == 500
        assert all(each in hub.twin.violations[-1] for each in words)
    hub.twin.violations.clear()


def test_a_field_that_nobody_described_is_found_at_any_depth() -> None:
    get = description.operations()["issues/list-comments"]
    assert any("0.colour: no such field" in each for each in description.check_reply(get, 200, [{"colour": "red"}]))
    assert any("0.user.colour" in each for each in description.check_reply(get, 200, [{"user": {"colour": "red"}}]))


def test_errors_have_githubs_two_shapes() -> None:
    create = description.operations()["pulls/create"]
    error = {"message": "Validation Failed", "documentation_url": "https://docs.github.com/rest"}
    assert (
        description.check_reply(create, 422, {**error, "errors": [{"resource": "PullRequest", "code": "custom"}]}) == []
    )
    assert description.check_reply(create, 422, {**error, "errors": [{"resource": "PullRequest"}]})
    assert description.check_reply(create, 404, error) == []
    assert description.check_reply(create, 404, {**error, "hint": "?"})
    assert description.check_reply(create, 202, error)


def test_whose_description_it_is_and_under_which_licence_is_said_beside_it() -> None:
    here = files("tests.twins.github")
    said = json.loads((here / "description.json").read_text())
    assert said["source"].startswith("@octokit/openapi ")
    assert "MIT License Copyright (c) 2020 Octokit contributors" in (here / "NOTICE").read_text()


def test_every_operation_of_the_description_is_played_and_none_besides() -> None:
    known = set(description.operations())
    assert set(api._HANDLERS) == known
    assert set(rights.RIGHTS) | set(rights.BY_APP) | {"users/get-authenticated"} == known


async def test_every_answer_has_the_budget_and_a_request_id(hub: Any) -> None:
    first, second = [await hub.ask("GET", "/repos/me/calc") for _ in range(2)]
    assert first.headers["X-RateLimit-Limit"] == "5000"
    assert int(second.headers["X-RateLimit-Used"]) == int(first.headers["X-RateLimit-Used"]) + 1
    assert int(second.headers["X-RateLimit-Remaining"]) == 5000 - int(second.headers["X-RateLimit-Used"])
    assert first.headers["X-GitHub-Request-Id"] != second.headers["X-GitHub-Request-Id"]
    assert (await hub.ask("GET", "/repos/me/calc", token=None)).headers["X-RateLimit-Limit"] == "60"


async def test_somebody_without_a_token_has_sixty_requests_an_hour(hub: Any) -> None:
    answers = [await hub.ask("GET", "/repos/me/calc", token=None) for _ in range(61)]
    assert [answer.status for answer in answers] == [200] * 60 + [403]
    assert answers[-1].headers["X-RateLimit-Remaining"] == "0"
    assert "rate limit exceeded" in answers[-1].body["message"]
    assert (await hub.ask("GET", "/repos/me/calc")).status == 200


async def test_what_happened_is_written_down(hub: Any) -> None:
    await hub.ask("GET", "/repos/me/calc")
    await hub.ask("GET", "/repos/me/gone")
    assert hub.twin.calls == [
        ("GET", "/api/v3/repos/me/calc", "repos/get", 200),
        ("GET", "/api/v3/repos/me/gone", "repos/get", 404),
    ]


COMMENTS = "/repos/me/calc/issues/1/comments"


async def comment(hub: Any) -> Any:
    return await hub.ask("POST", COMMENTS, {"body": "hello"})


def written(hub: Any) -> int:
    return len(hub.twin.comments("me/calc", 1))


@pytest.fixture
def hub1(hub: Any) -> Any:
    """With one issue."""
    hub.twin.add_issue("me/calc", "An issue")
    return hub


@pytest.mark.parametrize(
    ("kind", "status", "happened"),
    [
        ("unauthorized", 401, 0),
        ("forbidden", 403, 0),
        ("rate_limit", 403, 0),
        ("secondary", 403, 0),
        ("missing", 404, 0),
        ("invalid", 422, 0),
        ("bad_gateway", 502, 0),
        ("bad_gateway_after", 502, 1),
    ],
)
async def test_a_fault_strikes_as_often_as_told_and_is_gone(hub1: Any, kind: str, status: int, happened: int) -> None:
    hub1.twin.faults.add("issues/create-comment", kind, times=2)
    assert (await hub1.ask("GET", "/repos/me/calc")).status == 200
    assert [(await comment(hub1)).status for _ in range(3)] == [status, status, 201]
    assert written(hub1) == 2 * happened + 1
    assert [call[3] for call in hub1.twin.calls[1:]] == [status, status, 201]


@pytest.mark.parametrize(("kind", "happened"), [("cut", 0), ("cut_after", 1)])
async def test_a_cut_connection_has_or_has_not_had_its_effect(hub1: Any, kind: str, happened: int) -> None:
    hub1.twin.faults.add("*", kind)
    with pytest.raises(aiohttp.ClientError):
        await comment(hub1)
    assert written(hub1) == happened
    assert hub1.twin.calls[-1][3] == 499
    assert (await comment(hub1)).status == 201


async def test_limits_say_until_when(hub1: Any) -> None:
    hub1.twin.faults.add("issues/create-comment", "rate_limit", retry_after=90)
    told = await comment(hub1)
    assert told.headers["X-RateLimit-Remaining"] == "0"
    server = parsedate_to_datetime(told.headers["Date"]).timestamp()
    assert 88 <= int(told.headers["X-RateLimit-Reset"]) - server <= 92
    hub1.twin.faults.add("issues/create-comment", "secondary", retry_after=2)
    assert (await comment(hub1)).headers["Retry-After"] == "2"


async def test_a_slow_answer_takes_its_time(hub1: Any) -> None:
    hub1.twin.faults.add("issues/create-comment", "slow", retry_after=0.3)
    began = time.monotonic()
    assert (await comment(hub1)).status == 201
    assert time.monotonic() - began >= 0.3


async def test_a_stale_list_lacks_its_newest_entry_once(hub1: Any) -> None:
    await comment(hub1)
    hub1.branch("work")
    hub1.twin.add_pull("me/calc", "work")
    hub1.twin.faults.add("*", "stale", times=2)
    assert (await hub1.ask("GET", COMMENTS)).body == []
    assert (await hub1.ask("GET", "/repos/me/calc/pulls")).body == []
    assert len((await hub1.ask("GET", COMMENTS)).body) == 1


async def test_while_it_is_down_there_is_nothing_but_502(hub1: Any) -> None:
    hub1.twin.down = True
    assert (await comment(hub1)).status == 502
    assert (await hub1.page("/me/calc")).status == 502
    assert (await git(hub1, "ls-remote")).returncode != 0
    hub1.twin.down = False
    assert (await comment(hub1)).status == 201
    assert written(hub1) == 1


@pytest.mark.parametrize("kind", ["unauthorized", "forbidden", "secondary", "missing", "bad_gateway", "cut"])
async def test_a_push_can_fail_before_it_has_begun(hub: Any, kind: str) -> None:
    hub.branch("work")
    hub.twin.faults.add("git/push", kind)
    assert (await git(hub, "ls-remote")).returncode == 0
    assert (await push(hub)).returncode != 0
    assert "pushed" not in heads(hub)
    assert (await push(hub)).returncode == 0


@pytest.mark.parametrize("kind", ["bad_gateway_after", "cut_after"])
async def test_a_push_can_be_taken_without_an_answer(hub: Any, kind: str) -> None:
    hub.branch("work")
    hub.twin.faults.add("git/push", kind)
    await push(hub)
    assert "pushed" in heads(hub)
    assert hub.twin.faults.waiting == []
    assert (await push(hub)).returncode == 0


@pytest.mark.parametrize("kind", ["bad_gateway", "bad_gateway_after", "missing"])
async def test_a_fetch_can_fail(hub: Any, kind: str) -> None:
    hub.twin.faults.add("git/fetch", kind)
    assert (await git(hub, "ls-remote")).returncode != 0
    assert (await git(hub, "ls-remote")).returncode == 0


def test_there_is_no_fault_of_another_name(hub: Any) -> None:
    with pytest.raises(ValueError, match="no_such"):
        hub.twin.faults.add("*", "no_such")


def heads(hub: Any) -> list[str]:
    return [path.name for path in (hub.bare / "refs" / "heads").iterdir()]


async def push(hub: Any) -> subprocess.CompletedProcess[str]:
    return await git(hub, "push", "work:refs/heads/pushed")


async def git(hub: Any, verb: str, *more: str) -> subprocess.CompletedProcess[str]:
    """In a thread, for the twin answers from this loop."""
    address = hub.twin.url.replace("://", f"://x:ghp_{'0123456789abcdef' * 2}@") + "/me/calc.git"
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    command = ["git", "-c", "safe.directory=*", "--git-dir", str(hub.bare), verb, address, *more]
    return await asyncio.to_thread(
        lambda: subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    )
