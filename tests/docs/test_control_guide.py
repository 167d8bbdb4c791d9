"""docs/control, recovery, reports, screenshots and webui say what the commands, numbers and names are."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from perdure.adapters.agents.builtin.model_request import PIXELS_PER_TOKEN
from perdure.adapters.browser.capture import (
    APP_PAGE_S,
    APP_PAGES_MOST,
    APP_READY_S,
    APP_S,
    PICTURE_HEIGHT,
    PICTURE_VIEWPORT,
    PICTURE_WIDTH,
    capture_app,
)
from perdure.adapters.repository.config import load_repository_config
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.sandbox.grades import probe
from perdure.adapters.system.home import Home
from perdure.adapters.worker.turn.delivery_text import TURN_SAID_CHARS
from perdure.adapters.worker.turn.materials import PICTURES_SHOWN, PICTURES_SHOWN_BYTES
from perdure.cli.app import app
from perdure.client import Delivery
from perdure.client.delivery.handle import ARTIFACT_READ_BYTES
from perdure.models.base import UserInputModel
from perdure.models.crash import CrashPoint
from perdure.models.delivery.decisions import (
    Decide,
    Gate,
    Hold,
    PendingDecision,
    Question,
    QuestionKind,
    Resume,
    Rewind,
    Say,
    parse_input,
)
from perdure.models.delivery.request import parse_request
from perdure.models.delivery.turn import VaultReadInput
from perdure.models.ids import MORE_ATTRIBUTES, SEARCH_ATTRIBUTES
from perdure.models.limits import TASK_QUEUE
from perdure.models.rules.inbox import DECISION_MODELS
from perdure.render.decision_lines import pending_lines
from perdure.render.formatting import REPORT_TEXT_CHARS
from perdure.render.report.gather import REPORT_PATIENCE, REPORT_PICTURES_BYTES
from perdure.render.report.page import REPORT_TESTS_SHOWN
from tests import needs

GUIDE = (Path(__file__).parents[2] / "docs" / "control.md").read_text(encoding="utf-8")
NOON = datetime(2031, 5, 1, 12, tzinfo=UTC)
ID = "durations-parse-3f9c"

MESSAGES: dict[str, type[UserInputModel]] = {
    **DECISION_MODELS,
    "say": Say,
    "hold": Hold,
    "resume": Resume,
    "rewind": Rewind,
    "decide": Decide,
}


@pytest.mark.parametrize(
    "asked",
    [
        PendingDecision(
            gate=Gate.PLAN,
            target="1a2b3c4d",
            summary="approve the plan: Accept compound durations",
            since=NOON,
            options=("approve", "reject", "edit_plan"),
        ),
        PendingDecision(
            gate=Gate.QUESTION,
            target="plan-1-2",
            summary="question",
            since=NOON,
            options=("answer",),
            question=Question(
                text="Shall negative durations be an error?",
                kind=QuestionKind.CHOICE,
                choices=("yes, ValueError", "no, keep them"),
                why='two callers pass -1 for "for ever"',
            ),
        ),
    ],
    ids=["plan", "question"],
)
def test_what_a_waiting_delivery_says_is_shown_as_it_is_said(asked: PendingDecision) -> None:
    assert "\n".join(pending_lines(asked, ID)) in GUIDE


def test_every_command_and_option_of_the_guide_exists() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined] # it is a group
    shown = re.findall(r"perdure ([a-z-]+)((?: [^`\n#;]*)?)", re.sub(r"\n *plan\.yaml", " plan.yaml", GUIDE))
    assert {name for name, _ in shown} >= {
        "approve",
        "reject",
        "answer",
        "budget",
        "say",
        "hold",
        "cancel",
    }
    for name, rest in shown:
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, name


def test_the_messages_of_the_guide_are_understood_and_none_is_left_out() -> None:
    rows = re.findall(r"^\| (?:update|signal) \| (.+?) \| (.+) \|$", GUIDE, re.MULTILINE)
    named = {name for names, _ in rows for name in re.findall(r"`([a-z_]+)`", names)}
    assert named == set(MESSAGES)
    for names, examples in rows:
        (first, *_) = re.findall(r"`([a-z_]+)`", names)
        for written in re.findall(r"`(\{.*?\}+)`", examples):
            said = json.loads(written.replace("SHA-256 of an artifact", 64 * "a"))
            parse_input(MESSAGES[first], said)


ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "recovery.md").read_text(encoding="utf-8")
HOLES = 44


def _functions(path: Path, wanted: set[str]) -> set[str]:
    """Of a file that has any of the wanted in its text: reading all hundreds takes two seconds."""
    text = path.read_text(encoding="utf-8")
    if not any(f"def {name}(" in text for name in wanted):
        return set()
    tree = ast.parse(text)
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_crash_points_of_the_page_are_those_of_the_code() -> None:
    section = DOC.split("## Crash points")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(CrashPoint)


def test_every_test_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOC))
    existing = set().union(*(_functions(path, named) for path in (ROOT / "tests").rglob("test_*.py")))
    assert len(named) > HOLES
    assert named <= existing, sorted(named - existing)


def test_every_hole_has_its_line() -> None:
    numbers = [int(number) for number in re.findall(r"^- H(\d+): ", DOC, re.MULTILINE)]
    assert sorted(numbers) == list(range(1, HOLES + 1))


GUIDE_OF_REPORTS = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")


def test_every_limit_of_the_guide_is_the_one_that_holds() -> None:
    for words in (
        f"the first {TURN_SAID_CHARS:,} characters",
        f"{REPORT_TEXT_CHARS:,} characters of any one text",
        f"{REPORT_TESTS_SHOWN:,} tests that passed",
        f"{REPORT_PICTURES_BYTES // 1_000_000} MB of pictures",
        f"at most {ARTIFACT_READ_BYTES // 1_000_000} MB",
        f"does not answer ({REPORT_PATIENCE.seconds} seconds)",
    ):
        assert words in GUIDE_OF_REPORTS, words


def test_every_option_and_method_of_the_guide_exists() -> None:
    told = CliRunner().invoke(app, ["report", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).output
    options = set(re.findall(r"perdure report[^\n#]*?(--\w+)", GUIDE_OF_REPORTS))
    assert options == {"--html", "--json"}
    assert all(option in told for option in options)
    methods = set(re.findall(r"delivery\.(\w+)\(", GUIDE_OF_REPORTS))
    assert methods == {"result", "artifact", "past", "read_page"}
    assert all(inspect.iscoroutinefunction(getattr(Delivery, name)) for name in methods)


TEXT = " ".join((ROOT / "docs" / "screenshots.md").read_text(encoding="utf-8").split())


@pytest.mark.story
@pytest.mark.timeout(120)
async def test_the_example_is_started_and_its_pages_are_taken(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "screenshots.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- tested: perdure.toml -->\n```toml\n(.*?)```", guide, re.DOTALL)
    assert found
    settings = load_repository_config(found[1], "docs/screenshots.md").app
    needs.require("chromium")
    if (error := probe().error) is not None:
        pytest.skip(f"BUBBLEWRAP DOES NOT WORK HERE: {error}")
    tree = tmp_path / "tree"
    (tree / "docs").mkdir(parents=True)
    home = Home(tmp_path / "home")
    binds = compute_binds(tree, os.environ["PATH"], Path.home(), perdure_home=home.root)
    command = SandboxCommand("", tree, tmp_path / "output", 0.0, env={"FRONTEND_PORT": "9200"})
    shown = await capture_app(BubblewrapSandbox(home, binds), command, settings, tmp_path / "logs")
    assert shown.summary == "2 pages"
    assert [page.note for page in shown.pages] == ["", ""]


@pytest.mark.parametrize(
    "words",
    [
        f"({APP_READY_S:g} seconds at most)",
        f"not ready after {APP_READY_S:g} s",
        f"after {APP_S:g} seconds at the latest",
        f"may load for {APP_PAGE_S:g} seconds",
        f"up to {APP_PAGES_MOST} paths",
        f"{PICTURE_WIDTH} × {PICTURE_VIEWPORT}",
        f"down to {PICTURE_HEIGHT} pixels",
        f"up to {PICTURES_SHOWN} of them ({PICTURES_SHOWN_BYTES // 10**6} MB)",
        f"up to {-(-PICTURE_WIDTH * PICTURE_HEIGHT // PIXELS_PER_TOKEN):,} tokens",
    ],
)
def test_its_numbers_are_those_of_the_code(words: str) -> None:
    assert words in TEXT


GUIDE_OF_WEBUI = (Path(__file__).parents[2] / "docs" / "webui.md").read_text(encoding="utf-8")
MESSAGES_OF_WEBUI: dict[str, type[UserInputModel]] = {
    **DECISION_MODELS,
    "say": Say,
    "hold": Hold,
    "resume": Resume,
    "decide": Decide,
}


def test_every_message_of_the_guide_is_understood() -> None:
    rows = re.findall(r"^\| .*?`(\w+)` \| `(\{.*?\})`(?: \||,|:)", GUIDE_OF_WEBUI, re.M)
    assert {name for name, _ in rows} == MESSAGES_OF_WEBUI.keys() - {"edit_plan"}  # that one is sent from a terminal
    for name, said in rows:
        parse_input(MESSAGES_OF_WEBUI[name], json.loads(said))


def test_the_request_of_the_guide_starts_a_delivery() -> None:
    shown = re.search(r"```json\n(.*?)\n```", GUIDE_OF_WEBUI, re.S)
    assert shown
    assert parse_request(json.loads(shown[1])).gates == ("plan", "pull_request")
    assert f"taskQueue={TASK_QUEUE}&workflowType=Delivery" in GUIDE_OF_WEBUI


def test_the_guide_names_what_exists() -> None:
    assert set(re.findall(r"Perdure[A-Z]\w+", GUIDE_OF_WEBUI)) <= SEARCH_ATTRIBUTES.keys() | MORE_ATTRIBUTES.keys()
    for said in re.findall(r"`(\{\"delivery\".*?\})`", GUIDE_OF_WEBUI):
        VaultReadInput.model_validate(json.loads(said))
    links = re.findall(r"\]\(([\w.]+)\)", GUIDE_OF_WEBUI)
    assert links
    assert all((Path(__file__).parents[2] / "docs" / link).exists() for link in links)
