"""Red as the base was, and nothing but exit codes: a person says whether that is new."""

from __future__ import annotations

import pytest
from temporalio.client import Client

from perdure.client import Perdure
from perdure.models.delivery.result import DeliveryResult, Status, TestsStatus
from perdure.models.delivery.work import TestVerdict
from tests.deliveries import ADelivery, Script

WORDS = "new and old failures cannot be told apart: unit: exit code 1"


class Doubtful(Script):
    """Its tests are red as the base was, on one tree a commit; `verdicts` says how often."""

    def __init__(self, *, doubted: int) -> None:
        super().__init__(gates=("tests",), allow_untested=False)
        self.blockers = []
        self.verdicts, self.doubted, self.asked = [], doubted, 0

    def verdict(self, attempt: int) -> TestVerdict:
        self.asked += 1
        status = TestsStatus.RED if self.asked <= self.doubted else TestsStatus.GREEN
        summary = "unit: exit code 1" if status is TestsStatus.RED else "3 green"
        tree = f"{attempt:0>40}"[::-1]
        return TestVerdict(status=status, tree=tree, report="r", summary=summary, undecidable=status is TestsStatus.RED)


async def delivered(client: Client, id: str) -> DeliveryResult:
    return await Perdure(client).delivery(id).result()


async def test_what_a_person_lets_through_is_published_with_their_word(a_delivery: ADelivery) -> None:
    script = Doubtful(doubted=1)
    async with a_delivery(script=script) as delivery:
        asked = await delivery.pending()
        assert (asked.gate, asked.options) == ("tests", ("approve", "reject"))
        assert asked.summary.startswith(WORDS)
        assert script.shipped == []
        said = {"of": asked.target, "note": "it is the old one", "by": "Ada"}
        assert await delivery.handle.execute_update("approve", said) == f"approved: tests {asked.target}"
        result = await delivery.ended()
    assert (result.status, result.tests.status) == (Status.DELIVERED, TestsStatus.RED)
    assert result.tests.accepted == "approved by Ada: it is the old one"
    [shipped] = script.shipped
    assert (shipped.draft, shipped.draft_reason, shipped.accepted) == (False, "", result.tests.accepted)


async def test_what_a_person_calls_new_is_mended_in_their_words_and_asked_again_for_the_new_tree(
    a_delivery: ADelivery,
) -> None:
    script = Doubtful(doubted=2)
    async with a_delivery(script=script) as delivery:
        first = await delivery.pending()
        await delivery.update("reject", of=first.target, note="test_sub is new")
        second = await delivery.pending(behind=first)
        await delivery.update("reject", of=second.target, note="it still is")
        result = await delivery.ended()
    assert (result.status, result.tests.status, result.tests.accepted) == (Status.DELIVERED, TestsStatus.GREEN, "")
    fixes = [work for work in script.seen if work.step == "fix_tests" and work.turn == 1]
    assert [(work.attempt, work.materials["words"]) for work in fixes] == [(1, "test_sub is new"), (2, "it still is")]
    assert [[said.text for said in work.delivered_messages] for work in fixes] == [[], ["test_sub is new"]]
    (review,) = [work for work in script.seen if work.step == "review"]
    assert [said.text for said in review.delivered_messages] == ["test_sub is new", "it still is"]


@pytest.mark.parametrize("gates", [(), ("tests",)])
async def test_where_nobody_is_asked_or_nobody_decides_in_time_it_is_a_draft_that_says_why(
    a_delivery: ADelivery, gates: tuple[str, ...]
) -> None:
    script = Doubtful(doubted=1)
    script.settings |= {"gates": gates, "expiry_s": 1.0}
    async with a_delivery(script=script) as delivery:
        result = await delivery.ended()
    assert (result.status, result.tests.accepted) == (Status.DRAFT, "")
    [shipped] = script.shipped
    assert (shipped.draft, shipped.draft_reason) == (True, WORDS)
