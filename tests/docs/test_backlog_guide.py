"""The guide of backlogs: its file is read, names every field, and its commands and messages are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.main import get_command

from perdure.cli.app import app
from perdure.client.yaml_files import parse_backlog_file
from perdure.models.backlog.request import BacklogItem, BacklogRequest
from perdure.models.rules.backlog import parse_backlog

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "backlog.md").read_text(encoding="utf-8")
UNSAID = {"source", "proof", "land", "branch"}
"""Set by the command line, or with one value so far, or a default that nobody needs to know."""


def test_the_file_of_the_guide_is_read_and_names_every_field() -> None:
    found = re.search(r"<!-- tested: backlog -->\n```yaml\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    request = parse_backlog(parse_backlog_file(found[1], "night.yaml").raw)
    assert [item.id for item in request.items] == ["api", "page", "issue-14"]
    assert [name for name in BacklogRequest.model_fields if name not in UNSAID and name not in found[1]] == []
    assert [name for name in BacklogItem.model_fields if name not in found[1]] == []


def test_every_command_of_backlogs_is_in_the_guide() -> None:
    group = getattr(get_command(app), "commands", {})["backlog"]
    assert [name for name in group.commands if not re.search(rf"\b{name}\b", GUIDE)] == []
    start = {option for param in group.commands["start"].params for option in param.opts if option.startswith("--")}
    assert [option for option in start if option not in GUIDE and option != "--help"] == []


def test_what_the_guide_sends_by_hand_is_json_that_is_taken() -> None:
    sent = [json.loads(text) for text in re.findall(r"--input '(.*?)'", GUIDE)]
    assert [item.id for item in parse_backlog(sent[0]).items] == ["issue-12", "issue-14"]
    assert [sorted(one) for one in sent[1:3]] == [["item"], ["item", "note"]]


@pytest.mark.parametrize("name", ["night.yaml"])
def test_the_example_is_a_backlog_with_a_conflict_and_an_item_that_is_blocked(name: str) -> None:
    path = ROOT / "examples" / "backlog" / name
    request = parse_backlog(parse_backlog_file(path.read_text(encoding="utf-8"), name).raw)
    assert (len(request.items), request.parallel) == (8, 4)
    assert {item.id for item in request.items if "halves" in item.depends_on} == {"invoice"}
