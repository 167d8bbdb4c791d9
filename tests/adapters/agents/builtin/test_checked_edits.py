"""The result of an edit says what a cheap checker of the repository finds in the file, run in the sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.agents.builtin.tools import Toolbox, run_calls
from perdure.adapters.agents.builtin.tools import files as checking
from perdure.models.errors import Superseded
from perdure.models.phases import Step
from tests.adapters.agents.builtin.replies import use


async def told(box: Toolbox, *calls: dict[str, Any]) -> list[str]:
    named = [call | {"id": f"toolu_{number}"} for number, call in enumerate(calls, 1)]
    return [one["content"] for one in await run_calls({"content": named}, box, Step.IMPLEMENT)]


def write(path: str, content: str) -> dict[str, Any]:
    return use("write", path=path, content=content)


@pytest.mark.parametrize("which", ["walled", "toolbox"])
async def test_a_python_file_that_does_not_compile_is_told_with_the_line(
    which: str, request: pytest.FixtureRequest
) -> None:
    box: Toolbox = request.getfixturevalue(which)
    [said] = await told(box, write("src/a.py", "x = 1\ny = (\n"))
    assert said.splitlines()[0].startswith("src/a.py: written")
    assert "python says:" in said
    assert 'File "src/a.py", line 2' in said
    assert "SyntaxError" in said
    assert not list(box.worktree.rglob("__pycache__")), "a checker leaves nothing in the worktree"


async def test_a_file_in_order_and_one_that_nothing_checks_are_told_nothing(walled: Toolbox) -> None:
    assert [len(said.splitlines()) for said in await told(walled, write("a.py", "x = 1\n"), write("a.txt", "("))] == [
        1,
        1,
    ]


async def test_a_file_that_the_same_reply_changes_again_is_checked_once_at_the_end(walled: Toolbox) -> None:
    first, second = await told(
        walled, write("a.py", "x = (\n"), use("edit", path="./a.py", old="x = (\n", new="x = (\n1)\n")
    )
    assert ("says" in first, "says" in second) == (False, False)


async def test_ruff_checks_where_the_repository_configures_it(walled: Toolbox, worktree: Path) -> None:
    bin = worktree / ".venv" / "bin"
    bin.mkdir(parents=True)
    ruff = Path(sys.executable).parent / "ruff"
    (bin / "ruff").write_bytes(ruff.read_bytes())
    (bin / "ruff").chmod(0o755)
    unused = write("a.py", "import os\n")
    assert "F401" not in (await told(walled, unused))[0], "it is not asked for"
    (worktree / "pyproject.toml").write_text('[tool.ruff.lint]\nselect = ["F"]\n')
    [said] = await told(walled, unused)
    assert "ruff check says:" in said
    assert "a.py:1:8: F401" in said
    assert not (worktree / ".ruff_cache").exists()


@pytest.mark.needs("node")
async def test_javascript_is_checked_by_node_without_its_stack_and_jsx_is_left_alone(walled: Toolbox) -> None:
    broken, jsx = await told(walled, write("a.mjs", "let a = ;\n"), write("b.js", "const a = <b>c</b>;\n"))
    assert "node --check says:" in broken
    assert "SyntaxError: Unexpected token ';'" in broken
    assert "    at " not in broken
    assert "Node.js v" not in broken
    assert "says" not in jsx


async def test_a_shell_script_is_checked_by_bash_whatever_it_is_called(walled: Toolbox) -> None:
    [said] = await told(walled, write("a $(touch b); 'c.sh", "if true; then\n"))
    assert "bash -n says:" in said
    assert not (walled.worktree / "b").exists()


TSC = """#!/bin/sh
echo "$@" > /tmp/asked
echo "src/a.ts(1,5): error TS2322: Type 'string' is not assignable to type 'number'."
echo "src/other.ts(1,5): error TS1005: ';' expected."
exit 2
"""


async def test_typescript_is_checked_by_the_repositorys_own_compiler_and_only_that_file_is_told(
    walled: Toolbox, worktree: Path
) -> None:
    bin = worktree / "node_modules" / ".bin"
    bin.mkdir(parents=True)
    (bin / "tsc").write_text(TSC)
    (bin / "tsc").chmod(0o755)
    assert "says" not in (await told(walled, write("src/a.ts", "let a: number = 'a'\n")))[0], "no tsconfig.json"
    (worktree / "tsconfig.json").write_text("{}")
    [said] = await told(walled, write("src/a.ts", "let a: number = 'a'\n"))
    assert "tsc --noEmit says:\nsrc/a.ts(1,5): error TS2322" in said
    assert "other.ts" not in said


async def test_a_checker_that_takes_too_long_is_ended_and_not_run_again(
    walled: Toolbox, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin = worktree / "node_modules" / ".bin"
    bin.mkdir(parents=True)
    (bin / "tsc").write_text("#!/bin/sh\necho x >> /tmp/ran\nsleep 600\n")
    (bin / "tsc").chmod(0o755)
    (worktree / "tsconfig.json").write_text("{}")
    monkeypatch.setattr(checking, "CHECK_TIMEOUT_S", 0.5)
    assert "says" not in (await told(walled, write("a.ts", "let a = 1\n")))[0]
    assert (walled.log_dir.parent / "slow-checker.ts").exists()
    (bin / "tsc").write_text('#!/bin/sh\necho "a.ts(1,1): error"\n')
    assert "says" not in (await told(walled, write("a.ts", "let a = 2\n")))[0]


async def test_much_output_is_cut(walled: Toolbox, worktree: Path) -> None:
    bin = worktree / ".venv" / "bin"
    bin.mkdir(parents=True)
    (bin / "ruff").write_text('#!/bin/sh\nfor n in $(seq 500); do echo "a.py:$n:1: E1 bad"; done\nexit 1\n')
    (bin / "ruff").chmod(0o755)
    (worktree / "ruff.toml").write_text("")
    [said] = await told(walled, write("a.py", "x = 1\n"))
    assert said.endswith("more lines]")
    assert len(said) < checking.CHECK_CHARS + 200


async def test_a_lost_worktree_ends_the_turn_not_the_checker(walled: Toolbox) -> None:
    checks = iter([None, None])

    def check() -> None:
        if next(checks, "lost"):
            raise Superseded("a newer attempt has the worktree")

    walled.check = check
    with pytest.raises(Superseded):
        await told(walled, write("a.py", "x = 1\n"), write("b.py", "x = 1\n"))


def test_the_checkers_scripts_are_shell_that_parses() -> None:
    for script in set(checking._SCRIPTS.values()):
        subprocess.run(["bash", "-n"], input=script.encode(), check=True, env=dict(os.environ))
