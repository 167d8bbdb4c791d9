"""What goes wrong on demand."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import pytest

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
