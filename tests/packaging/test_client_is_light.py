"""What a program of somebody else's loads when it imports our client: pydantic and the Temporal client, no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "activities", "aiohttp", "anthropic", "detect_secrets", "git", "github", "jinja2", "junitparser", "markdown_it",
    "openapi_schema_validator", "perdure.adapters", "perdure.cli", "perdure.local", "perdure.rehearsal", "platformdirs",
    "playwright", "rich", "typer", "workflows", "yaml",
}  # fmt: skip


@pytest.mark.parametrize("module", ["perdure.client", "perdure.plugin"])
def test_importing_it_loads_nothing_that_only_the_engine_needs(module: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {module}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert module in loaded
    assert sorted(HEAVY & loaded) == []
    assert len(loaded) > 100, "the list was not read"
