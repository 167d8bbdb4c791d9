"""A sandbox shows the host's toolchains and the files of setup, and refuses the rest."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.environment import (
    Binds,
    DroppedPath,
    compute_binds,
    explain_hidden_command,
    toolchain_state,
)


@pytest.fixture
def owner(tmp_path: Path) -> Path:
    path = tmp_path / "owner"
    path.mkdir()
    return path


def executable(path: Path, text: str = "#!/bin/sh\necho ran\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def python_like(root: Path) -> Path:
    """An installed Python, as far as its marker goes."""
    executable(root / "bin/python3.12")
    (root / "lib/python3.12").mkdir(parents=True)
    (root / "lib/python3.12/os.py").touch()
    return root


def binds_of(worktree: Path, owner: Path, *entries: object, **env: str) -> Binds:
    return compute_binds(worktree, ":".join(map(str, entries)), owner, env, worktree.parent / "perdure")


def test_system_directories_are_kept_and_need_no_bind(worktree, owner):
    binds = binds_of(worktree, owner, "/usr/bin", "/bin", "relative", "", "/absent/bin", "/usr/bin")
    assert binds.path == ("/usr/bin", "/bin")


def test_the_prefix_of_a_marked_toolchain_is_shown(worktree, owner):
    node = owner / ".nvm/versions/node/v20"
    executable(node / "bin/node")
    (node / "lib/node_modules/npm").mkdir(parents=True)
    binds = binds_of(worktree, owner, node / "bin")
    assert binds.prefixes == (str(node),)
    assert binds.path == (str(node / "bin"),)


def test_a_path_that_leads_where_this_user_may_not_look_is_passed_over() -> None:
    """As from `/usr/local/bin/python` into another user's pyenv."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        root, user = Path(place), os.geteuid()
        root.chmod(0o755)
        python = executable(python_like(root / "hidden/versions/3.12") / "bin/python3.12")
        (root / "worktree").mkdir()
        (root / "bin").symlink_to(python.parent)
        (root / "tools/bin").mkdir(parents=True)  # a directory of this user, with a link to there
        (root / "tools/bin/python3").symlink_to(python)
        (root / "hidden").chmod(0)
        try:
            if user == 0:
                os.seteuid(65534)
            binds = binds_of(
                root / "worktree", root / "owner", root / "bin", root / "hidden/shims", root / "tools/bin", "/usr/bin"
            )
            toolchain_state(f"{root}/hidden/shims:{root}/bin", root / "hidden", {})
        finally:
            os.seteuid(user)
            (root / "hidden").chmod(0o700)
        assert binds.path == (f"{root}/tools/bin", "/usr/bin")
        assert not any("hidden" in prefix for prefix in binds.prefixes), binds.prefixes


def test_pyenv_is_found_from_its_shims_and_from_a_plugins_shims(worktree, owner):
    pyenv = owner / ".pyenv"
    executable(pyenv / "shims/python")
    executable(pyenv / "plugins/virtualenv/shims/activate")
    executable(pyenv / "libexec/pyenv")
    binds = binds_of(worktree, owner, pyenv / "plugins/virtualenv/shims", pyenv / "shims", PYENV_ROOT=str(pyenv))
    assert binds.prefixes == (str(pyenv),)
    assert binds.env == {"PYENV_ROOT": str(pyenv)}


def test_every_name_in_a_chain_of_links_is_shown(worktree, owner):
    """uv links python3.12 to `cpython-3.12`, itself a link to `cpython-3.12.16`: scripts use both names."""
    base = owner / ".local/share/uv/python"
    python_like(base / "cpython-3.12.16")
    (base / "cpython-3.12").symlink_to("cpython-3.12.16")
    (owner / ".local/bin").mkdir(parents=True)
    (owner / ".local/bin/python3.12").symlink_to(base / "cpython-3.12/bin/python3.12")
    binds = binds_of(worktree, owner, owner / ".local/bin")
    assert set(binds.prefixes) == {
        str(owner / ".local/bin"),
        str(base / "cpython-3.12"),
        str(base / "cpython-3.12.16"),
    }


def test_the_interpreter_of_an_absolute_shebang_is_shown(worktree, owner):
    python = python_like(owner / "pythons/3.12")
    executable(owner / "tools/bin/tool", f"#!{python}/bin/python3.12\n")
    binds = binds_of(worktree, owner, owner / "tools/bin")
    assert set(binds.prefixes) == {str(owner / "tools/bin"), str(python)}


