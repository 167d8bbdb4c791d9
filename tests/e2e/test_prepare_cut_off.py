"""Everything dies while the work is prepared, and the disk is not what it was: what ships began at the base commit."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from perdure.adapters.git.workspace import worktree_path
from perdure.models.crash import CrashPoint
from tests.e2e.test_verify import verify
from tests.engine import CALC, HAPPY, Engine, check_shipped, finished, git, make_target
from tests.waiting import patient

SHIPPED = {"calc.py": textwrap.dedent(CALC["calc.py"]) + "\n\ndef sub(a, b):\n    return a - b\n"}

TARGET = {
    **CALC,
    "README.rst": "Calc\n====\n",
    "perdure.toml": CALC["perdure.toml"].replace(
        "commands = []",
        """commands = ["grep -q Calc README.rst && test ! -e stray.txt && echo kept > made-by-setup"]""",
    ),
}


@pytest.mark.timeout(240)
async def test_files_damaged_while_everything_is_dead_during_prepare_do_not_ship(tmp_path: Path, ports: int) -> None:
    """A power cut can do that: the files of a worktree are not synced. Before setup, and after it."""
    origin = make_target(tmp_path / "calc.git", TARGET)
    points = (CrashPoint.DURING_PREPARE, CrashPoint.DURING_TESTS)
    async with Engine.open(tmp_path, HAPPY, ports=ports, env={"PERDURE_CRASH_AT": ",".join(points)}) as engine:
        submitted = await engine.submit(origin)
        for point in points:
            engine.worker().wait(patient(60))
            assert (engine.home.crashes / f"{point}.0").exists(), engine.worker_log()
            tree = worktree_path(engine.home, "calc-sub", 0)
            os.truncate(tree / "README.rst", 0)
            (tree / "tests" / "__init__.py").unlink()
            (tree / "stray.txt").write_text("nobody's")
        assert (tree / "made-by-setup").exists(), "the second death is after setup"
        engine.worker()
        result = await finished(submitted, engine, timeout=120)
        check_shipped(origin, engine, result, SHIPPED)
        assert git(origin, "diff", "--name-only", "main", str(result.branch)) == "calc.py"
        said = await verify(engine)
        assert said.claims["begins at the base"][0] == "verified", said
        assert said.code == 0, said
