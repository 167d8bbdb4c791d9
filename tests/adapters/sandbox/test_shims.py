"""Programs that a version manager's shims stand for are started without the shims, where both are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.sandbox.base import Sandbox
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.sandbox.shims import put_starters_first
from perdure.adapters.system.home import Home
from perdure.models.config.repository import SandboxGrade
from tests.power_cut import Disk

SHIM = """#!/usr/bin/env bash
program="${{0##*/}}"
exec "{root}/libexec/pyenv" exec "$program" "$@"
"""

ASKED = "pyenv is asked for python3\nthe system's python3 \n"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def pyenv(tmp_path: Path) -> Path:
    """A pyenv that says when it is asked, and then starts the system's; programs that say which they are."""
    root = tmp_path / "owner/.pyenv"
    system = f"""PATH=$(echo "$PATH" | sed s,{root}/shims:,,)
    program=$(command -v "$2") && shift 2 && exec "$program" "$@"
    """
    program(root / "libexec/pyenv", f'#!/bin/sh\necho "pyenv is asked for $2"\n{system}')
    for name in ("python", "python3", "pip", "tool"):
        program(root / "shims" / name, SHIM.format(root=root))
    for version in ("3.11.7", "3.12.1", "3.12.4", "3.13.0rc1", "3.10.2"):
        for name in ("python", "python3", "pip"):
            program(
                root / "versions" / version / "bin" / name,
                f'#!/bin/sh\necho "{version} $PYENV_VERSION ${{0##*/}} $*"\n',
            )
    (root / "version").write_text("3.11.7\n")
    for name in ("python3", "pip", "tool"):
        program(tmp_path / "owner/bin" / name, f'#!/bin/sh\necho "the system\'s {name} $*"\n')
    return root


def sandbox_with(pyenv: Path, home: Home, worktree: Path, any_grade: Sandbox, **env: str) -> Sandbox:
    path = f"{pyenv}/shims:{pyenv.parent}/bin:/usr/bin:/bin"
    binds = compute_binds(worktree, path, pyenv.parent, {"PYENV_ROOT": str(pyenv), **env}, home.root)
    return sandbox_for(any_grade.grade, home, binds)


async def test_pyenv_is_not_asked_where_a_file_names_one_installed_version(pyenv, home, worktree, any_grade, run):
    sandbox = sandbox_with(pyenv, home, worktree, any_grade)
    (worktree / "sub/deep").mkdir(parents=True)
    (worktree / "sub/.python-version").write_text("# ours\r\n\n3.12.1 # and a remark")
    program(worktree / "script", "#!/usr/bin/env python3\n")
    finished, said = await run(
        sandbox,
        """python3 -c 'a  b' ''
        python x
        cd sub/deep && python3; cd ../.. && ./script
        echo 3.10 >.python-version && python3
        PYENV_VERSION=3.12.4 python3""",
    )
    assert finished.exit_code == 0, said
    assert said.splitlines() == [
        "3.11.7 3.11.7 python3 -c a  b ",
        "3.11.7 3.11.7 python x",
        "3.12.1 3.12.1 python3 ",
        "3.11.7 3.11.7 python3 ./script",
        "3.10.2 3.10.2 python3 ",
        "3.12.4 3.12.4 python3 ",
    ]


@pytest.mark.parametrize(
    "version",
    ["3.12", "3.13", "3.9", "system", "3.11.7\n3.12.1", "../versions/3.11.7", ".", "", "# 3.11.7", "*", "$(id)"],
)
async def test_pyenv_decides_where_a_version_file_is_not_plain(version, pyenv, home, worktree, full, run):
    (worktree / ".python-version").write_text(version)
    finished, said = await run(sandbox_with(pyenv, home, worktree, full), "python3")
    assert (finished.exit_code, said) == (0, ASKED)


async def test_pyenv_decides_about_what_a_version_lacks_and_what_installs(pyenv, home, worktree, full, run):
    sandbox = sandbox_with(pyenv, home, worktree, full)
    _, said = await run(sandbox, "tool; pip install x; python3 -m pip install x; PYENV_DIR=/tmp python3")
    assert said == "".join(
        f"pyenv is asked for {line.split()[0]}\nthe system's {line}\n"
        for line in ("tool ", "pip install x", "python3 -m pip install x", "python3 ")
    )


async def test_pyenvs_shim_by_its_path_does_not_start_starters_without_end(pyenv, home, worktree, full, run):
    (worktree / ".python-version").write_text("system")
    _, said = await run(sandbox_with(pyenv, home, worktree, full), f"{pyenv}/shims/python3")
    assert said.count("asked") <= 2
    assert said.endswith("the system's python3 \n")


async def test_the_owners_choice_of_a_version_stays(pyenv, home, worktree, any_grade, run):
    (worktree / ".python-version").write_text("3.12.1")
    _, said = await run(sandbox_with(pyenv, home, worktree, any_grade, PYENV_VERSION="3.10.2"), "python3")
    assert said == "3.10.2 3.10.2 python3 \n"


async def test_pyenv_decides_where_it_has_hooks_of_others(pyenv, home, worktree, full, run):
    program(pyenv / "plugins/other/etc/pyenv.d/which/other.bash", "")
    _, said = await run(sandbox_with(pyenv, home, worktree, full), "python3")
    assert said == ASKED


async def test_a_command_cannot_change_what_starts_the_interpreter(pyenv, home, worktree, any_grade, run):
    if any_grade.grade is SandboxGrade.OFF:
        pytest.skip("nothing is kept from commands in this grade")
    sandbox = sandbox_with(pyenv, home, worktree, any_grade)
    _, said = await run(
        sandbox,
        'd=$(dirname "$(command -v python3)"); cd "$d" && for f in python3 new ../starter ../bin; do'
        ' rm -rf "$f"; (echo bent >"$f"); done 2>/dev/null; python3',
    )
    assert said == "3.11.7 3.11.7 python3 \n"
    assert (await run(sandbox, "python3"))[1] == said


async def test_a_program_that_is_installed_later_has_a_starter_and_what_is_no_shim_has_none(
    pyenv, home, worktree, full, run
):
    program(pyenv / "shims/other", "#!/bin/sh\necho a script of the owner\n")
    sandbox_with(pyenv, home, worktree, full)
    program(pyenv / "versions/3.11.7/bin/late", "#!/bin/sh\necho late\n")
    program(pyenv / "shims/late", SHIM.format(root=pyenv))
    _, said = await run(sandbox_with(pyenv, home, worktree, full), "late; other")
    assert said == "late\na script of the owner\n"


def test_a_power_cut_leaves_no_starter_without_its_script(pyenv, home, worktree, monkeypatch):
    """An empty script is a program that does nothing and succeeds."""
    disk = Disk(monkeypatch)
    binds = compute_binds(worktree, f"{pyenv}/shims:/usr/bin:/bin", pyenv.parent, {}, home.root)
    starter = Path(put_starters_first(home, binds).path[0], "python3")
    assert starter.read_text().startswith("#!/bin/sh")
    assert disk.keeps_content(starter)
