"""A GitHub App instead of a token: one short-lived token a repository, and a name of its own."""

from __future__ import annotations

from asyncio import to_thread
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from canned_github import canned
from twin_repository import TwinRepository

from perdure.adapters.forges.github.account import AppAccount
from perdure.adapters.forges.github.forge import GitHub
from perdure.adapters.forges.select import Forges
from perdure.models.errors import ForgeRefused, ForgeUnavailable

WRITE = {"metadata": "read", "contents": "write", "issues": "write", "pull_requests": "write"}
MARKER = "<!-- perdure:status=d-1 -->"


def forges(twin: TwinRepository, pem: str, tmp_path: Path) -> Forges:
    key = tmp_path / "app.pem"
    key.write_text(pem)
    environ = {
        "PERDURE_GITHUB_URL": twin.hub.url,
        "PERDURE_GITHUB_APP_ID": "1234",
        "PERDURE_GITHUB_APP_KEY": str(key),
    }
    known = Forges.from_environment(environ)
    assert "PERDURE_GITHUB_APP_KEY" not in environ
    return known


def at(known: Forges, twin: TwinRepository, name: str = "me/calc") -> GitHub:
    forge = known.forge(f"{twin.hub.url}/{name}")
    assert isinstance(forge, GitHub)
    return forge


async def test_an_app_delivers_like_a_token(twin: TwinRepository, tmp_path: Path) -> None:
    known = forges(twin, twin.hub.add_app(repositories=["me/calc"]), tmp_path)
    forge = at(known, twin)
    assert (await to_thread(forge.check_access, "main")).notes == ()
    opened = await to_thread(forge.open_or_update_pull, twin.proposal(labels=("perdure",)))
    assert opened.notes == ()
    assert twin.hub.pulls("me/calc")[0]["user"]["login"] == "perdure-app[bot]"


async def test_its_token_is_used_until_it_ends_and_kept_secret(twin: TwinRepository, tmp_path: Path) -> None:
    known = forges(twin, twin.hub.add_app(repositories=["me/calc"]), tmp_path)
    shown = [await to_thread(known.credential, f"{twin.hub.url}/me/calc.git") for _ in range(3)]
    tokens = {one.password for one in shown if one is not None}
    assert len(tokens) == 1
    assert tokens <= set(known.secrets)
    assert twin.made("apps/create-installation-access-token") == 1


async def test_many_threads_ask_for_one_token(twin: TwinRepository, tmp_path: Path) -> None:
    known = forges(twin, twin.hub.add_app(repositories=["me/calc"]), tmp_path)

    def ask(_: int) -> object:
        return known.credential(f"{twin.hub.url}/Me/Calc.git")

    def all_at_once() -> list[object]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(ask, range(16)))

    assert len({repr(one) for one in await to_thread(all_at_once)}) == 1
    assert twin.made("apps/create-installation-access-token") == 1


async def test_a_comment_of_the_app_is_found_again_and_a_persons_is_not(twin: TwinRepository, tmp_path: Path) -> None:
    number = twin.hub.add_issue("me/calc", "Add sub", "x", comments=(("perdure-bot", f"{MARKER}\nnot the app's"),))
    forge = at(forges(twin, twin.hub.add_app(repositories=["me/calc"]), tmp_path), twin)
    await to_thread(forge.write_status_comment, number, "d-1", "Working on it.")
    await to_thread(forge.write_status_comment, number, "d-1", "Done.")
    bodies = [comment["body"] for comment in twin.hub.comments("me/calc", number)]
    assert bodies == [f"{MARKER}\nnot the app's", f"{MARKER}\nDone."]


