"""What the engine itself finds sends a change back, and a secret is in nothing that is published."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

from tests.engine import HAPPY, Engine, finished, git, heads, make_target, pulls

TOKEN = "ghp_" + secrets.token_hex(18)

FIX = """
[[line]]
step = "fix_review"
turn = 1
contains = ["blocker, secret: a GitHub token (calc.py:11)"]
use = [{ tool = "bash", input = { command = "sed -i /TOKEN/d calc.py" } }]
[[line]]
step = "fix_review"
say = "Take the token out"
"""


def everything(repository: Path) -> bytes:
    """Every object of a repository, whatever refers to it."""
    command = "git cat-file --batch-all-objects --batch --buffer"
    return subprocess.run(command.split(), cwd=repository, capture_output=True, timeout=60, check=True).stdout


async def test_a_secret_is_taken_out_before_anything_is_pushed_and_the_history_that_had_it_too(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git")
    leaks = HAPPY.replace(r"return a - b\\n'", r"return a - b\\nTOKEN = \"" + TOKEN + r"\"\\n'")
    assert leaks != HAPPY
    async with Engine.open(tmp_path, leaks + FIX, ports=27400, measured=True) as engine:
        engine.worker()
        result = await finished(await engine.submit(origin), engine, timeout=110)
        assert result.status == "delivered", result.message
        assert [step.step for step in result.steps].count("fix_review") == 1
        assert result.review.blockers == 0
        assert result.tests.tree_sha == git(origin, "rev-parse", f"{result.head_sha}^{{tree}}")
        [pull] = pulls(origin)
        assert TOKEN not in str(pull)
        assert TOKEN.encode() not in everything(origin)
        assert heads(origin)[f"perdure/{result.delivery_id}"] == result.head_sha
        assert TOKEN not in result.model_dump_json()
        assert engine.rehearsal is not None
        told = [str(call.body) for call in engine.rehearsal.calls if call.step == "fix_review"]
        assert all("a GitHub token" in body for body in told)
