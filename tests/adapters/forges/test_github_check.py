"""Access to GitHub, by token or App: what is missing is named before any money is spent."""

from __future__ import annotations

from asyncio import to_thread
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from canned_github import canned
from twin_repository import TOKEN, TwinRepository

from perdure.adapters.forges.github.account import AppAccount
from perdure.adapters.forges.github.forge import GitHub
from perdure.adapters.forges.select import Forges
from perdure.models.errors import ForgeRefused, ForgeUnavailable

OTHER = "ghp_another0token0another0token0another0"
FINE = "github_pat_11AAAAAAA0fine0grained0token0fine0grained0"


async def refused(twin: TwinRepository, token: str = TOKEN, base: str = "main", name: str = "me/calc") -> ForgeRefused:
    with pytest.raises(ForgeRefused) as caught:
        await to_thread(twin.forge(token, name).check_access, base)
    assert token not in str(caught.value)
    return caught.value


async def test_a_token_that_may_do_it_all_leaves_nothing_to_say(twin: TwinRepository) -> None:
    access = await to_thread(twin.forge().check_access, "main")
    assert (access.repository, access.notes) == ("me/calc", ())
    assert {call[0] for call in twin.hub.calls} == {"GET"}


async def test_a_token_that_is_not_one_names_its_variable(twin: TwinRepository) -> None:
    error = await refused(twin, "ghp_unknown")
    assert error.where == "PERDURE_GITHUB_TOKEN"


async def test_a_missing_scope_is_named(twin: TwinRepository) -> None:
    twin.hub.add_token(OTHER, login="ada", scopes=("gist", "read:org"), permissions={"me/calc": "write"})
    assert "lacks the scope public_repo (or repo)" in (await refused(twin, OTHER)).what


async def test_a_private_repository_needs_more(twin: TwinRepository) -> None:
    twin.hub.add_repository("me/secret", private=True)
    twin.hub.add_token(OTHER, login="ada", scopes=("public_repo",), permissions={"me/secret": "write"})
    error = await refused(twin, OTHER, name="me/secret")
    assert "the scope repo" in error.what


async def test_a_public_repository_needs_no_more_than_its_scope(twin: TwinRepository) -> None:
    twin.hub.add_token(OTHER, login="ada", scopes=("public_repo",), permissions={"me/calc": "write"})
    assert (await to_thread(twin.forge(OTHER).check_access, "main")).notes == ()


async def test_somebody_who_may_only_read_is_told_so(twin: TwinRepository) -> None:
    twin.hub.add_token(OTHER, login="ada", scopes=("repo",), permissions={"me/calc": "read"})
    error = await refused(twin, OTHER)
    assert "may not push to me/calc" in error.what
    assert "role Write" in error.fix


async def test_a_repository_that_is_not_there_or_hidden_is_one_answer(twin: TwinRepository) -> None:
    error = await refused(twin, name="me/nothing")
    assert "no repository me/nothing, or the token cannot see it" in error.what


async def test_an_archived_repository_is_refused(twin: TwinRepository) -> None:
    twin.hub.archive("me/calc")
    assert "archived" in (await refused(twin)).what


async def test_a_base_branch_that_is_not_there_is_refused(twin: TwinRepository) -> None:
    assert "has no branch nowhere/x" in (await refused(twin, base="nowhere/x")).what


async def test_a_protected_base_branch_is_no_obstacle(twin: TwinRepository) -> None:
    twin.hub.protect("me/calc", "main")
    access = await to_thread(twin.forge().check_access, "main")
    assert access.notes == ("main is protected: Perdure only proposes",)


async def test_a_renamed_repository_is_found_and_said(twin: TwinRepository) -> None:
    twin.hub.rename("me/calc", "me/calculator")
    access = await to_thread(twin.forge().check_access, "main")
    assert access.repository == "me/calculator"
    assert access.notes == ("the repository me/calc is called me/calculator now",)


