"""The examples of docs/first-test.md run, and its tables name what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perdure.adapters.git.checkpoint import restore_checkpoint, snapshot_worktree
from perdure.adapters.git.workspace import Workspace
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.work import TestVerdict
from perdure.models.rules.gates import stop_test_fixing_reason
from tests.deliveries import GREEN, RED, ADelivery
from tests.engine import HAPPY, Engine, check_shipped, finished, make_target

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-test.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_last_allowed_fix_is_the_last() -> None:
    red = TestVerdict(status=TestsStatus.RED, tree="t", summary="1 of 2 fail: test_a")
    assert stop_test_fixing_reason([], red, 3, 4) == ""
    assert stop_test_fixing_reason([], red, 4, 4) == "tests are red after 4 fixes"


def test_a_restore_removes_what_a_turn_has_left(workspace: Workspace) -> None:
    checkpoint = snapshot_worktree(workspace, parent=None, turn={"summary": "turn 1"}, transcript=[])
    (workspace.path / "left.txt").write_text("by a turn that was cut off")
    restore_checkpoint(workspace, checkpoint)
    assert not (workspace.path / "left.txt").exists()


async def test_red_tests_are_fixed_and_a_person_approves_the_pull_request(a_delivery: ADelivery) -> None:
    async with a_delivery(verdicts=[RED, GREEN], gates=("pull_request",)) as delivery:
        asked = await delivery.pending()
        assert asked.summary == "publish h1 as a pull request"
        await delivery.approve()
        result = await delivery.ended()
    assert result.status == "delivered"
    assert [work.step for work in delivery.seen] == ["classify", "plan", "implement", "fix_tests", "review"]


@pytest.mark.story
async def test_a_worker_that_dies_after_a_reply_pays_for_it_once(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.kept(PERDURE_CRASH_AT="after-reply")
        result = await finished(await engine.submit(origin), engine)
        check_shipped(origin, engine, result, files={})
    assert (result.receipt.worker_deaths, result.receipt.replies_paid_twice) == (1, 0)


def test_the_examples_of_the_page_are_those_that_run_here() -> None:
    ours = Path(__file__).read_text(encoding="utf-8")
    assert len(EXAMPLES) == 4
    for example in EXAMPLES:
        imports, _, code = example.partition("\n\n\n")
        assert code in ours
        assert {*imports.splitlines()} <= {*ours.splitlines()}


def test_the_directories_and_fixtures_of_the_page_exist() -> None:
    rows = re.findall(r"^\| [^|`]+ \| `(tests/[\w/]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 7
    shared = [*(ROOT / "tests").glob("*.py")]
    for directory, tools in rows:
        files = [*(ROOT / directory).glob("conftest.py"), *(ROOT / directory).glob("*_fixtures.py"), *shared]
        texts = "\n".join(file.read_text(encoding="utf-8") for file in files)
        named = set(re.findall(r"`(\w+)`", tools))
        assert named <= set(re.findall(r"^(?:async )?(?:def|class) (\w+)", texts, re.MULTILINE)), directory


def test_the_helpers_of_the_page_are_where_it_says() -> None:
    rows = re.findall(r"^\| [^|`]+ \| `([\w/]+\.py)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for file, tools in rows:
        text = (ROOT / file).read_text(encoding="utf-8")
        named = set(re.findall(r"`(\w+)", tools))
        assert named <= set(re.findall(r"^(?:async )?(?:def|class) (\w+)", text, re.MULTILINE)), file


def test_what_serves_one_file_of_tests_stands_in_it() -> None:
    """Programs of their own apart: what a test runs, and what stands for a server, attacks, or damages."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    for helper, text in texts.items():
        apart = {"twins", "attack", "chaos", "replay"} & {*helper.parts} or '"__main__"' in text
        if apart or helper.name.startswith(("test_", "conftest", "__init__")):
            continue
        taken = re.compile(rf"^\s*(from|import) .*\b{helper.stem}\b", re.MULTILINE)
        users = [path.name for path, other in texts.items() if path != helper and taken.search(other)]
        assert len(users) > 1, f"{helper.name} serves {users} alone"
