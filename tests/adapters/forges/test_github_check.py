"""What is missing is named before any money is spent, and what is worth knowing is said."""

from __future__ import annotations

from asyncio import to_thread

import pytest
from twin_repository import TOKEN, TwinRepository

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
