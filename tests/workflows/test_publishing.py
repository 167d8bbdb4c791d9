"""A delivery looks first at its forge, waits for one that is away, and publishes no secret."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from perdure.client import Perdure
from perdure.models.delivery.result import DeliveryResult, Status
from perdure.models.delivery.work import InspectResult
from perdure.models.phases import Phase
from tests.deliveries import ADelivery, Script, playing
from tests.engine import until
from workflows.publishing import QUEUE_PATIENCE

AWAY = timedelta(seconds=1)


def away(pause: timedelta | None = timedelta(milliseconds=50)) -> ApplicationError:
    return ApplicationError("GitHub answers 502\n  where: pulls", type="ForgeUnavailable", next_retry_delay=pause)


@pytest.fixture
def hosted(script: Script) -> Script:
    """A delivery of issue 12, at a forge with accounts, that only builds and ships."""
    script.phases = (Phase.BUILD, Phase.SHIP)
    script.settings = {"hosted": True, "issue": 12, "title": "Add sub", "allow_untested": True}
    script.turn = script.builds
    return script


async def deliver(client: Client, script: Script, fresh: str) -> DeliveryResult:
    async with playing(client, script):
        submitted = await Perdure(client).submit({"repository": "/srv/calc", "request": "Add sub"}, fresh)
        return await submitted.delivery.result()


@pytest.mark.story
async def test_the_issue_is_told_at_the_start_and_at_the_end(client: Client, hosted: Script, fresh: str) -> None:
    result = await deliver(client, hosted, fresh)
    assert result.status is Status.DELIVERED
    assert [told.status for told in hosted.told] == ["running", "delivered"]
    assert hosted.told[1].pull_request == result.pull_request
    (shipped,) = hosted.shipped
    assert (shipped.title, shipped.artifacts) == ("Add sub", {"plan.md": "http://forge/plan"})


@pytest.mark.story
async def test_the_issue_says_while_it_waits_for_a_person_and_when_it_goes_on(
    client: Client, hosted: Script, fresh: str
) -> None:
    hosted.settings |= {"asks": True, "gates": ("pull_request",), "comments": True}
    async with playing(client, hosted):
        delivery = (await Perdure(client).submit({"repository": "/srv/calc", "request": "Add sub"}, fresh)).delivery
        await until(lambda: len(hosted.told) == 2, 20)
        await delivery.approve()
        assert (await delivery.result()).status is Status.DELIVERED
    assert [(told.status, bool(told.waiting)) for told in hosted.told] == [
        *(("running", False), ("running", True), ("running", False), ("delivered", False))
    ]
    assert hosted.told[1].waiting == "publish h1 as a pull request"


@pytest.mark.story
async def test_a_cancel_that_comes_while_the_issue_is_told_of_a_gate_ends_the_wait(
    client: Client, hosted: Script, fresh: str
) -> None:
    hosted.settings |= {"asks": True, "gates": ("pull_request",), "comments": True}
    async with playing(client, hosted):
        delivery = (await Perdure(client).submit({"repository": "/srv/calc", "request": "Add sub"}, fresh)).delivery
        await until(lambda: hosted.told, 20)
        hosted.troubles = {"comment": [away(AWAY), away(AWAY)]}
        await until(lambda: any(told.waiting for told in hosted.told), 20)
        await delivery.cancel()
        assert (await delivery.result()).status is Status.CANCELLED


@pytest.mark.story
async def test_a_forge_that_is_away_is_waited_for_and_the_delivery_says_so(
    client: Client, hosted: Script, fresh: str
) -> None:
    hosted.troubles = {"open_pull_request": [away(), away(AWAY), away()]}
    async with playing(client, hosted):
        submitted = await Perdure(client).submit({"repository": "/srv/calc", "request": "Add sub"}, fresh)
        handle = client.get_workflow_handle(fresh)

        async def waiting() -> str:
            return str((await handle.query("progress"))["waiting"])

        words = await until(waiting, 20)
        assert words.startswith("GitHub answers 502 (since ")
        assert "next try at" in words
        assert "**Waiting:** GitHub answers 502" in str(await handle.query("__temporal_workflow_metadata"))
        result = await submitted.delivery.result()
    assert result.status is Status.DELIVERED
    assert len(hosted.shipped) == 4
    assert [step.step for step in result.steps].count("open_pull_request") == 1
    assert result.message == ""


@pytest.mark.story
async def test_a_forge_that_says_no_before_the_start_costs_nothing(client: Client, hosted: Script, fresh: str) -> None:
    refusal = ApplicationError("the token lacks repo", type="ForgeRefused", non_retryable=True)
    hosted.troubles = {"check_access": [away(), refusal]}
    result = await deliver(client, hosted, fresh)
    assert (result.status, result.reason) == (Status.NOT_DELIVERED, "forge_refused")
    assert result.message == "the token lacks repo"
    assert hosted.seen == []


@pytest.mark.story
async def test_an_issue_or_a_branch_that_cannot_be_written_to_keeps_nothing_from_being_delivered(
    client: Client, hosted: Script, fresh: str
) -> None:
    no = [ApplicationError("no permission", type="ForgeRefused", non_retryable=True) for _ in range(3)]
    hosted.troubles = {"comment": no[:2], "publish_artifacts": no[2:]}
    result = await deliver(client, hosted, fresh)
    assert result.status is Status.DELIVERED
    assert len(hosted.told) == 2
    assert hosted.shipped[0].artifacts == {}


@pytest.mark.story
async def test_a_cancelled_delivery_tells_its_issue(client: Client, hosted: Script, fresh: str) -> None:
    hosted.troubles = {"open_pull_request": [away(timedelta(hours=1))]}
    async with playing(client, hosted):
        submitted = await Perdure(client).submit({"repository": "/srv/calc", "request": "Add sub"}, fresh)
        await until(lambda: hosted.shipped, 20)
        await submitted.delivery.cancel()
        result = await submitted.delivery.result()
    assert result.status is Status.CANCELLED
    assert [told.status for told in hosted.told] == ["running", "cancelled"]
    assert result.steps[-1].status == "cancelled"


@pytest.mark.story
@pytest.mark.long
async def test_a_publisher_that_is_not_there_is_named(client: Client, hosted: Script, fresh: str) -> None:
    hosted.settings |= {"publisher": "publish-h1"}
    async with playing(client, hosted):
        submitted = await Perdure(client).submit({"repository": "/srv/calc", "request": "Add sub"}, fresh)
        handle = client.get_workflow_handle(fresh)

        async def waiting() -> str:
            return str((await handle.query("progress"))["waiting"])

        words = await until(waiting, QUEUE_PATIENCE.total_seconds() + 20)
        assert words.startswith("the publisher is not there: nobody takes work from queue publish-h1")
        assert hosted.seen == []
        await submitted.delivery.cancel()
        assert (await submitted.delivery.result()).status is Status.CANCELLED


@pytest.mark.story
async def test_waiting_for_the_forge_does_not_use_up_the_time_for_the_work(
    client: Client, hosted: Script, fresh: str
) -> None:
    hosted.settings |= {"time_s": 4.0}
    hosted.troubles = {"check_access": [away(timedelta(seconds=5))]}
    assert (await deliver(client, hosted, fresh)).status is Status.DELIVERED


@pytest.mark.story
async def test_a_retry_whose_workspace_cannot_be_prepared_ends_and_says_so(
    client: Client, hosted: Script, fresh: str
) -> None:
    hosted.troubles = {"open_pull_request": [ApplicationError("no", type="ForgeRefused", non_retryable=True)]}
    async with playing(client, hosted):
        submitted = await Perdure(client).submit({"repository": "/srv/calc", "request": "Add sub"}, fresh)
        assert (await submitted.delivery.result()).reason == "forge_refused"
        hosted.settings |= {"fails": "SetupFailed"}
        await submitted.delivery.retry()
        assert (await submitted.delivery.result()).reason == "setup_failed"
    assert [told.status for told in hosted.told] == ["running", "not_delivered"]


LEAK = InspectResult(blockers=1, secrets=1, summary="1 blocker: a GitHub token in calc.py")


async def test_the_branch_of_a_change_with_a_secret_is_not_pushed(a_delivery: ADelivery) -> None:
    request = {"branch": "feature", "push": True}
    async with a_delivery(Phase.BUILD, request=request, inspects=True, inspections=[LEAK]) as delivery:
        result = await delivery.ended()
    assert (result.status, result.reason, delivery.script.pushed) == ("not_delivered", "blockers", [])
    assert result.message == f"nothing was pushed: {LEAK.summary}"


async def test_a_draft_of_what_could_not_be_delivered_may_lack_everything_but_hold_no_secret(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(Phase.BUILD, Phase.SHIP, inspects=True, inspections=[LEAK], on_failure="draft") as delivery:
        result = await delivery.ended()
    assert (result.status, result.reason, delivery.script.shipped) == ("not_delivered", "blockers", [])
    assert result.message == f"nothing was pushed: {LEAK.summary}"


async def test_a_secret_that_came_with_what_a_person_asked_for_at_the_pull_request_is_not_published(
    a_delivery: ADelivery,
) -> None:
    looks = {"inspects": True, "inspections": [InspectResult(), LEAK]}
    async with a_delivery(Phase.BUILD, Phase.SHIP, **looks, commits=["h1", "h2"], gates=("pull_request",)) as delivery:
        await delivery.pending()
        await delivery.update("reject", note="show how it is called")
        result = await delivery.ended()
    assert (result.status, result.reason, delivery.script.shipped) == ("not_delivered", "blockers", [])
    assert result.message == f"nothing was pushed: {LEAK.summary}"