def test_a_link_into_a_directory_of_other_things_shows_one_file_only(worktree, owner):
    executable(owner / "projects/secret/run.sh")
    (owner / "bin").mkdir()
    (owner / "bin/run").symlink_to(owner / "projects/secret/run.sh")
    binds = binds_of(worktree, owner, owner / "bin")
    assert set(binds.prefixes) == {str(owner / "bin"), str(owner / "projects/secret/run.sh")}


def test_cargo_is_shown_without_the_credentials_beside_it(worktree, owner):
    executable(owner / ".cargo/bin/cargo")
    (owner / ".cargo/credentials.toml").write_text("token")
    (owner / ".rustup/toolchains").mkdir(parents=True)
    binds = binds_of(worktree, owner, owner / ".cargo/bin")
    assert set(binds.prefixes) == {str(owner / ".cargo/bin"), str(owner / ".rustup")}
    assert binds.env == {"RUSTUP_HOME": str(owner / ".rustup")}


@pytest.mark.parametrize("entry", [".", ".local", ".ssh/bin", ".config/tools/bin", ".aws", ".cache/x"])
def test_homes_and_places_for_credentials_are_dropped_and_named(worktree, owner, entry):
    (owner / entry).mkdir(parents=True, exist_ok=True)
    path = os.path.normpath(owner / entry)
    binds = binds_of(worktree, owner, path, "/usr/bin")
    assert binds.path == ("/usr/bin",)
    assert [dropped.entry for dropped in binds.dropped] == [path]
    assert binds.dropped[0].reason


@pytest.mark.parametrize("entry", ["/", "/tmp", "/opt", "/home", "/var", "/root"])
def test_directories_that_hold_everything_are_dropped(worktree, owner, entry):
    binds = binds_of(worktree, owner, entry, "/usr/bin")
    assert binds.path == ("/usr/bin",)
    assert binds.prefixes == ()


def test_a_marker_in_a_home_directory_does_not_make_it_a_toolchain(worktree, owner):
    python_like(owner)
    assert binds_of(worktree, owner, owner / "bin").prefixes == (str(owner / "bin"),)


def test_a_link_to_a_home_does_not_show_it(worktree, owner, tmp_path):
    (tmp_path / "elsewhere").symlink_to(owner)
    binds = binds_of(worktree, owner, tmp_path / "elsewhere", "/usr/bin")
    assert binds.prefixes == ()


def test_a_virtual_environment_in_the_worktree_shows_its_python(worktree, owner):
    python = python_like(owner / "pythons/3.12")
    (worktree / ".venv/bin").mkdir(parents=True)
    (worktree / ".venv/bin/python").symlink_to(python / "bin/python3.12")
    (worktree / ".venv/pyvenv.cfg").write_text(f"home = {python}/bin\n")
    assert binds_of(worktree, owner, "/usr/bin").prefixes == (str(python),)


def test_links_in_circles_end(worktree, owner):
    (owner / "bin").mkdir()
    (owner / "bin/a").symlink_to("b")
    (owner / "bin/b").symlink_to("a")
    assert binds_of(worktree, owner, owner / "bin").path == (str(owner / "bin"),)


def test_binds_survive_being_stored(worktree):
    binds = compute_binds(worktree, os.environ["PATH"], Path.home())
    assert Binds.model_validate_json(binds.model_dump_json()) == binds


async def test_this_python_runs_inside(home, worktree, run, full):
    real = Path(sys.executable).resolve().parent
    binds = compute_binds(worktree, f"{real}:/usr/bin:/bin", Path.home())
    finished, said = await run(
        BubblewrapSandbox(home, binds), "python3 -c 'import sys, ssl, sqlite3; print(sys.version)'"
    )
    assert (finished.exit_code, said.strip()) == (0, sys.version.replace("\r", ""))


async def test_pytest_in_a_virtual_environment_of_the_worktree_runs_inside(home, worktree, run, full):
    """A real venv whose packages are this one's, so that the test needs no network."""
    packages = str(Path(pytest.__file__).parents[1])
    python = Path(sys.executable).resolve()
    outside = compute_binds(worktree, f"{python.parent}:/usr/bin:/bin", Path.home())
    script = (
        f"python3 -m venv --without-pip .venv && echo {packages} > $(echo .venv/lib/python*/site-packages)/here.pth"
    )
    finished, said = await run(BubblewrapSandbox(home, outside), script, network=True)
    assert finished.exit_code == 0, said
    (worktree / "test_it.py").write_text("import sys\ndef test_it(): assert '.venv' in sys.prefix\n")
    binds = compute_binds(worktree, "/usr/bin:/bin", Path.home())
    inside = BubblewrapSandbox(home, binds.model_copy(update={"prefixes": (*binds.prefixes, packages)}))
    finished, said = await run(inside, "python -m pytest -q; touch .venv/x")
    assert "1 passed" in said
    assert "Read-only file system" in said
    finished, said = await run(inside, "python -m pytest -q -p no:cacheprovider", writable=False)
    assert finished.exit_code == 0, said


