"""docs/screenshots.md says what the code does: its example is started and taken, its numbers are the code's."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

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
from perdure.adapters.worker.turn.materials import PICTURES_SHOWN, PICTURES_SHOWN_BYTES
from tests import needs

ROOT = Path(__file__).parents[2]
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
