"""An agent asks, a person answers with nothing but Temporal; or nobody is asked, and the pull request says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowUpdateFailedError

from perdure.adapters.git.checkpoint import read_transcript
from perdure.adapters.git.workspace import Workspace
from tests.engine import BUILT as ALONE
from tests.engine import HAPPY, Engine, check_shipped, finished, git, make_target, until

PLANNED = """[[line]]
step = "plan"
turn = 1
use = [{ tool = "read", input = { path = "calc.py" } }]
"""
BUILT = """[[line]]
step = "implement"
turn = 1
use = [{ tool = "read", input = { path = "calc.py" } }, { tool = "read", input = { path = "tests/test_calc.py" } }]
"""
ASKS = """[[line]]
step = "implement"
turn = 1
use = [{ tool = "ask", input = { text = "Shall sub take floats?", kind = "yes_no", why = "Callers pass them." } }]
[[line]]
step = "implement"
turn = 2
lacks = ["answers your question"]
say = "Never answered"
"""
ASSUMES = """[[line]]
step = "plan"
turn = 1
use = [{ tool = "assume", input = { question = "Floats too?", assumption = "Yes, as add does", why = "" } }]
"""


@pytest.mark.timeout(180)
async def test_an_answer_and_words_sent_while_no_worker_runs_reach_the_next_turn_once_and_the_wait_holds_nothing(
    tmp_path: Path, ports: int
) -> None:
    assert BUILT in HAPPY
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY.replace(BUILT, ASKS), ports=ports, measured=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, **ALONE)
        asked = await until(lambda: _asked(engine))
        assert (asked["gate"], asked["question"]["kind"], asked["options"]) == ("question", "yes_no", ["answer"])
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await engine.handle().execute_update("answer", {"answer": "perhaps"})
        assert "neither yes nor no" in str(refused.value.cause)
        engine.kill_workers()

        await engine.handle().signal("say", {"id": "n1", "text": "Keep it short."})
        await engine.handle().signal("decide", {"update": "answer", "said": {"of": asked["of"], "answer": "yes"}})
        engine.kept(PERDURE_CRASH_AT="after-reply")  # in the turn that has just read the answer
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        record = Workspace.open(engine.home, "calc-sub")
        tips = git(record.vault.path, "for-each-ref", "--format=%(objectname)", "refs/perdure/calc-sub/").split()
        told = json.dumps(_conversation(engine, tips[0]))
        places = [told.index(words) for words in ("answers your question", "\\nyes\\n", "Keep it short.")]
        assert places == sorted(places)
        assert told.count("<person ") == 2
        assert result.receipt.worker_deaths == 1


@pytest.mark.timeout(120)
async def test_without_questions_an_agent_decides_and_the_pull_request_lists_what_it_assumed(
    tmp_path: Path, ports: int
) -> None:
    assert PLANNED in HAPPY
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY.replace(PLANNED, ASSUMES), ports=ports, measured=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, questions=False, **{**ALONE, "phases": ["plan", "build", "ship"]})
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        told = git(origin, "show", "refs/pull/1/record:body.md")
        assert "### Assumptions\n\nNobody was asked, so this was assumed:\n\n- Floats too? Yes, as add does\n" in told


async def _asked(engine: Engine) -> dict[str, object] | None:
    progress = await engine.handle().query("progress")
    found: dict[str, object] | None = progress["asked"]
    return found


def _conversation(engine: Engine, tip: str) -> list[dict[str, object]]:
    """Of the step implement, whole: its last turn's checkpoint has it."""
    vault = Workspace.open(engine.home, "calc-sub").vault
    for commit in git(vault.path, "rev-list", "--first-parent", tip).split():
        told = read_transcript(vault, commit)
        if "Carry out step implement" in json.dumps(told):
            return told
    raise AssertionError("no turn of implement is kept")