@pytest.mark.needs("node")
async def test_node_tests_run_inside(full, run, worktree):
    (worktree / "node_modules/dep").mkdir(parents=True)
    (worktree / "node_modules/dep/index.js").write_text("module.exports = 7")
    (worktree / "a.test.js").write_text(
        "const t = require('node:test'); const a = require('node:assert');"
        "t('seven', () => a.equal(require('dep'), 7));"
        "t('user', () => a.equal(require('os').userInfo().username, 'agent'))"
    )
    finished, said = await run(full, "node --test")
    assert finished.exit_code == 0, said
    assert "pass 2" in said


async def test_a_clean_checkout_is_seen_at_the_worktrees_path_with_setups_dependencies(full, run, worktree, tmp_path):
    clean = tmp_path / "clean"
    clean.mkdir()
    (clean / "file").write_text("clean\n")
    (worktree / "file").write_text("dirty\n")
    (worktree / ".git").write_text("gitdir: /nowhere\n")
    executable(worktree / ".venv/bin/tool")
    for writable in (True, False):
        finished, said = await run(
            full, "pwd; cat file; tool; cat .git; touch .venv/x", source=clean, shared=(".venv",), writable=writable
        )
        assert finished.exit_code == 1
        assert said.startswith(f"{worktree}\nclean\nran\ngitdir: /nowhere\n"), said
        assert "Read-only file system" in said
    finished, _ = await run(full, "echo made > made", source=clean, shared=(".venv",))
    assert (clean / "made").exists()
    assert not (worktree / "made").exists()


