"""A file of items: YAML or JSON, and each mistake with file, line and key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.cli.backlog.start import check_backlog, read_backlog_file
from perdure.cli.commands.backlog import BacklogOptions
from perdure.cli.request.validation import check_key
from perdure.client.yaml_files import BACKLOG_BYTES, parse_backlog_file
from perdure.models.errors import BadInput, InvalidRequest
from tests.engine import make_target

NIGHT = """\
version: 1
repository: .
window: 23:00-07:00
items:
  - id: api
    request: Add GET /durations
    depends_on: [no]

  - issue: 14
  - id: page
    request: |
      Show the durations
      on the start page
"""


def test_yaml_and_json_say_the_same() -> None:
    found = parse_backlog_file(NIGHT, "night.yaml").raw
    assert found["window"] == "23:00-07:00"
    assert found["items"][0]["depends_on"] == ["no"]
    assert found["items"][1] == {"issue": 14}
    for indent in (None, 2, "\t"):
        assert parse_backlog_file(json.dumps(found, indent=indent), "night.json").raw == found
    odd = {"a": "\U0001f600 \t \\ud83d / \x7f", "b": 'C:\\u0041 "x"'}
    assert parse_backlog_file(json.dumps(odd), "x").raw == odd
    assert parse_backlog_file('{"a": "x\\/y"}', "x").raw == {"a": "x/y"}


@pytest.mark.parametrize(
    ("said", "what", "where"),
    [
        ("items.0.depends_on: api, page, api", "depends_on: api, page, api", 'night.yaml:7 item "api"'),
        ("items.1.reqest: unknown field", "reqest: unknown field", "night.yaml:9 item #2"),
        ("items.2.request: is empty", "request: is empty", 'night.yaml:11 item "page"'),
        ("items.2: is twice", "is twice", 'night.yaml:10 item "page"'),
        ("window: never opens", "window: never opens", "night.yaml:3"),
        ("base: required field", "base: required field", "night.yaml:1"),
        ("a cycle: api, page", "a cycle: api, page", "night.yaml:1"),
        ("items.99.id: gone", "id: gone", "night.yaml:4 item #100"),
    ],
)
def test_what_is_refused_is_told_with_file_line_and_item(said: str, what: str, where: str) -> None:
    error = parse_backlog_file(NIGHT, "night.yaml").locate_error(InvalidRequest(said))
    assert (error.what, error.where) == (what, where)
    assert error.fix


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("items:\n  - id: a\n    id: b\n", "x:3", "id: is given twice"),
        ('{"items": [],\n "items": []}', "x:2", "items: is given twice"),
        ('{"items": [\n', "x:2", "not YAML"),
        ("- id: a\n", "x:1", "a backlog has fields"),
        ("", "x:1", "a backlog has fields"),
        ("a: &b 1\n", "x:1", "&names"),
    ],
)
def test_what_is_no_backlog_at_all_is_refused_with_its_line(text: str, where: str, what: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_backlog_file(text, "x")
    assert what in error.value.what
    assert error.value.where == where


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    large, odd = tmp_path / "large.yaml", tmp_path / "odd.yaml"
    large.write_text("#" * (BACKLOG_BYTES + 1))
    odd.write_bytes(b"a: \xff\n")
    for path in (large, odd, tmp_path / "gone.yaml", tmp_path):
        with pytest.raises(BadInput, match="cannot be read") as error:
            read_backlog_file(str(path))
        assert error.value.where == str(path)


def test_an_agent_that_an_option_names_counts_instead_of_the_files(tmp_path: Path) -> None:
    make_target(tmp_path / "calc.git")
    (tmp_path / "night.yaml").write_text("version: 1\nagent: codex\nitems:\n  - id: api\n    request: Add it\n")
    asked = {"file": str(tmp_path / "night.yaml"), "repo": str(tmp_path / "calc.git")}
    keys = {"ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}
    assert check_backlog(BacklogOptions(**asked), keys).request.agent == "codex"
    assert check_backlog(BacklogOptions(**asked, agent="claude-code"), keys).request.agent == "claude-code"


@pytest.mark.parametrize(
    ("agent", "has", "where"),
    [
        ("codex", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
        ("gemini", "OPENAI_API_KEY", "GEMINI_API_KEY"),
        ("claude-code", "OPENAI_API_KEY", "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"),
        ("built-in", "OPENAI_API_KEY", "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"),
    ],
)
def test_the_key_that_is_needed_is_that_of_the_agent(agent: str, has: str, where: str) -> None:
    with pytest.raises(BadInput, match=f"there is no key for the model of {agent}") as error:
        check_key({has: "none"}, agent)
    assert error.value.where == where
    check_key({where.partition(" ")[0]: "none"}, agent)
    with pytest.raises(BadInput, match=r"no agent is called 'codecs' on this host .did you mean codex"):
        check_key({has: "none"}, "codecs")


def test_an_address_alone_is_no_key_and_any_will_do_where_it_needs_none() -> None:
    with pytest.raises(BadInput, match="there is no key for the model") as error:
        check_key({"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"})
    assert "export ANTHROPIC_API_KEY=… (where ANTHROPIC_BASE_URL needs none, any will do)" in str(error.value.fix)
    check_key({"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": "none"})


def test_settings_that_stand_in_the_file_count_and_are_named(tmp_path: Path) -> None:
    make_target(tmp_path / "calc.git", {"perdure.toml": "version = 1\n[limits]\ntest_fixes = 3\n"})
    night, mine = tmp_path / "night.yaml", tmp_path / "mine.toml"
    items = "items:\n  - id: api\n    request: Add it\n"
    night.write_text("version: 1\nconfig: |\n  version = 1\n  [limits]\n  test_fixes = 1\n" + items)
    mine.write_text("version = 1\n[limits]\ntest_fixes = 2\n")
    for config, named, fixes in ((None, f"{night}: config", 1), (mine, f"{mine} (--config)", 2)):
        asked = BacklogOptions(file=str(night), repo=str(tmp_path / "calc.git"), config=config)
        taken = check_backlog(asked, {"ANTHROPIC_API_KEY": "none"}).stand_in
        assert taken.repository_config is not None
        assert (taken.file, taken.repository_config.limits.test_fixes) == (named, fixes)