async def test_a_fine_grained_token_that_may_do_it_all_leaves_no_trace(twin: TwinRepository) -> None:
    twin.hub.add_token(FINE, login="ada", permissions={"me/calc": "write"}, kind="fine-grained")
    access = await to_thread(twin.forge(FINE).check_access, "main")
    assert access.notes == ()
    assert twin.hub.pulls("me/calc") == []


async def test_a_fine_grained_token_that_may_only_read_is_told_what_it_lacks(twin: TwinRepository) -> None:
    twin.hub.add_token(FINE, login="ada", permissions={"me/calc": "read"}, kind="fine-grained")
    error = await refused(twin, FINE)
    assert "lacks the permission Contents: write" in error.what
    assert "Pull requests and Issues: read and write" in error.fix


@pytest.mark.parametrize(
    ("grants", "lacking"),
    [
        ({"contents": "write", "pull_requests": "read"}, "Pull requests: write"),
        ({"contents": "read", "pull_requests": "write"}, "Contents: write"),
    ],
)
async def test_a_single_missing_permission_is_named(twin: TwinRepository, grants: dict[str, str], lacking: str) -> None:
    twin.hub.add_token(FINE, login="ada", permissions={"me/calc": "write"}, kind="fine-grained", grants=grants)
    error = await refused(twin, FINE)
    assert error.what == f"the token lacks the permission {lacking}"
    assert "PERDURE_GITHUB_TOKEN" in error.where


async def test_over_ssh_it_is_not_the_token_that_pushes(twin: TwinRepository) -> None:
    grants = {"contents": "read", "pull_requests": "write"}
    twin.hub.add_token(FINE, login="ada", permissions={"me/calc": "write"}, kind="fine-grained", grants=grants)
    known = Forges.from_environment({"PERDURE_GITHUB_URL": twin.hub.url, "PERDURE_GITHUB_TOKEN": FINE})
    forge = known.forge("git@127.0.0.1:me/calc.git")
    assert isinstance(forge, GitHub)
    assert (await to_thread(forge.check_access, "main")).notes == ()


async def test_switched_off_issues_are_worth_a_word(twin: TwinRepository) -> None:
    twin.hub.add_repository("me/quiet", has_issues=False)
    access = await to_thread(twin.forge(name="me/quiet").check_access, "main")
    assert access.notes == ("me/quiet has its issues switched off",)


async def test_a_github_that_is_away_is_tried_again(twin: TwinRepository) -> None:
    for operation in ("repos/get", "repos/get-branch"):
        twin.hub.faults.add(operation, "bad_gateway")
        with pytest.raises(ForgeUnavailable):
            await to_thread(twin.forge().check_access, "main")
    await to_thread(twin.forge().check_access, "main")


def _pattern(kind: str, operator: str, pattern: str, **more: object) -> dict[str, object]:
    return {"type": kind, "parameters": {"operator": operator, "pattern": pattern, **more}}


OURS = "perdure/ours"
REFUSING: list[tuple[dict[str, object], str]] = [
    ({"type": "creation"}, "creates such a branch"),
    ({"type": "required_signatures"}, "verified signature"),
    ({"type": "merge_queue"}, "merge queue"),
    (_pattern("branch_name_pattern", "starts_with", "feature/"), "its name must begin with feature/"),
    (_pattern("branch_name_pattern", "regex", "^(feature|fix)/"), "its name must match ^(feature|fix)/"),
    (_pattern("branch_name_pattern", "contains", "ours", negate=True), "must not contain ours"),
    (_pattern("commit_author_email_pattern", "ends_with", "@acme.example"), "the author's address"),
    (_pattern("committer_email_pattern", "ends_with", "@acme.example"), "the committer's address"),
    (
        {
            "type": "required_status_checks",
            "parameters": {"required_status_checks": [], "strict_required_status_checks_policy": False},
        },
        "checks must have passed",
    ),
]
"""By GitHub's description of its rules: the first answer to a push of a new branch of ours is no."""


