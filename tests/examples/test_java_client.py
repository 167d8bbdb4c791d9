"""The samples in Java are built with the official SDK and play the story against a real server and worker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.client_samples import CLIENTS, Sample, play_schedule, play_story
from tests.engine import Engine
from tests.needs import require

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The command that runs a class of the samples, all of which are compiled once."""
    require("mvn")
    project = tmp_path_factory.mktemp("java") / "java"
    shutil.copytree(CLIENTS / "java", project, ignore=shutil.ignore_patterns("target"))
    command = ["mvn", "-q", "-B", "compile", "dependency:copy-dependencies"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=380, check=False)
    if done.returncode and re.search("Could not (transfer|resolve|find)|Unknown host", done.stdout):
        pytest.skip(f"the samples in Java were NOT run: their packages cannot be fetched here: {done.stdout[-300:]}")
    assert done.returncode == 0, done.stdout
    target = project / "target"
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # half of the processor time of a short program
    return ("java", *quick, "-cp", f"{target / 'classes'}{os.pathsep}{target / 'dependency'}/*")


@pytest.mark.long
async def test_a_program_in_java_delivers_attaches_fails_with_a_type_and_cancels(
    engine: Engine, java: tuple[str, ...], tmp_path: Path
) -> None:
    await play_story(Sample((*java, "clients.Deliver"), engine, tmp_path), "java")


async def test_a_schedule_made_in_java_begins_a_delivery(engine: Engine, java: tuple[str, ...], tmp_path: Path) -> None:
    await play_schedule(Sample((*java, "clients.Nightly"), engine, tmp_path), "java")
