"""docs/reports.md says what the code does: its numbers are the code's, its names exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from typer.testing import CliRunner

from perdure.adapters.worker.turn.delivery_text import TURN_SAID_CHARS
from perdure.cli.app import app
from perdure.client import Delivery
from perdure.client.delivery.handle import ARTIFACT_READ_BYTES
from perdure.render.formatting import REPORT_TEXT_CHARS
from perdure.render.report.gather import REPORT_PATIENCE, REPORT_PICTURES_BYTES
from perdure.render.report.page import REPORT_TESTS_SHOWN

GUIDE = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")


def test_every_limit_of_the_guide_is_the_one_that_holds() -> None:
    for words in (
        f"the first {TURN_SAID_CHARS:,} characters",
        f"{REPORT_TEXT_CHARS:,} characters of any one text",
        f"{REPORT_TESTS_SHOWN:,} tests that passed",
        f"{REPORT_PICTURES_BYTES // 1_000_000} MB of pictures",
        f"at most {ARTIFACT_READ_BYTES // 1_000_000} MB",
        f"does not answer ({REPORT_PATIENCE.seconds} seconds)",
    ):
        assert words in GUIDE, words


def test_every_option_and_method_of_the_guide_exists() -> None:
    told = CliRunner().invoke(app, ["report", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).output
    options = set(re.findall(r"perdure report[^\n#]*?(--\w+)", GUIDE))
    assert options == {"--html", "--json"}
    assert all(option in told for option in options)
    methods = set(re.findall(r"delivery\.(\w+)\(", GUIDE))
    assert methods == {"result", "artifact", "past", "read_page"}
    assert all(inspect.iscoroutinefunction(getattr(Delivery, name)) for name in methods)
