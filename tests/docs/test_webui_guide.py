"""docs/webui.md: what it says to paste into the Web UI's forms counts."""

from __future__ import annotations

import json
import re
from pathlib import Path

from perdure.models.base import UserInputModel
from perdure.models.delivery.decisions import Decide, Hold, Resume, Say, parse_input
from perdure.models.delivery.request import parse_request
from perdure.models.delivery.turn import VaultReadInput
from perdure.models.ids import MORE_ATTRIBUTES, SEARCH_ATTRIBUTES
from perdure.models.limits import TASK_QUEUE
from perdure.models.rules.inbox import DECISION_MODELS

GUIDE = (Path(__file__).parents[2] / "docs" / "webui.md").read_text(encoding="utf-8")
MESSAGES: dict[str, type[UserInputModel]] = {
    **DECISION_MODELS,
    "say": Say,
    "hold": Hold,
    "resume": Resume,
    "decide": Decide,
}


def test_every_message_of_the_guide_is_understood() -> None:
    rows = re.findall(r"^\| .*?`(\w+)` \| `(\{.*?\})`(?: \||,|:)", GUIDE, re.M)
    assert {name for name, _ in rows} == MESSAGES.keys() - {"edit_plan"}  # that one is sent from a terminal
    for name, said in rows:
        parse_input(MESSAGES[name], json.loads(said))


def test_the_request_of_the_guide_starts_a_delivery() -> None:
    shown = re.search(r"```json\n(.*?)\n```", GUIDE, re.S)
    assert shown
    assert parse_request(json.loads(shown[1])).gates == ("plan", "pull_request")
    assert f"taskQueue={TASK_QUEUE}&workflowType=Delivery" in GUIDE


def test_the_guide_names_what_exists() -> None:
    assert set(re.findall(r"Perdure[A-Z]\w+", GUIDE)) <= SEARCH_ATTRIBUTES.keys() | MORE_ATTRIBUTES.keys()
    for said in re.findall(r"`(\{\"delivery\".*?\})`", GUIDE):
        VaultReadInput.model_validate(json.loads(said))
    links = re.findall(r"\]\(([\w.]+)\)", GUIDE)
    assert links
    assert all((Path(__file__).parents[2] / "docs" / link).exists() for link in links)
