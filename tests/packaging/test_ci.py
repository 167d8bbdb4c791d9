"""What CI runs is what stands in this repository: actions by commit, targets that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # has no types of its own

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit_and_says_its_version(workflow: Path) -> None:
    lines = [line.strip() for line in workflow.read_text().splitlines() if re.search(r"\buses:", line)]
    assert len(lines) == sum("uses" in step for step in steps(workflow))
    for line in lines:
        assert re.fullmatch(r"- uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_keeps_no_token_in_the_checkout(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}
    checkouts = [step for step in steps(workflow) if "actions/checkout@" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_the_nightly_job_runs_what_a_push_does_not() -> None:
    ran = " ; ".join(step.get("run", "") for step in steps(ROOT / ".github" / "workflows" / "night.yml"))
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([\w-]+)", ran):
        assert re.search(rf"(?m)^{target}:", makefile), f"there is no make {target}"
    assert {"attack", "chaos", "test-slow"} <= set(re.findall(r"make ([\w-]+)", ran))
