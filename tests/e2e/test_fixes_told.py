"""Each fix knows those before it, and the last one that is allowed thinks harder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engine import FIXES, TESTED, Engine, finished, make_target

HOPELESS = """
[[line]]
step = "fix_tests"
turn = 1
lacks = ["fix_tests 1, to mend"]
use = [{ tool = "bash", input = { command = "sed -i '1i # hm' calc.py" } }]
[[line]]
step = "fix_tests"
turn = 2
lacks = ["fix_tests 1, to mend"]
say = "Make it another thing"
[[line]]
step = "fix_tests"
"""


async def test_the_second_and_last_fix_reads_what_the_first_one_changed_and_left_and_asks_with_more_effort(
    tmp_path: Path, ports: int
) -> None:
    screenplay = FIXES.replace('\n[[line]]\nstep = "fix_tests"\n', HOPELESS, 1)
    async with Engine.open(tmp_path, screenplay, ports=ports) as engine:
        engine.worker()
        origin = make_target(tmp_path / "calc.git")
        config = (origin.with_name("calc.git-work") / "perdure.toml").read_text()
        config += '[limits]\ntest_fixes = 2\n[steps.fix_tests]\neffort = "medium"\n'
        result = await finished(await engine.submit(origin, config=config, **TESTED), engine)
        assert result.status == "delivered", result.message
        assert engine.rehearsal is not None
        fixes = [call.body for call in engine.rehearsal.calls if call.step == "fix_tests"]
    efforts = [body["output_config"]["effort"] for body in fixes]
    assert efforts == sorted(efforts, reverse=True), "medium, then high"
    last = efforts.index("high")
    assert "to mend" not in text(fixes[0])
    told = text(fixes[last])
    assert "fix_tests 1, to mend: " in told
    assert "changed: calc.py (+" in told
    assert "after it, still there: " in told
    summaries = [step.summary for step in result.steps if step.step == "fix_tests"]
    assert [words.startswith("effort high · ") for words in summaries] == [False, True]


def text(body: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in body["messages"][0]["content"] if block["type"] == "text")
