"""The samples in Python and for two shells, with the `temporal` command and with curl, play the story."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.client_samples import CLIENTS, Sample, play_child, play_schedule, play_story
from tests.engine import Engine
from tests.needs import require

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
DELIVER = str(CLIENTS / "python" / "deliver.py")


@pytest.mark.long
async def test_a_program_in_python_with_nothing_of_ours_plays_the_story(engine: Engine, tmp_path: Path) -> None:
    await play_story(Sample((sys.executable, "-I", DELIVER), engine, tmp_path), "python")


@pytest.mark.parametrize(("name", "program"), [("cli", "jq"), ("curl", "curl")])
async def test_a_shell_plays_the_story(engine: Engine, tmp_path: Path, name: str, program: str) -> None:
    require("jq", program)
    await play_story(Sample((str(CLIENTS / name / "deliver.sh"),), engine, tmp_path), name)


async def test_a_workflow_in_python_has_a_delivery_as_its_child_and_cancels_it(engine: Engine, tmp_path: Path) -> None:
    await play_child(Sample((sys.executable, "-I", str(CLIENTS / "python" / "child.py")), engine, tmp_path), "python")


async def test_a_schedule_made_in_python_begins_a_delivery(engine: Engine, tmp_path: Path) -> None:
    program = str(CLIENTS / "python" / "schedule.py")
    await play_schedule(Sample((sys.executable, "-I", program), engine, tmp_path), "python")
