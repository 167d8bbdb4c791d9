"""The guides in docs/ say what the code does: their examples are read by it, their lists are complete."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import time
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from typer.main import get_command

from perdure.adapters.agents.presets import SHIPPED
from perdure.adapters.forges.github.server import URL
from perdure.adapters.forges.github.site import APP_ID, SECRET_VARIABLES
from perdure.adapters.notify.addresses import NOTIFY_SECRET_BYTES, parse_secret, webhook_headers
from perdure.adapters.notify.webhook import NOTIFY_ATTEMPT_S
from perdure.adapters.repository.config import load_repository_config
from perdure.adapters.repository.host import OTHER_VARIABLES, VARIABLES
from perdure.cli.app import app
from perdure.cli.request.issue import parse_issue_name
from perdure.client.yaml_files import parse_backlog_file
from perdure.models.backlog.request import BacklogItem, BacklogRequest
from perdure.models.config.host import HostConfig, NoticeEvent
from perdure.models.config.preset import Abilities, Preset, ResultSelectors
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.decisions import Say
from perdure.models.delivery.steps import STEPS
from perdure.models.issue import mentioned_issues
from perdure.models.limits import NOTIFY_PAUSE, NOTIFY_PAUSE_MAX
from perdure.models.notice import WebhookMessage
from perdure.models.phases import Phase, Step
from perdure.models.rules.backlog import parse_backlog
from perdure.models.rules.inbox import DECISION_MODELS
from perdure.rehearsal.screenplay import Fault, Line, Screenplay
from workflows.gates import REMIND_AFTER, REMIND_LATER, REMINDERS
from workflows.notification import NOTIFY_FOR_TIME

DOCS = Path(__file__).parents[2] / "docs"
INTERNAL = {
    "PERDURE_REPORTS",
    "PERDURE_FORKS_FD",
    "PERDURE_SECRETS_FD",
    "PERDURE_CRASH_AT",
    "PERDURE_DEBUG",
    "PERDURE_MODEL_SILENCE_S",
    "PERDURE_AGENT_IDLE_S",
    "PERDURE_MODEL_WINDOW",
    "PERDURE_SQLITE_SYNCHRONOUS",
}
"""For tests and for finding faults; not for people."""

"""Reasons that nothing ends with yet."""


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def example(guide: str, name: str) -> str:
    found = re.search(rf"<!-- tested: {re.escape(name)} -->\n```toml\n(.*?)```", text(guide), re.DOTALL)
    assert found, f"{guide} has no example {name}"
    return found[1]


def test_the_perdure_toml_of_the_guide_is_read_and_names_every_key() -> None:
    written = example("configuration.md", "perdure.toml")
    shown = load_repository_config(written, "docs/configuration.md")
    assert shown.delivery == RepositoryConfig(version=1).delivery
    assert shown.limits == RepositoryConfig(version=1).limits
    assert shown.steps == RepositoryConfig(version=1).steps
    assert shown.ship == RepositoryConfig(version=1).ship
    assert missing(RepositoryConfig, tomllib.loads(written), text("configuration.md")) == []


def test_the_user_file_of_the_guide_is_read_and_holds_the_defaults() -> None:
    table = tomllib.loads(example("configuration.md", "config.toml"))
    shown, default = HostConfig.model_validate(table), HostConfig()
    assert (shown.sandbox, shown.slots, shown.ports, shown.steps) == (
        default.sandbox,
        default.slots,
        default.ports,
        default.steps,
    )
    assert (shown.limits.budget_usd, shown.limits.time) == (default.limits.budget_usd, default.limits.time)


def test_every_variable_that_a_person_may_set_is_in_the_guide() -> None:
    named = set(re.findall(r"PERDURE_[A-Z_]+", text("configuration.md")))
    assert named == {*VARIABLES, *OTHER_VARIABLES} - INTERNAL


def test_the_screenplay_of_the_guide_is_one_and_every_key_and_fault_is_named() -> None:
    guide = text("screenplay.md")
    Screenplay.parse(example("screenplay.md", "screenplay"))
    assert [name for name in Line.model_fields if f"`{name}`" not in guide] == []
    assert [fault for fault in Fault if f"`{fault}`" not in guide] == []


@pytest.mark.parametrize("words", [Phase, Step])
def test_every_word_of_the_process_is_in_the_guide(words: type) -> None:
    assert [word for word in words if f"`{word}`" not in text("phases.md")] == []


def missing(model: type[BaseModel], table: dict[str, object], guide: str, path: str = "") -> list[str]:
    """Keys of a settings model that its example lacks and the guide does not name either."""
    found = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        value = table.get(key)
        inner = field.annotation
        if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, BaseModel):
            if path != "steps.":
                found += missing(inner, value, guide, f"{path}{key}.")
        elif key not in table and key not in guide:
            found.append(path + key)
    return found


TEXT = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")


def wire_names(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def test_the_preset_of_the_guide_can_be_read_and_shows_every_key() -> None:
    block = re.search(r"<!-- tested: preset -->\n```toml\n(.*?)```", TEXT, re.DOTALL)
    assert block
    Preset.model_validate(written := tomllib.loads(block[1]))
    assert set(Preset.model_fields) - set(written) == {"network"}
    assert set(ResultSelectors.model_fields) - set(written["result"]) == {"denied"}
    assert set(written["abilities"]) <= wire_names(Abilities)
    assert all(f"`{name}`" in TEXT for name in wire_names(Abilities))


def test_every_preset_that_ships_is_in_the_guides_table() -> None:
    rows = set(re.findall(r"^\| `([a-z-]+)` \| (?:anthropic|openai-|gemini)", TEXT, re.MULTILINE))
    assert rows == {path.stem for path in SHIPPED.glob("*.toml")}


ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "backlog.md").read_text(encoding="utf-8")
UNSAID = {"source", "proof", "host", "land", "branch"}
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


GUIDE_OF_GITHUB = (Path(__file__).parents[2] / "docs" / "github.md").read_text(encoding="utf-8")


def test_every_variable_for_github_is_in_the_guide_and_no_other() -> None:
    named = set(re.findall(r"\b(?:PERDURE_[A-Z_]+|G(?:ITHUB|H)_[A-Z_]*TOKEN)\b", GUIDE_OF_GITHUB))
    assert named >= {*SECRET_VARIABLES, URL, APP_ID}
    assert named <= {*SECRET_VARIABLES, URL, APP_ID, *OTHER_VARIABLES, *VARIABLES}


def test_every_way_to_name_the_issue_in_the_guide_names_it() -> None:
    block = GUIDE_OF_GITHUB.split("All of these name the same one")[1].split("```")[1]
    commands = [shlex.split(line) for line in block.strip().splitlines()]
    assert len(commands) == 5
    for program, command, *words in commands:
        assert (program, command) == ("perdure", "deliver")
        option = words[words.index("--issue") + 1] if "--issue" in words else None
        texts = [word for word in words if word not in ("--issue", option)]
        name = parse_issue_name(option, texts[0] if texts else None)
        assert (name.number if name else mentioned_issues(texts[0])[0]) == 12


GUIDE_OF_NOTIFICATIONS = (Path(__file__).parents[2] / "docs" / "notifications.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", GUIDE_OF_NOTIFICATIONS, re.DOTALL)
    assert found
    return found[1]


def test_the_settings_of_the_guide_are_read_and_name_every_event() -> None:
    shown = HostConfig.model_validate(tomllib.loads(block("toml"))).notify
    assert len(shown.url) == 2
    assert shown.events == HostConfig().notify.events == get_args(NoticeEvent)
    assert re.findall(r"^\| `(\w+)` \|", GUIDE_OF_NOTIFICATIONS, re.MULTILINE) == list(get_args(NoticeEvent))


def test_the_message_of_the_guide_is_one() -> None:
    shown = json.loads(block("json"))
    assert shown.keys() <= WebhookMessage.model_json_schema()["properties"].keys()
    shown["decisions"][0]["said"]["of"] = shown["of"]
    assert WebhookMessage.model_validate(shown).decisions[0].update == "approve"


def test_the_check_of_the_guide_accepts_what_is_signed_and_nothing_else() -> None:
    secret, body = "whsec_" + base64.b64encode(b"k" * 32).decode(), b'{"text": "hello"}'
    signed = webhook_headers(
        "notice-1", int(time.time()), body, [parse_secret(secret, "x"), b"an older key, also signing"]
    )
    names: dict[str, Any] = {}
    exec(block("python"), names)
    assert names["genuine"](signed, body, secret)
    assert not names["genuine"](signed, body + b" ", secret)
    again = webhook_headers("notice-1", int(time.time()) - 400, body, [parse_secret(secret, "x")])
    assert not names["genuine"](again, body, secret), "sent again by somebody who has seen it"


def test_the_check_of_the_guide_in_a_shell_does_the_same(tmp_path: Path) -> None:
    secret, body = "whsec_" + base64.b64encode(bytes(range(256))).decode().strip(), b"{'\\n': 1}\n\n"
    signed = webhook_headers("notice-1", 1, body, [b"an older key, also signing", parse_secret(secret, "x")])
    known = {name.replace("-", "_"): value for name, value in signed.items()}
    for seen, said in ((body, "genuine"), (body + b"\n", "forged")):
        (tmp_path / "body").write_bytes(seen)
        env = {"PATH": os.environ["PATH"], "PERDURE_WEBHOOK_SECRET": secret, **known}
        ran = subprocess.run(
            ["sh", "-euc", block("sh")], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30
        )
        assert ran.stdout == f"{said}\n", ran.stderr


def test_the_figures_of_the_guide_are_those_of_the_code() -> None:
    text = " ".join(GUIDE_OF_NOTIFICATIONS.split())
    assert f"within {NOTIFY_ATTEMPT_S:.0f} seconds" in text
    assert NOTIFY_FOR_TIME.days == 1
    assert f"after {NOTIFY_PAUSE.seconds} seconds" in text
    assert f"every {NOTIFY_PAUSE_MAX.seconds // 60} minutes" in text
    assert f"at least {NOTIFY_SECRET_BYTES} of them" in text
    assert (timedelta(days=1), 7, timedelta(weeks=1)) == (REMIND_AFTER, REMINDERS, REMIND_LATER)
    assert "a day later, daily for a week, then weekly" in text


GUIDE_OF_QUESTIONS = (Path(__file__).parents[2] / "docs" / "questions.md").read_text(encoding="utf-8")


def test_the_steps_that_ask_are_the_ones_it_names() -> None:
    named = GUIDE_OF_QUESTIONS.partition("In the steps")[2].partition("it has")[0]
    assert set(re.findall(r"`(\w+)`", named)) == {step for step, about in STEPS.items() if about.may_ask}


def test_its_settings_switch_questions_off_and_its_messages_are_understood() -> None:
    found = re.search(r"<!-- tested: perdure.toml -->\n```toml\n(.*?)```", GUIDE_OF_QUESTIONS, re.DOTALL)
    assert found
    assert load_repository_config(found[1], "docs/questions.md").delivery.questions is False
    assert DECISION_MODELS["answer"].model_validate({"answer": "minus"})
    assert Say.model_validate({"text": "…"})
