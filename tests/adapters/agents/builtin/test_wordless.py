"""A step about a branch of which nobody said in words what it is for."""

from __future__ import annotations

import pytest

from perdure.adapters.agents.builtin.opening import opening_message
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.turn import Contract
from perdure.models.issue import ForgeIssue
from perdure.models.phases import Step

CONTRACT = Contract(
    delivery="d",
    repository="https://example.org/calc.git",
    request="",
    base="main",
    base_sha="4be1c02",
    branch="topic",
    existing=True,
    config=RepositoryConfig(version=1),
)
ISSUE = ForgeIssue(number=1, title="Heated", url="https://github.com/me/calc/issues/1")


def words(contract: Contract) -> str:
    return "\n".join(block["text"] for block in opening_message(Step.FIX_TESTS, contract, {"report": "red"})["content"])


@pytest.mark.parametrize("request_", ["", " \n"])
def test_without_a_request_there_is_no_empty_frame_and_it_is_said(request_: str) -> None:
    text = words(CONTRACT.model_copy(update={"request": request_}))
    assert 'name="request"' not in text
    assert "Carry out step fix_tests for the change as it is: nobody said in words what was wanted." in text


@pytest.mark.parametrize("said", [{"request": "Add sub"}, {"issue": ISSUE}])
def test_with_words_or_an_issue_it_is_for_the_request(said: dict[str, object]) -> None:
    assert "Carry out step fix_tests for the request above." in words(CONTRACT.model_copy(update=said))