async def test_an_app_that_is_not_installed_there_is_told_to_be(twin: TwinRepository, tmp_path: Path) -> None:
    twin.hub.add_repository("me/other")
    known = forges(twin, twin.hub.add_app(repositories=["me/calc"]), tmp_path)
    for ask in (
        lambda: at(known, twin, "me/other").check_access("main"),
        lambda: known.credential(f"{twin.hub.url}/me/other"),
    ):
        with pytest.raises(ForgeRefused, match="not installed on me/other") as refused:
            await to_thread(ask)
        assert "Pull requests" in refused.value.fix


@pytest.mark.parametrize(
    ("lacking", "words"), [("contents", "Contents: write"), ("pull_requests", "Pull requests: write")]
)
async def test_a_permission_that_the_app_lacks_is_named(
    twin: TwinRepository, tmp_path: Path, lacking: str, words: str
) -> None:
    pem = twin.hub.add_app(repositories=["me/calc"], permissions=WRITE | {lacking: "read"})
    with pytest.raises(ForgeRefused, match=f"lacks the permission {words}"):
        await to_thread(at(forges(twin, pem, tmp_path), twin).check_access, "main")


async def test_without_issues_it_can_still_deliver(twin: TwinRepository, tmp_path: Path) -> None:
    pem = twin.hub.add_app(repositories=["me/calc"], permissions=WRITE | {"issues": "read"})
    (note,) = (await to_thread(at(forges(twin, pem, tmp_path), twin).check_access, "main")).notes
    assert "Issues: write" in note


async def test_a_key_of_another_app_is_refused(twin: TwinRepository, tmp_path: Path) -> None:
    pem = twin.hub.add_app(number=99, slug="other")
    twin.hub.add_app(repositories=["me/calc"])
    with pytest.raises(ForgeRefused, match="does not accept the token") as refused:
        await to_thread(at(forges(twin, pem, tmp_path), twin).check_access, "main")
    assert refused.value.where == "PERDURE_GITHUB_APP_KEY"
    assert "PRIVATE KEY" not in str(refused.value)


async def test_a_token_that_was_ended_early_is_replaced_by_the_next_attempt(
    twin: TwinRepository, tmp_path: Path
) -> None:
    forge = at(forges(twin, twin.hub.add_app(repositories=["me/calc"]), tmp_path), twin)
    await to_thread(forge.check_access, "main")
    twin.hub.end_tokens()
    with pytest.raises(ForgeUnavailable, match="ended our token early"):
        await to_thread(forge.check_access, "main")
    await to_thread(forge.check_access, "main")
    assert twin.made("apps/create-installation-access-token") == 2


async def test_an_app_whose_new_token_is_not_taken_either_is_refused(twin: TwinRepository, tmp_path: Path) -> None:
    forge = at(forges(twin, twin.hub.add_app(repositories=["me/calc"]), tmp_path), twin)
    twin.hub.faults.add("repos/get", "unauthorized")
    with pytest.raises(ForgeRefused, match="does not accept the token"):
        await to_thread(forge.check_access, "main")


@pytest.mark.parametrize("wrong_by", [timedelta(), timedelta(days=-2), timedelta(days=2)])
def test_a_token_close_to_its_end_is_replaced_whatever_our_clock_says(app_key: str, wrong_by: timedelta) -> None:
    """GitHub says when it ends, by its own clock; a push must not be what finds out."""
    with canned() as server:
        server.put("GET /api/v3/repos/me/calc/installation", 200, {"id": 5})
        account = AppAccount(f"{server.url}/api/v3", "1234", app_key)
        for minutes, asked in ((4, 1), (4, 2), (6, 3), (6, 3)):
            there = datetime.now(UTC) + wrong_by
            ends = (there + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
            answer = {"token": f"ghs_{asked}", "expires_at": ends, "permissions": {}}
            server.put("POST /api/v3/app/installations/5/access_tokens", 201, answer, Date=format_datetime(there, True))
            assert account.token("me/calc") == f"ghs_{asked}"
        assert sum(method == "POST" for method, _, _ in server.asked) == 3


@pytest.fixture
async def app_key(twin: TwinRepository) -> str:
    return twin.hub.add_app()