async def test_report_files_survive_in_the_results_directory(any_grade, run, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    finished, said = await run(any_grade, f"echo report > {results}/junit.xml", results=results, writable=False)
    assert finished.exit_code == 0, said
    assert (results / "junit.xml").read_text() == "report\n"


async def test_setup_sees_the_owners_index_settings_and_later_commands_do_not(
    full, home, binds, run, tmp_path, monkeypatch
):
    owner = tmp_path / "owner"
    (owner / ".config/pip").mkdir(parents=True)
    (owner / ".config/pip/pip.conf").write_text("[global]\nindex-url = https://packages.example/simple\n")
    (owner / ".npmrc").write_text("registry=https://npm.example/\n//npm.example/:_authToken=planted\n")
    (owner / "ca.pem").write_text("certificate")
    monkeypatch.setenv("HOME", str(owner))
    monkeypatch.setenv("PIP_TIMEOUT", "77")
    monkeypatch.setenv("SSL_CERT_FILE", str(owner / "ca.pem"))
    script = "cat $XDG_CONFIG_HOME/pip/pip.conf; env; cat $SSL_CERT_FILE; ls ~/.npmrc"
    _, said = await run(full, script, network=True)
    for wanted in ("packages.example", "npm_config_registry=https://npm.example/", "PIP_TIMEOUT=77", "certificate"):
        assert wanted in said
    assert "planted" not in said
    named = BubblewrapSandbox(home, binds.model_copy(update={"cache": "a-repository"}))
    await run(named, "echo x > $XDG_CACHE_HOME/kept", network=True)
    _, again = await run(named, "cat $XDG_CACHE_HOME/kept", network=True)
    assert again == "x\n"
    _, other = await run(full, "cat $XDG_CACHE_HOME/kept", network=True)
    assert "No such file" in other, "without a name nothing is kept"
    _, later = await run(full, script)
    for unwanted in ("packages.example", "npm.example", "PIP_TIMEOUT", "certificate"):
        assert unwanted not in later


def test_a_command_that_is_outside_but_not_inside_is_named(owner):
    tool = executable(owner / ".config/tools/bin/foo")
    binds = Binds(dropped=(DroppedPath(entry=str(tool.parent), reason="is a place for credentials"),))
    path = f"{tool.parent}:/usr/bin"
    for said in (
        "/bin/bash: line 1: foo: command not found\n",
        "sh: 1: foo: not found\n",
        "/usr/bin/env: ‘foo’: No such file or directory\n",
    ):
        named = explain_hidden_command("some output\n" + said, 127, binds, path)
        assert named is not None
        assert named.startswith(f"`foo` is on the host at {tool} but not visible in the sandbox: ")
        assert "credentials" in named
    assert explain_hidden_command("bash: foo: command not found", 1, binds, path) is None
    assert explain_hidden_command("bash: bar: command not found", 127, binds, path) is None
    assert (
        explain_hidden_command("bash: env: command not found", 127, binds, path) is None
    )  # visible: something else is wrong


def test_worktrees_of_one_home_see_the_same_until_a_program_is_installed(worktree, owner):
    home, tools = worktree.parent / "perdure", python_like(owner / "python")
    trees = [home / "trees" / name for name in ("a", "b")]
    executable(trees[1] / ".venv/bin/python")
    (trees[1] / ".venv/pyvenv.cfg").write_text(f"home = {python_like(owner / 'other')}/bin\n")

    def seen(tree: Path) -> tuple[str, ...]:
        return compute_binds(tree, f"{tools}/bin:/usr/bin", owner, {}, home).prefixes

    assert seen(trees[0]) == (str(tools),)
    assert seen(trees[1]) == (str(owner / "other"), str(tools)), "what its own environment leads to"
    assert seen(trees[0]) == (str(tools),), "and nobody else's"
    (tools / "bin/new").symlink_to(executable(python_like(owner / "third") / "bin/new"))
    assert seen(trees[0]) == (str(tools), str(owner / "third"))


async def test_tools_may_keep_something_below_node_modules_that_is_gone_with_the_command(full, run, worktree, tmp_path):
    """vitest 1 and 2 end red where they cannot write to `.vite`, ava where it cannot write to `.cache`."""
    (tmp_path / "clean").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for modules in ("node_modules", "packages/web/node_modules"):
        (worktree / modules / ".cache/fetched").mkdir(parents=True)
        (worktree / modules / ".cache/fetched/browser").write_text("as setup left it\n")
        (worktree / modules / ".vite-temp").symlink_to(tmp_path / "elsewhere")
        script = f"""cd {modules}; mkdir -p .vite/vitest .cache/ava && touch .vite/vitest/results .cache/ava/made
        cat .cache/fetched/browser; echo bent > .cache/fetched/browser; touch bent .vite-temp/bent; ls -A"""
        for source in (None, tmp_path / "clean"):
            finished, said = await run(full, script, source=source, shared=("node_modules", modules))
            assert finished.exit_code == 0, said
            assert "as setup left it" in said
        assert (worktree / modules / ".cache/fetched/browser").read_text() == "as setup left it\n"
        assert not (worktree / modules / "bent").exists()
        assert [one.name for one in (worktree / modules).glob(".[cv]*e/*")] == ["fetched"]
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.needs("node")
async def test_a_clean_checkout_has_what_setup_made_in_every_grade(any_grade, run, worktree, tmp_path):
    clean = tmp_path / "clean"
    (clean / "packages").mkdir(parents=True)
    for modules in ("node_modules", "packages/web/node_modules"):
        (worktree / modules / "dep").mkdir(parents=True)
        (worktree / modules / "dep/index.js").write_text(f"module.exports = '{modules}'")
    (worktree / ".venv/bin").mkdir(parents=True)
    (worktree / ".venv/bin/tool").write_text("#!/bin/sh\necho ran\n")
    (worktree / ".venv/bin/tool").chmod(0o755)
    script = """node -p "require('dep')"; cd packages/web; node -p "require('dep')"; cd ../..; .venv/bin/tool
    mkdir node_modules/.vite/vitest && echo kept; touch node_modules/bent"""
    made = (".venv", "node_modules", "packages/web/node_modules")
    finished, said = await run(any_grade, script, source=clean, shared=made)
    assert said.startswith("node_modules\npackages/web/node_modules\nran\nkept\n"), said
    if any_grade.grade != "off":
        assert finished.exit_code != 0
        assert not (worktree / "node_modules/bent").exists()
    finished, said = await run(any_grade, ".venv/bin/tool", source=clean, shared=made)  # as the next command has it
    assert (finished.exit_code, said) == (0, "ran\n")


async def test_no_link_of_a_checkout_leads_out_of_it(off, run, worktree, tmp_path):
    clean, outside = tmp_path / "clean", tmp_path / "outside"
    clean.mkdir()
    outside.mkdir()
    (clean / "packages").symlink_to(outside)
    (worktree / "packages/node_modules/dep").mkdir(parents=True)
    (worktree / "own").symlink_to(outside)
    finished, _ = await run(off, "ls packages/node_modules/dep", source=clean, shared=("packages/node_modules", "own"))
    assert finished.exit_code == 0
    assert not list(outside.iterdir())
    assert not (clean / "own").exists()