@pytest.mark.parametrize(("rule", "words"), REFUSING, ids=[str(words) for _, words in REFUSING])
async def test_a_rule_that_would_refuse_the_push_is_named_with_what_to_do(
    twin: TwinRepository, rule: dict[str, object], words: str
) -> None:
    twin.hub.add_ruleset("me/calc", "perdure/*", rules=[rule])
    with pytest.raises(ForgeRefused) as caught:
        await to_thread(twin.forge().check_access, "main", [OURS])
    assert caught.value.what.startswith(f"a rule of me/calc ({rule['type']}) would refuse the push of {OURS}: ")
    assert words in caught.value.what
    assert "bypass the ruleset, or set [git] branch" in caught.value.fix
    assert (await to_thread(twin.forge().check_access, "main", ["elsewhere"])).notes == ()


async def test_who_stands_above_a_rule_is_not_held_up_by_it(twin: TwinRepository) -> None:
    twin.hub.add_ruleset("me/calc", "*", rules=[{"type": "creation"}], bypass=("perdure-bot",))
    assert (await to_thread(twin.forge().check_access, "main", [OURS])).notes == ()


async def test_rules_of_the_base_and_of_merging_are_no_obstacle(twin: TwinRepository) -> None:
    demands = {"required_status_checks": [], "strict_required_status_checks_policy": True}
    rules: list[dict[str, object]] = [
        {"type": "creation"},
        {"type": "required_signatures"},
        {"type": "required_status_checks", "parameters": demands},
    ]
    twin.hub.add_ruleset("me/calc", "main", rules=rules)
    harmless = {**demands, "do_not_enforce_on_create": True}
    more = [{"type": "deletion"}, {"type": "non_fast_forward"}, {"type": "required_linear_history"}]
    kept = [
        _pattern("branch_name_pattern", "regex", "^perdure/[a-z]+$"),
        {"type": "required_status_checks", "parameters": harmless},
    ]
    twin.hub.add_ruleset("me/calc", "perdure/*", rules=[*more, *kept])
    assert (await to_thread(twin.forge().check_access, "main", [OURS])).notes == ()


async def test_a_rule_for_what_is_not_written_yet_is_a_note(twin: TwinRepository) -> None:
    twin.hub.add_ruleset("me/calc", "*", rules=[_pattern("commit_message_pattern", "starts_with", "CALC-")])
    (note,) = (await to_thread(twin.forge().check_access, "main", [OURS])).notes
    assert f"a rule for {OURS} is about the messages of commits must begin with CALC-: say so in the request" in note


@pytest.mark.parametrize("pattern", ["(a+)+$", "[[:alpha:]]+", "(?<never"])
async def test_a_pattern_that_cannot_be_tried_is_a_note_and_no_wait(twin: TwinRepository, pattern: str) -> None:
    twin.hub.add_ruleset("me/calc", "*", rules=[_pattern("branch_name_pattern", "regex", pattern)])
    (note,) = (await to_thread(twin.forge().check_access, "main", ["a" * 60 + "b"])).notes
    assert "could not be tried" in note


async def test_of_several_possible_names_one_that_is_let_in_is_enough(twin: TwinRepository) -> None:
    twin.hub.add_ruleset("me/calc", "chore/*", rules=[{"type": "creation"}])
    (note,) = (await to_thread(twin.forge().check_access, "main", ["bug/x", "chore/x"])).notes
    assert "would refuse the push of chore/x" in note


async def test_an_existing_branch_that_must_not_change_is_refused(twin: TwinRepository) -> None:
    twin.hub.add_ruleset("me/calc", "*", rules=[{"type": "creation"}, {"type": "update"}])
    with pytest.raises(ForgeRefused, match="changes such a branch"):
        await to_thread(twin.forge().check_access, "main", ["main"])


async def test_more_rules_than_one_answer_holds_are_all_looked_at(twin: TwinRepository) -> None:
    many = [_pattern("branch_name_pattern", "contains", "/") for _ in range(100)]
    twin.hub.add_ruleset("me/calc", "*", rules=[*many, {"type": "creation"}])
    with pytest.raises(ForgeRefused, match="creation"):
        await to_thread(twin.forge().check_access, "main", [OURS])


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
