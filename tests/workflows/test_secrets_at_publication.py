"""A change with a secret in it is published in no way, whether or not anybody reviewed it."""

from __future__ import annotations

from perdure.models.delivery.work import InspectResult
from perdure.models.phases import Phase
from tests.deliveries import ADelivery

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
