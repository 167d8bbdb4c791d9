"""The samples in Go are built with the official SDK and play the story against a real server and worker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.client_samples import CLIENTS, Sample, fetch_or_leave_out, play_child, play_schedule, play_story
from tests.engine import Engine
from tests.needs import require

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]
SOURCES = CLIENTS / "go"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All samples in Go, compiled once: with a cold cache that takes most of this module's time."""
    require("go")
    fetch_or_leave_out("the sample in Go", ["go", "mod", "download"], SOURCES)
    built = tmp_path_factory.mktemp("go")
    done = subprocess.run(
        ["go", "build", "-mod=readonly", "-o", f"{built}/", "./..."],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.long
async def test_a_program_in_go_delivers_attaches_fails_with_a_type_and_cancels(
    engine: Engine, programs: Path, tmp_path: Path
) -> None:
    await play_story(Sample((str(programs / "deliver"),), engine, tmp_path), "go")


async def test_a_workflow_in_go_has_a_delivery_as_its_child_and_cancels_it(
    engine: Engine, programs: Path, tmp_path: Path
) -> None:
    await play_child(Sample((str(programs / "child"),), engine, tmp_path), "go")


async def test_a_schedule_made_in_go_begins_a_delivery(engine: Engine, programs: Path, tmp_path: Path) -> None:
    await play_schedule(Sample((str(programs / "schedule"),), engine, tmp_path), "go")
