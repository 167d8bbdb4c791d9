"""Git in `[setup]`: what a clone answers there, and nothing that setup writes to it reaches the engine's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.checkpoint import (
    is_at_checkpoint,
    restore_checkpoint,
    snapshot_worktree,
    write_initial_checkpoint,
)
from perdure.adapters.git.git_view import update_view
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.environment import worktree_path_inside
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.system.home import Home
from perdure.adapters.worker.environments import Environments
from perdure.adapters.worker.lease import Leases
from perdure.adapters.worker.workspace_setup import read_binds, read_setup_record, set_up_workspace
from perdure.models.config.repository import RepositoryConfig, SandboxGrade
from perdure.models.delivery.turn import Contract
from perdure.models.errors import SetupFailed
from perdure.models.ids import checkout_name
from tests.repositories import changed, git, make_origin

BRANCH = "perdure/x"
GRADES = [SandboxGrade.FULL, SandboxGrade.REDUCED, SandboxGrade.OFF]


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """One commit, tagged, and one more."""
    made = make_origin(tmp_path / "calc.git", {"calc.py": b"x = 1\n", ".gitignore": b"version\n"})
    work = tmp_path / "calc.git-seed"
    git(work, "remote", "add", "hub", str(made))
    git(work, "tag", "-a", "v1.2", "-m", "one two")
    git(work, "commit", "-q", "--allow-empty", "-m", "second")
    git(work, "push", "-q", "hub", "main", "v1.2")
    return made


async def set_up(
    home: Home,
    origin: Path,
    *commands: str,
    delivery: str = "d-1",
    grade: SandboxGrade = SandboxGrade.FULL,
    cached: int = 0,
    hosts: str = "",
) -> tuple[Workspace, str]:
    """Run setup as `prepare` does, and return the workspace and the output of the commands."""
    vault = Vault.open_or_create(home, str(origin))
    _, base = vault.fetch()
    workspace = Workspace.create(home, vault, delivery, base)
    config = RepositoryConfig.model_validate({"version": 1, "setup": {"commands": list(commands)}})
    contract = Contract(
        delivery=delivery,
        repository=str(origin),
        request="x",
        config=config,
        base="main",
        base_sha=base,
        branch=BRANCH,
        grade=grade,
    )
    async with Leases(home).acquire(delivery) as lease:
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PERDURE_SETUP_HOSTS": hosts}
        await set_up_workspace(home, workspace, lease, contract, grade, env, Environments(home, cached))
    logs = sorted((home.workspace(delivery) / "logs").glob("setup-*.log"))
    return workspace, "".join(log.read_text() for log in logs)


def own_files(vault: Vault) -> dict[str, bytes]:
    """Return the files that decide how git works in the vault: no objects, no worktree's own directory, no locks."""
    files = [path for path in vault.path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    names = {str(path.relative_to(vault.path)): path.read_bytes() for path in files}
    return {name: data for name, data in names.items() if not name.startswith(("objects/", "worktrees/"))}


@pytest.mark.parametrize("grade", GRADES)
async def test_git_answers_in_setup_as_in_a_clone(
    home: Home, origin: Path, tmp_path: Path, grade: SandboxGrade
) -> None:
    git(tmp_path, "clone", "-q", str(origin), "clone")
    ask = ("rev-parse HEAD", "describe --tags --dirty --long", "status --porcelain", "remote get-url origin")
    _, output = await set_up(home, origin, *(f"git {words}" for words in ask), grade=grade)
    expected = [git(tmp_path / "clone", *words.split()) for words in ask]
    assert expected[1].startswith("v1.2-1-g")
    assert output.split() == " ".join(expected).split()


@pytest.mark.parametrize("grade", GRADES)
async def test_setup_may_write_to_git_and_nothing_of_it_is_seen_by_the_engine_or_by_later_commands(
    home: Home, origin: Path, grade: SandboxGrade
) -> None:
    vault = Vault.open_or_create(home, str(origin))
    vault.fetch()
    before = own_files(vault)
    common = "$(git rev-parse --git-common-dir)"
    workspace, _ = await set_up(
        home,
        origin,
        "git config core.hooksPath .husky/_ && git config core.fsmonitor /bin/false",
        f"echo evil > {common}/hooks-by-setup && mkdir -p {common}/hooks && echo evil > {common}/hooks/post-checkout",
        "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m evil && git tag evil && git branch -f main",
        'echo "ref: refs/heads/evil" > "$(git rev-parse --git-dir)/HEAD"',
        f"rm -rf {common}/objects/info && ln -s /etc {common}/objects/info",
        grade=grade,
    )
    assert workspace.find_problems() == []
    assert own_files(vault) == before
    admin = Path(workspace.record().admin)
    assert not {path.name for path in admin.iterdir()} & {"hooks", "config.worktree", "modules"}
    assert (admin / "HEAD").read_text().strip() == workspace.record().base_sha
    shown = update_view(workspace, "main", workspace.record().base_sha, BRANCH)
    for place in (vault.path, shown.view_path):
        assert "hooksPath" not in (place / "config").read_text()
        assert "evil" not in git(place, "for-each-ref")
        assert not (place / "hooks-by-setup").exists()


async def test_what_setup_made_of_a_commit_is_not_reused_once_it_has_another_tag(home: Home, origin: Path) -> None:
    script = "git describe --tags > version"
    limit = 10**9
    first, _ = await set_up(home, origin, script, cached=limit)
    again, _ = await set_up(home, origin, script, delivery="d-2", cached=limit)
    git(origin, "tag", "v2.0", "main")
    other, _ = await set_up(home, origin, script, delivery="d-3", cached=limit)
    versions = [(workspace.path / "version").read_text().strip() for workspace in (first, again, other)]
    assert versions[0].startswith("v1.2-1-g")
    assert versions == [versions[0], versions[0], "v2.0"]
    reused = [read_setup_record(home.workspace(delivery)).reused for delivery in ("d-1", "d-2", "d-3")]
    assert reused == [False, True, False]


async def test_tests_see_the_tags_that_setup_saw(home: Home, origin: Path, tmp_path: Path) -> None:
    workspace, _ = await set_up(home, origin, "true")
    view = update_view(workspace, "main", workspace.record().base_sha, BRANCH)
    sandbox = sandbox_for(SandboxGrade.FULL, home, read_binds(home.workspace("d-1")))
    inside = worktree_path_inside(SandboxGrade.FULL, checkout_name(str(origin)))
    output = tmp_path / "output"
    script = "git describe --tags --dirty; git config core.x 1; git tag mine"
    await sandbox.run_command(SandboxCommand(script, workspace.path, output, 60, inside=inside, git_dir=view))
    lines = output.read_text().splitlines()
    assert lines[0].startswith("v1.2-1-g")
    assert "Read-only file system" in output.read_text()
    assert os.listdir(view.view_path / "refs") == []


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[int]:
    """The port of a web server with a module that has one of its own, in plain files, as git can fetch them."""
    inner, outer = (make_origin(tmp_path / f"web/{name}.git", {f"{name}.txt": b"1\n"}) for name in ("inner", "outer"))
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "web"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    add_module(tmp_path / "web/outer.git-seed", "deep", f"http://127.0.0.1:{server.server_port}/inner.git", inner)
    git(tmp_path / "web/outer.git-seed", "push", "-q", str(outer), "main")
    for repository in (inner, outer):
        git(repository, "update-server-info")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def add_module(work: Path, path: str, url: str, origin: Path) -> None:
    (work / ".gitmodules").write_text(f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n')
    git(work, "add", ".gitmodules")
    git(work, "update-index", "--add", "--cacheinfo", f"160000,{git(origin, 'rev-parse', 'main')},{path}")
    git(work, "commit", "-qm", f"with {path}")


UPDATE = "git submodule update -q --init --recursive"


async def test_submodules_that_setup_has_filled_are_there_for_agents_and_tests_and_in_no_commit(
    home: Home, origin: Path, tmp_path: Path, modules: int
) -> None:
    work = tmp_path / "calc.git-seed"
    url = f"http://127.0.0.1:{modules}/outer.git"
    add_module(work, "lib", url, tmp_path / "web/outer.git")
    git(work, "push", "-q", "hub", "main")
    empty, _ = await set_up(home, origin, "true")
    assert empty.empty_submodules() == {"lib"}
    hosts, limit = f"127.0.0.1:{modules}", 10**9
    await set_up(home, origin, UPDATE, delivery="d-2", hosts=hosts, cached=limit)
    workspace, _ = await set_up(home, origin, UPDATE, delivery="d-3", hosts=hosts, cached=limit)
    assert read_setup_record(home.workspace("d-3")).reused
    assert workspace.record().setup_paths == ("lib",)
    assert workspace.empty_submodules() == set()
    first = write_initial_checkpoint(workspace, {})
    restore_checkpoint(workspace, first)
    assert is_at_checkpoint(workspace, first)
    (workspace.path / "calc.py").write_text("x = 2\n")
    made = snapshot_worktree(workspace, parent=first, turn={}, transcript=[])
    assert changed(workspace.vault.path, f"{first}:tree", f"{made}:tree") == ["calc.py"]
    restore_checkpoint(workspace, made)
    clean = tmp_path / "clean"
    record = workspace.record()
    CheckoutPool.for_vault(home, workspace.vault).check_out(record.base_sha, clean, admin=record.admin)
    view = update_view(workspace, "main", record.base_sha, BRANCH)
    sandbox = sandbox_for(SandboxGrade.FULL, home, read_binds(home.workspace("d-3")))
    for source in (None, clean):
        output = tmp_path / "output"
        command = SandboxCommand("cat lib/outer.txt lib/deep/inner.txt; git status --short", workspace.path, output, 60)
        await sandbox.run_command(replace(command, git_dir=view, source=source, shared=record.setup_paths))
        assert output.read_text().split() == ["1", "1", *(["M", "calc.py"] if source is None else [])]


async def test_a_module_that_cannot_be_reached_fails_setup_with_what_git_says(home: Home, origin: Path) -> None:
    work = origin.with_name("calc.git-seed")
    add_module(work, "lib", "../elsewhere.git", origin)
    git(work, "push", "-q", "hub", "main")
    with pytest.raises(SetupFailed, match=r"elsewhere\.git' into submodule path .* failed"):
        await set_up(home, origin, UPDATE)


async def test_a_link_in_the_place_of_a_submodule_leads_the_engine_nowhere(
    home: Home, origin: Path, tmp_path: Path
) -> None:
    work, victim = origin.with_name("calc.git-seed"), tmp_path / "victim"
    add_module(work, "lib", "../elsewhere.git", origin)
    git(work, "push", "-q", "hub", "main")
    git(tmp_path, "init", "-q", str(victim))
    (victim / "file").write_text("mine\n")
    workspace, _ = await set_up(home, origin, f"rmdir lib && ln -s {victim} lib")
    restore_checkpoint(workspace, write_initial_checkpoint(workspace, {}))
    assert sorted(path.name for path in victim.iterdir()) == [".git", "file"]
    assert workspace.empty_submodules() == {"lib"}
    assert workspace.record().setup_paths == ()
