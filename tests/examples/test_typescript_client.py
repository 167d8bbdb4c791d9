"""The samples in TypeScript compile in strict mode and play the story against a real server and worker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.client_samples import Sample, play_child, play_schedule, play_story
from tests.engine import Engine
from tests.guide import example

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the samples' JavaScript. Before that the compiler has found the mistake in a wrong one."""
    project = example(tmp_path_factory, tmp_path_factory.mktemp("typescript") / "example")
    wrong = (project / "deliver.ts").read_text().replace("there.repository,", "there.repo,")
    (project / "wrong.ts").write_text(wrong)
    compiler = [str(project / "node_modules" / ".bin" / "tsc")]
    done = subprocess.run(compiler, cwd=project, capture_output=True, text=True, timeout=120, check=False)
    complaints = [line for line in done.stdout.splitlines() if "error TS" in line]
    assert [line.partition("(")[0] for line in complaints] == ["wrong.ts"], done.stdout
    assert "Property 'repo' does not exist" in complaints[0]
    return project / "dist"  # it writes JavaScript all the same


@pytest.mark.long
async def test_a_program_in_typescript_plays_the_story(engine: Engine, compiled: Path, tmp_path: Path) -> None:
    await play_story(Sample(("node", str(compiled / "deliver.js")), engine, tmp_path), "typescript")


async def test_a_workflow_in_typescript_has_a_delivery_as_its_child_and_cancels_it(
    engine: Engine, compiled: Path, tmp_path: Path
) -> None:
    await play_child(Sample(("node", str(compiled / "child.js")), engine, tmp_path), "typescript")


async def test_a_schedule_made_in_typescript_begins_a_delivery(engine: Engine, compiled: Path, tmp_path: Path) -> None:
    await play_schedule(Sample(("node", str(compiled / "schedule.js")), engine, tmp_path), "typescript")
