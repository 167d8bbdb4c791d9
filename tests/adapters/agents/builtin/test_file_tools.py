"""Files that an agent reads and edits, and what a cheap checker of the repository finds in each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from replies import use
from tool_calls import called, mistake, ok, run

from perdure.adapters.agents.builtin.conversation import known_file_versions
from perdure.adapters.agents.builtin.tools import Toolbox, run_calls
from perdure.adapters.agents.builtin.tools import files as checking
from perdure.models.errors import Superseded
from perdure.models.limits import READ_FILE_BYTES
from perdure.models.phases import Step

FILE = "src/durations.py"


def planted(worktree: Path, name: str, data: bytes) -> str:
    path = worktree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return name


async def test_reading_shows_numbered_lines(toolbox: Toolbox) -> None:
    text = await ok(toolbox, "read", path=FILE)
    title, *lines = text.splitlines()
    assert title.startswith(f"{FILE}: lines 1-2 of 2 · version ")
    assert lines == ["     1\tdef parse(text):", "     2\t    return int(text)"]


async def test_a_long_file_is_read_in_parts(toolbox: Toolbox, worktree: Path) -> None:
    planted(worktree, "long.txt", b"".join(b"%d\n" % i for i in range(1, 5001)))
    first = await ok(toolbox, "read", path="long.txt")
    assert first.endswith("[3000 more lines: read on with offset=2001]")
    rest = await ok(toolbox, "read", path="long.txt", offset=4999, limit=5)
    assert rest.splitlines()[1:] == ["  4999\t4999", "  5000\t5000"]
    assert "past its end" in await mistake(toolbox, "read", path="long.txt", offset=5001)


async def test_long_lines_are_cut_and_wide_files_stop_early_with_the_way_on(toolbox: Toolbox, worktree: Path) -> None:
    planted(worktree, "wide.txt", (b"x" * 5000 + b"\n") * 40)
    text = await ok(toolbox, "read", path="wide.txt")
    assert len(text) < 40_000
    assert "… [5000 characters]" in text
    shown = text.count("\t")
    assert text.endswith(f"[{40 - shown} more lines: read on with offset={shown + 1}]")


async def test_an_empty_file_is_said_to_be_empty(toolbox: Toolbox, worktree: Path) -> None:
    planted(worktree, "empty.txt", b"")
    assert (await ok(toolbox, "read", path="empty.txt")).startswith("empty.txt: empty · version ")


async def test_a_binary_a_directory_a_huge_and_a_missing_file_are_refused_with_a_way_on(
    toolbox: Toolbox, worktree: Path
) -> None:
    planted(worktree, "logo.png", b"\x89PNG\0\0")
    with open(worktree / "huge.bin", "wb") as file:
        file.truncate(READ_FILE_BYTES + 1)
    assert "binary" in await mistake(toolbox, "read", path="logo.png")
    assert "glob" in await mistake(toolbox, "read", path="src")
    assert "sed -n" in await mistake(toolbox, "read", path="huge.bin")
    assert "did you mean durations.py?" in await mistake(toolbox, "read", path="src/duration.py")


async def test_writing_makes_directories_and_says_the_version(toolbox: Toolbox, worktree: Path) -> None:
    text = await ok(toolbox, "write", path="a/b/c.txt", content="one\ntwo\n")
    assert text.startswith("a/b/c.txt: written, 2 lines · version ")
    assert (worktree / "a/b/c.txt").read_bytes() == b"one\ntwo\n"
    assert (await ok(toolbox, "write", path="a/b/c.txt", content="")).startswith("a/b/c.txt: replaced, 0 lines")
    assert (worktree / "a/b/c.txt").read_bytes() == b""


async def test_writing_keeps_the_mode_and_the_line_ends_of_the_file_it_replaces(
    toolbox: Toolbox, worktree: Path
) -> None:
    planted(worktree, "run.bat", b"a\r\nb\r\n")
    (worktree / "run.bat").chmod(0o755)
    assert "CRLF line ends kept" in await ok(toolbox, "write", path="run.bat", content="c\nd\n")
    assert (worktree / "run.bat").read_bytes() == b"c\r\nd\r\n"
    assert (worktree / "run.bat").stat().st_mode & 0o777 == 0o755


async def test_an_edit_replaces_exactly_what_was_named(toolbox: Toolbox, worktree: Path) -> None:
    await ok(toolbox, "read", path=FILE)
    assert "edited at line 2" in await ok(toolbox, "edit", path=FILE, old="int(text)", new="float(text)")
    assert (worktree / FILE).read_text() == "def parse(text):\n    return float(text)\n"
    assert "edited at line 2" in await ok(toolbox, "edit", path=FILE, old="float", new="complex")


async def test_a_file_must_have_been_read_before_it_is_edited(toolbox: Toolbox) -> None:
    assert "read the file before" in await mistake(toolbox, "edit", path=FILE, old="int", new="float")
    await ok(toolbox, "write", path="new.txt", content="x")
    await ok(toolbox, "edit", path="new.txt", old="x", new="y")


async def test_an_edit_of_a_file_that_changed_meanwhile_is_refused(toolbox: Toolbox, worktree: Path) -> None:
    await ok(toolbox, "read", path=FILE)
    planted(worktree, FILE, b"def other():\n    return int(text)\n")
    assert "changed since you read it" in await mistake(toolbox, "edit", path=FILE, old="int", new="float")


async def test_an_edit_that_matches_nothing_says_where_to_look(toolbox: Toolbox, worktree: Path) -> None:
    await ok(toolbox, "read", path=FILE)
    before = (worktree / FILE).read_bytes()
    text = await mistake(toolbox, "edit", path=FILE, old="def parse(text):\n  return int(text)", new="x")
    assert "0 matches" in text
    assert "first line stands at line 1" in text
    assert "Read the file again" in await mistake(toolbox, "edit", path=FILE, old="nowhere", new="x")
    assert (worktree / FILE).read_bytes() == before


async def test_an_edit_that_matches_twice_names_the_lines_and_does_nothing(toolbox: Toolbox, worktree: Path) -> None:
    planted(worktree, "twice.txt", b"one\ntwo\none\none\n")
    await ok(toolbox, "read", path="twice.txt")
    text = await mistake(toolbox, "edit", path="twice.txt", old="one\n", new="1\n")
    assert "3 matches" in text
    assert "lines 1, 3, 4" in text
    assert "3 places" in await ok(toolbox, "edit", path="twice.txt", old="one\n", new="1\n", replace_all=True)
    assert (worktree / "twice.txt").read_bytes() == b"1\ntwo\n1\n1\n"


@pytest.mark.parametrize(("old", "new"), [("", "x"), ("int", "int")])
async def test_an_edit_that_can_change_nothing_is_refused(toolbox: Toolbox, old: str, new: str) -> None:
    await ok(toolbox, "read", path=FILE)
    await mistake(toolbox, "edit", path=FILE, old=old, new=new)


async def test_edits_keep_windows_line_ends_byte_order_marks_and_bytes_that_are_not_utf_8(
    toolbox: Toolbox, worktree: Path
) -> None:
    planted(worktree, "dos.txt", b"\xef\xbb\xbfone\r\ntwo\r\ncaf\xe9\r\n")
    text = await ok(toolbox, "read", path="dos.txt")
    assert text.splitlines()[1] == "     1\tone"
    await ok(toolbox, "edit", path="dos.txt", old="one\ntwo\n", new="1\n2\n3\n")
    assert (worktree / "dos.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n3\r\ncaf\xe9\r\n"


async def test_what_the_conversation_knows_of_files_survives_a_crash(toolbox: Toolbox, worktree: Path) -> None:
    calls = [called("read", {"path": f"./{FILE}"}, "t1"), called("write", {"path": "n.txt", "content": "x"}, "t2")]
    results = await run(toolbox, *calls)
    transcript = [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    assert (
        known_file_versions(transcript)
        == toolbox.read_files
        == {FILE: toolbox.read_files[FILE], "n.txt": "2d711642b726"}
    )
    toolbox.read_files = known_file_versions(transcript)
    await ok(toolbox, "edit", path=FILE, old="int", new="float")


async def test_the_same_calls_done_again_on_a_restored_worktree_have_the_same_results(
    toolbox: Toolbox, worktree: Path
) -> None:
    calls = [
        called("read", {"path": FILE}, "t1"),
        called("edit", {"path": FILE, "old": "int", "new": "float"}, "t2"),
        called("write", {"path": "n.txt", "content": "x"}, "t3"),
    ]
    before = (worktree / FILE).read_bytes()
    once = await run(toolbox, *calls)
    planted(worktree, FILE, before)
    (worktree / "n.txt").unlink()
    toolbox.read_files = {}
    assert await run(toolbox, *calls) == once


@pytest.fixture
def outside(worktree: Path) -> Path:
    path = worktree.parent / "outside.txt"
    path.write_text("secret\n")
    (worktree / ".git").write_text("gitdir: elsewhere\n")
    (worktree / "sub" / ".git").mkdir(parents=True)
    (worktree / "sub" / ".git" / "config").write_text("[core]\n")
    (worktree / "link.txt").symlink_to(path)
    (worktree / "up").symlink_to(worktree.parent)
    (worktree / "gitlink").symlink_to(".git")
    (worktree / "loop").symlink_to("loop")
    (worktree / "dangling").symlink_to(worktree.parent / "made-by-link.txt")
    os.mkfifo(worktree / "pipe")
    (worktree / ".venv" / "bin").mkdir(parents=True)
    (worktree / ".venv" / "bin" / "activate").write_text("x\n")
    return path


HOSTILE = [
    "/etc/passwd", "../outside.txt", "src/../../outside.txt", "link.txt", "up/outside.txt", ".git", ".GIT", "gitlink",
    "sub/.git/config", "src/../.git", "loop", "dangling", "pipe", "", ".", "nul\0.txt", "line\nbreak", "a" * 5000,
    "b" * 300, "src/" + "b" * 300,
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.timeout(20, method="thread")
async def test_no_path_leads_out_of_the_worktree_or_into_git(toolbox: Toolbox, outside: Path, path: str) -> None:
    """A pipe would also block a reader for ever."""
    for tool, given in (
        ("read", {}),
        ("write", {"content": "hacked"}),
        ("edit", {"old": "secret", "new": "hacked"}),
    ):
        text = await mistake(toolbox, tool, path=path, **given)
        assert "secret" not in text.replace("secret\\n", "")
    assert outside.read_text() == "secret\n"
    assert not (outside.parent / "made-by-link.txt").exists()
    assert (toolbox.worktree / ".git").read_text() == "gitdir: elsewhere\n"


@pytest.mark.parametrize("tool", ["grep", "glob"])
@pytest.mark.parametrize("path", ["/etc", "..", "up", ".git", "sub/.git"])
async def test_searches_do_not_leave_the_worktree_either(toolbox: Toolbox, outside: Path, tool: str, path: str) -> None:
    await mistake(toolbox, tool, pattern="secret", path=path)


@pytest.mark.parametrize("tool", ["write", "edit"])
async def test_what_setup_installed_can_be_read_and_not_written(toolbox: Toolbox, outside: Path, tool: str) -> None:
    await ok(toolbox, "read", path=".venv/bin/activate")
    given = {"content": "y"} if tool == "write" else {"old": "x", "new": "y"}
    assert "read-only" in await mistake(toolbox, tool, path=".venv/bin/activate", **given)
    assert "read-only" in await mistake(toolbox, tool, path="web/node_modules/a/index.js", **given)


@pytest.mark.parametrize("tool", ["write", "edit"])
async def test_whatever_setup_made_is_as_closed_to_file_tools_as_to_commands(
    toolbox: Toolbox, worktree: Path, tool: str
) -> None:
    """It may be the very file that other deliveries of the repository run."""
    toolbox.shared = ("env", "pkg/made.py")
    given = {"content": "y"} if tool == "write" else {"old": "x", "new": "y"}
    for name in (planted(worktree, "env/lib/run.py", b"x\n"), planted(worktree, "pkg/made.py", b"x\n")):
        await ok(toolbox, "read", path=name)
        assert "read-only" in await mistake(toolbox, tool, path=name, **given)
        assert (worktree / name).read_text() == "x\n"
    await ok(toolbox, "read", path=planted(worktree, "pkg/made.pyi", b"x\n"))
    await ok(toolbox, tool, path="pkg/made.pyi", **given)


async def test_links_within_the_worktree_are_followed(toolbox: Toolbox, worktree: Path) -> None:
    (worktree / "alias.py").symlink_to("src/durations.py")
    assert (await ok(toolbox, "read", path="alias.py")).startswith(FILE)
    await ok(toolbox, "edit", path="alias.py", old="int", new="float")
    assert (worktree / "alias.py").is_symlink()
    assert "float" in (worktree / FILE).read_text()


async def test_an_absolute_path_of_the_worktree_is_understood(toolbox: Toolbox, worktree: Path) -> None:
    assert (await ok(toolbox, "read", path=str(worktree / FILE))).startswith(FILE)


async def test_an_absolute_path_that_commands_see_means_the_same_file(toolbox: Toolbox, worktree: Path) -> None:
    toolbox.inside = Path("/checkout/durations")
    assert (await ok(toolbox, "read", path=f"/checkout/durations/{FILE}")).startswith(FILE)
    assert FILE in await ok(toolbox, "grep", pattern="parse", path="/checkout/durations/src")
    await ok(toolbox, "write", path="/checkout/durations/new.py", content="new = 1\n")
    assert (worktree / "new.py").read_text() == "new = 1\n"
    assert "outside" in await mistake(toolbox, "read", path="/checkout/other/README.md")
    assert ".git is the engine's" in await mistake(toolbox, "write", path="/checkout/durations/.git", content="x")


async def test_a_worktree_behind_a_link_is_the_same_worktree(toolbox: Toolbox, worktree: Path) -> None:
    alias = worktree.parent / "alias"
    alias.symlink_to(worktree)
    toolbox.worktree = alias
    for name in (alias, worktree):
        assert (await ok(toolbox, "read", path=str(name / FILE))).startswith(FILE)


async def test_a_file_where_a_directory_should_be_is_the_models_mistake(toolbox: Toolbox) -> None:
    await mistake(toolbox, "write", path=f"{FILE}/inner.py", content="x")
    await mistake(toolbox, "write", path="src", content="x")


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
