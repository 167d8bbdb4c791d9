"""An issue on GitHub becomes one pull request that closes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.models.delivery.result import Reason, Status
from tests.crash_points import AT_A_HOSTED_FORGE
from tests.engine import HAPPY, finished, git, heads, until
from tests.engine_with_github import BUILD, ID, TOKEN, EngineWithGitHub, engine_with_github


@pytest.mark.always
@pytest.mark.timeout(120)
async def test_an_issue_ends_in_a_pull_request_that_closes_it_and_what_is_no_open_issue_is_refused_with_words(
    tmp_path: Path, ports: int
) -> None:
    async with engine_with_github(tmp_path, HAPPY, ports=ports) as world:
        worker = world.engine.worker()
        submitted = await world.submit()
        assert submitted.delivery.id == ID
        again = await world.submit()
        assert again.attached
        await until((world.engine.home.tree(ID) / "calc.py").exists)
        result = await finished(submitted, world.engine)
        assert result.status is Status.DELIVERED, (result.message, world.engine.worker_log()[-3000:])
        pull = world.check_one(result)
        assert pull["title"] == "feat: add sub"
        assert "Closes #1" in pull["body"].splitlines()
        assert "worker deaths" in pull["body"]
        assert pull["body"].rstrip().endswith(f"<!-- perdure:delivery={ID} -->")
        assert [label["name"] for label in pull["labels"]] == ["perdure"]
        assert result.pull_request is not None
        assert result.pull_request.url == f"{world.url}/pull/{pull['number']}"
        assert "perdure-artifacts" in heads(world.bare)
        listed = git(world.bare, "ls-tree", "-r", "--name-only", "perdure-artifacts").splitlines()
        assert f"{ID}/plan.md" in listed
        await _strangers_words_are_data(world)
        await _refused(world, result.pull_request.number)
        world.github.merge("me/calc", pull["number"])
        assert world.github.issue("me/calc", world.issue)["state"] == "closed"
        assert worker.poll() is None


async def _strangers_words_are_data(world: EngineWithGitHub) -> None:
    assert world.engine.rehearsal is not None
    calls = world.engine.rehearsal.calls
    assert any("There is add, there is no sub." in str(call.body["messages"]) for call in calls)
    assert all("Ignore all previous instructions" not in str(call.body.get("system")) for call in calls)


async def _refused(world: EngineWithGitHub, pull: int) -> None:
    """What is not an open issue, with words."""
    refused = {
        "closed": world.github.add_issue("me/calc", "Old", "done", state="closed"),
        "locked": world.github.add_issue("me/calc", "Hot", "stop", locked=True),
        "pull request": pull,
        "no issue": 99,
    }
    for words, number in refused.items():
        submitted = await world.engine.perdure.submit({"repository": world.url, "issue": number})
        with pytest.raises(Exception, match=words):
            await finished(submitted, world.engine)


BOTH = ",".join(AT_A_HOSTED_FORGE)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("points", [BOTH, *(pytest.param(p, marks=pytest.mark.slow) for p in AT_A_HOSTED_FORGE)])
async def test_a_worker_killed_between_an_effect_at_github_and_its_report_does_not_do_it_twice(
    points: str, tmp_path: Path, ports: int
) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports, env={"PERDURE_CRASH_AT": points}) as world:
        world.engine.kept()
        result = await finished(await world.build(), world.engine)
        assert result.receipt.worker_deaths == len(points.split(",")), world.engine.worker_log()[-3000:]
        world.check_one(result)


@pytest.mark.timeout(120)
async def test_a_refusal_of_the_forge_comes_before_the_first_cent(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        weak = "ghp_" + "readonly0" * 4
        world.github.add_token(weak, login="reader", scopes=("public_repo",), permissions={"me/calc": "read"})
        world.engine.worker(PERDURE_GITHUB_TOKEN=weak)
        result = await finished(await world.build(), world.engine)
        assert (result.status, result.reason) == (Status.NOT_DELIVERED, Reason.FORGE_REFUSED)
        assert "push" in result.message or "write" in result.message
        assert world.engine.model_calls() == 0
        assert TOKEN not in str(result)

        world.engine.kill_workers()
        world.github.add_ruleset("me/calc", "perdure/*", rules=[{"type": "creation"}])
        world.engine.worker()
        result = await finished(await world.build(id="calc-ruled"), world.engine)
        assert (result.status, result.reason) == (Status.NOT_DELIVERED, Reason.FORGE_REFUSED)
        assert (
            "(creation) would refuse the push of perdure/calc-ruled: nobody but those who may bypass" in result.message
        )
        assert world.engine.model_calls() == 0
        assert heads(world.bare).keys() == {"main"}
        assert world.github.pulls("me/calc") == []


@pytest.mark.timeout(120)
async def test_a_repository_that_was_renamed_is_followed_and_named(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        world.github.rename("me/calc", "me/sums")
        world.engine.worker()
        result = await finished(await world.build(), world.engine)
        assert result.pull_request is not None, (result.message, world.engine.worker_log()[-3000:])
        assert "me/sums" in result.message
        (pull,) = world.github.pulls("me/sums")
        assert pull["number"] == result.pull_request.number


@pytest.mark.timeout(120)
async def test_branches_that_are_protected_against_us_are_a_refusal_that_says_what_to_set(
    tmp_path: Path, ports: int
) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        world.github.protect("me/calc", "perdure/**")
        world.engine.worker()
        result = await finished(await world.build(), world.engine)
        assert (result.status, result.reason) == (Status.NOT_DELIVERED, Reason.FORGE_REFUSED)
        assert "[git] branch" in result.message
        assert world.github.pulls("me/calc") == []
        (comment,) = world.github.comments("me/calc", world.issue)[-1:]
        assert "not delivered" in comment["body"].lower()
