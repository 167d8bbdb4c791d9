"""Filters of .gitattributes that the host's owner names run for checkouts and commits, and no others; what git-lfs
stores is brought before a checkout and uploaded before a push."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from git_server import TOKEN, GitServer

from perdure.adapters.checks.findings.content_findings import find_unfiltered_files
from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git import command, publish
from perdure.adapters.git.checkouts import CheckoutPool, exact_tree
from perdure.adapters.git.patch import changed_paths
from perdure.adapters.git.retention import kept_deliveries, prune_vault
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.setup import name_filtered_files
from perdure.adapters.system.files import size_on_disk
from perdure.adapters.system.home import Home
from perdure.models.errors import ForgeRefused, ForgeUnavailable, InvalidRequest
from tests.needs import require
from tests.repositories import git, make_origin

ROT13 = "tr a-zA-Z n-za-mN-ZA-M"
SHIP = "perdure/demo-1"


@pytest.fixture(autouse=True)
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the host's owner, whose git has a filter rot13, and one that leaves a trace."""
    path = tmp_path / "owner"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name, program in (("rot13", ROT13), ("evil", f"touch {tmp_path}/ran; cat")):
        for kind in ("clean", "smudge"):
            git(tmp_path, "config", "--file", str(path / ".gitconfig"), f"filter.{name}.{kind}", program)
    return path


def commit_files(workspace: Workspace) -> str:
    checkpoint = cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[])
    base = workspace.record().base_sha
    return publish.commit_checkpoint(workspace, checkpoint=checkpoint, parent=base, message="feat: x\n")[0]


def workspace_of(home: Home, origin: Path, *filters: str) -> Workspace:
    vault = Vault.open_or_create(home, str(origin), filters=filters)
    return Workspace.create(home, vault, "demo-1", vault.fetch()[1])


def find_blockers(workspace: Workspace, made: str) -> list[str]:
    vault, base = workspace.vault, workspace.record().base_sha
    findings = find_unfiltered_files(vault, base, made, changed_paths(vault, base, made))
    return [f"{finding.file}: {finding.description}" for finding in findings]


def fresh_checkout(workspace: Workspace, made: str, at: Path) -> Path:
    CheckoutPool.for_vault(workspace.home, workspace.vault, keeps_new=False).check_out(made, at)
    return at


ATTRIBUTES = b"*.rot filter=rot13 -text\n*.odd filter=evil\n"


def test_a_filter_that_the_host_names_runs_for_checkouts_and_commits_and_no_other_does(
    home: Home, tmp_path: Path
) -> None:
    files = {".gitattributes": ATTRIBUTES, "a.rot": b"frperg\n", "kept.rot": b"xrcg\n", "c.odd": b"odd\n"}
    workspace = workspace_of(home, make_origin(tmp_path / "o.git", files), "rot13")
    assert (workspace.path / "a.rot").read_text() == "secret\n"
    assert (workspace.path / "c.odd").read_text() == "odd\n"
    assert "a.rot" not in name_filtered_files(workspace)
    (workspace.path / "a.rot").write_text("changed\n")
    (workspace.path / "new.rot").write_text("new\n")
    made = commit_files(workspace)
    stored = {name: workspace.vault.read_file(made, f"{name}.rot") for name in ("a", "kept", "new")}
    assert stored == {"a": b"punatrq\n", "kept": b"xrcg\n", "new": b"arj\n"}
    assert find_blockers(workspace, made) == []
    out = fresh_checkout(workspace, made, tmp_path / "out")
    assert [(out / f"{name}.rot").read_text() for name in stored] == ["changed\n", "kept\n", "new\n"]
    written = workspace.vault.read_file(exact_tree(workspace.vault, made), "new.rot")
    assert written == b"new\n", "what a checkpoint of it holds"
    (workspace.path / "c.odd").write_text("changed\n")
    assert find_blockers(workspace, commit_files(workspace)) == [
        "c.odd: .gitattributes has filter=evil for it: a program of the clone's owner that is not run."
    ]
    assert not (tmp_path / "ran").exists()


def test_a_branch_names_no_program_and_a_filter_that_is_named_no_more_does_not_run(home: Home, tmp_path: Path) -> None:
    files = {".gitattributes": b"* filter=evil\n", "perdure.toml": b'[git]\nfilters = ["evil"]\n'}
    origin = make_origin(tmp_path / "o.git", files)
    workspace_of(home, origin, "rot13")
    assert not (tmp_path / "ran").exists()
    workspace_of(home, origin, "evil")
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()
    workspace = workspace_of(home, origin)
    fresh_checkout(workspace, workspace.record().base_sha, tmp_path / "out")
    assert not (tmp_path / "ran").exists()


def test_a_kept_checkout_is_not_used_for_other_filters(home: Home, tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "o.git", {".gitattributes": ATTRIBUTES, "a.rot": b"frperg\n"})
    texts = []
    for number, filters in enumerate(((), ("rot13",), ())):
        vault = Vault.open_or_create(home, str(origin), filters=filters)
        base, pool = vault.fetch()[1], CheckoutPool.for_vault(home, vault)
        pool = CheckoutPool(vault, pool.store, min_files=1)
        pool.check_out(base, tmp_path / f"{number}")
        texts.append((tmp_path / f"{number}" / "a.rot").read_text())
        pool.put_away(tmp_path / f"{number}", 2**62)
    assert texts == ["frperg\n", "secret\n", "frperg\n"]


@pytest.mark.parametrize("program", ['sh -c "tr a-zA-Z n-za-mN-ZA-M; : %f"', '"{}/with a blank/rot13" %f'])
def test_a_program_is_found_as_the_shell_finds_it(home: Home, tmp_path: Path, owner: Path, program: str) -> None:
    origin = make_origin(tmp_path / "o.git", {".gitattributes": ATTRIBUTES, "a.rot": b"frperg\n"})
    script = owner / "with a blank" / "rot13"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\n{ROT13}\n")
    script.chmod(0o755)
    for kind in ("clean", "smudge"):
        git(owner, "config", "--file", str(owner / ".gitconfig"), f"filter.rot13.{kind}", program.format(owner))
    assert (workspace_of(home, origin, "rot13").path / "a.rot").read_text() == "secret\n"


@pytest.mark.parametrize(
    ("name", "program", "message"),
    [
        ("gone", "/nowhere/gone clean", "its program /nowhere/gone is not on this host"),
        ("gone", '"/no where/gone" clean', "its program '/no where/gone' is not on this host"),
        ("gone", "cat 'open", "is not on this host"),
        ("unknown", "", "this host's git has no clean and smudge for it"),
    ],
)
def test_a_filter_without_a_program_is_said_before_anything_is_paid_for(
    home: Home, origin: Path, owner: Path, name: str, program: str, message: str
) -> None:
    if program:
        git(owner, "config", "--file", ".gitconfig", f"filter.{name}.clean", program)
    with pytest.raises(InvalidRequest, match=message):
        Vault.open_or_create(home, str(origin), filters=(name,))


def test_a_filter_that_fails_stops_the_commit(home: Home, tmp_path: Path, owner: Path) -> None:
    git(owner, "config", "--file", ".gitconfig", "filter.half.clean", "cat >/dev/null; exit 3")
    git(owner, "config", "--file", ".gitconfig", "filter.half.smudge", "cat")
    workspace = workspace_of(home, make_origin(tmp_path / "o.git", {".gitattributes": b"*.x filter=half\n"}), "half")
    (workspace.path / "a.x").write_text("x")
    with pytest.raises(Exception, match=r"external filter 'cat >/dev/null; exit 3' failed 3"):
        commit_files(workspace)


LFS = b"*.bin filter=lfs diff=lfs merge=lfs -text\n"
OLD, NEW = b"\0old" * 5000, b"\0new" * 7000


def make_pointer(data: bytes) -> bytes:
    oid = hashlib.sha256(data).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(data)}\n".encode()


def object_path(repository: Path, data: bytes) -> Path:
    oid = hashlib.sha256(data).hexdigest()
    return repository / "lfs" / "objects" / oid[:2] / oid[2:4] / oid


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A bare repository with one large file, whose bytes lie beside it as git-lfs puts them there."""
    require("git-lfs")
    files = {".gitattributes": LFS, "a.bin": make_pointer(OLD), "b.bin": make_pointer(b"b"), "x.txt": b"x\n"}
    origin = make_origin(tmp_path / "large.git", files)
    for data in (OLD, b"b"):
        object_path(origin, data).parent.mkdir(parents=True)
        object_path(origin, data).write_bytes(data)
    return origin


def test_large_files_are_edited_as_they_are_and_shipped_as_pointers_whose_bytes_are_there_first(
    large: Path, home: Home, tmp_path: Path
) -> None:
    workspace = workspace_of(home, large, "lfs")
    vault = workspace.vault
    assert (workspace.path / "a.bin").read_bytes() == OLD
    assert name_filtered_files(workspace) == ""
    (workspace.path / "a.bin").write_bytes(NEW)
    (workspace.path / "new.bin").write_bytes(NEW + b"2")
    made = commit_files(workspace)
    assert vault.read_file(made, "a.bin") == make_pointer(NEW)
    assert vault.read_file(made, "b.bin") == make_pointer(b"b")
    assert find_blockers(workspace, made) == []
    assert (fresh_checkout(workspace, made, tmp_path / "out") / "a.bin").read_bytes() == NEW
    publish.push_commit(vault, vault.url, made, SHIP, None)
    publish.push_commit(vault, vault.url, made, SHIP, None)
    assert object_path(large, NEW).read_bytes() == NEW
    git(tmp_path, "clone", "-q", "--branch", SHIP, str(large), "clone", **lfs_config(tmp_path))
    assert (tmp_path / "clone" / "a.bin").read_bytes() == NEW, "as a person gets it"
    assert (tmp_path / "clone" / "new.bin").read_bytes() == NEW + b"2"
    assert prune_vault(vault, kept_deliveries(home)) == ""
    assert object_path(vault.path, OLD).exists(), "a delivery is left"
    prune_vault(vault, [])
    assert not (vault.path / "lfs").exists()


def lfs_config(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who has run `git lfs install`."""
    env = {"GIT_CONFIG_GLOBAL": str(tmp_path / "person")}
    git(tmp_path, "lfs", "install", "--skip-repo", **env)
    return env


def test_a_push_that_died_after_the_upload_is_done_again_and_one_without_its_bytes_is_refused(
    large: Path, home: Home
) -> None:
    workspace = workspace_of(home, large, "lfs")
    vault = workspace.vault
    (workspace.path / "a.bin").write_bytes(NEW)
    made = commit_files(workspace)
    kept = object_path(vault.path, NEW)
    kept.rename(kept.with_name("away"))
    with pytest.raises(ForgeRefused, match=r"git-lfs: \(missing\) a\.bin"):
        publish.push_commit(vault, vault.url, made, SHIP, None)
    assert SHIP not in git(large, "branch", "--list", "--format=%(refname:short)").split()
    kept.with_name("away").rename(kept)
    large.joinpath("refs", "heads", "perdure").mkdir(parents=True)
    large.joinpath("refs", "heads", "perdure", "demo-1.lock").touch()  # the upload works, and then the push does not
    with pytest.raises((ForgeRefused, ForgeUnavailable)):
        publish.push_commit(vault, vault.url, made, SHIP, None)
    assert object_path(large, NEW).exists()
    large.joinpath("refs", "heads", "perdure", "demo-1.lock").unlink()
    publish.push_commit(vault, vault.url, made, SHIP, None)
    assert git(large, "rev-parse", SHIP) == made


def test_an_object_that_the_server_lacks_is_one_line_when_the_base_is_fetched(large: Path, home: Home) -> None:
    object_path(large, OLD).unlink()
    vault = Vault.open_or_create(home, str(large), filters=("lfs",))
    with pytest.raises(ForgeRefused, match="git-lfs: ") as refused:
        vault.fetch()
    assert "\n" not in refused.value.what
    assert "git lfs fetch --all origin" in refused.value.fix
    assert Vault.open_or_create(home, str(large)).fetch()[0] == "main", "without the filter it is as it was"


def test_a_server_of_large_files_is_shown_the_token_and_nobody_else_is(large: Path, home: Home, tmp_path: Path) -> None:
    shutil.copytree(large, tmp_path / "hub" / "me" / "large.git")
    with GitServer(tmp_path / "hub") as server:
        vault = Vault.open_or_create(home, f"{server.url}/me/large.git", server, filters=("lfs",))
        workspace = Workspace.create(home, vault, "demo-1", vault.fetch()[1])
        assert (workspace.path / "a.bin").read_bytes() == OLD
        (workspace.path / "a.bin").write_bytes(NEW)
        made = commit_files(workspace)
        visits = len(server.visits)
        publish.push_commit(vault, vault.url, made, SHIP, None)
        assert object_path(tmp_path / "hub" / "me" / "large.git", NEW).read_bytes() == NEW
        assert [visit.repository for visit in server.visits[visits:]].index("lfs") < len(server.visits) - visits - 1
        object_path(vault.path, OLD).unlink()
        object_path(tmp_path / "hub" / "me" / "large.git", OLD).unlink()
        with pytest.raises(ForgeRefused, match=r"git-lfs: .*Object does not exist on the server"):
            vault.fetch()
    with pytest.raises(ForgeUnavailable):
        vault.fetch_branch("main")
    assert TOKEN not in (vault.path / "config").read_text()


def test_a_server_that_sends_too_much_is_left_and_nothing_of_it_stays(
    large: Path, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "GIT_FETCH_BYTES", 20 * 1024**2)
    huge = b"\0huge" * (16 * 1024**2)
    git(tmp_path, "clone", "-q", str(large), "clone")
    (tmp_path / "clone" / "a.bin").write_bytes(make_pointer(huge))
    git(tmp_path / "clone", "commit", "-qam", "huge")
    git(tmp_path / "clone", "push", "-q")
    shutil.copytree(large, tmp_path / "hub" / "me" / "large.git")
    place = object_path(tmp_path / "hub" / "me" / "large.git", huge)
    place.parent.mkdir(parents=True)
    place.write_bytes(huge)
    with GitServer(tmp_path / "hub", pause_s=0.05) as server:
        vault = Vault.open_or_create(home, f"{server.url}/me/large.git", server, filters=("lfs",))
        with pytest.raises(ForgeRefused, match="it sends more than 20 MB at once"):
            vault.fetch()
    assert size_on_disk(vault.path / "lfs") < 1024**2


def test_files_are_stored_anew_where_their_attributes_name_a_filter_or_none_any_more(
    home: Home, tmp_path: Path
) -> None:
    files = {".gitattributes": ATTRIBUTES, "a.rot": b"frperg\n", "gone.rot": b"x\n", "b.txt": b"plain\n"}
    workspace = workspace_of(home, make_origin(tmp_path / "o.git", files), "rot13")
    (workspace.path / ".gitattributes").write_text("*.txt filter=rot13\n")
    (workspace.path / "gone.rot").unlink()
    made = commit_files(workspace)
    stored = [workspace.vault.read_file(made, name) for name in ("a.rot", "b.txt", "gone.rot")]
    assert stored == [b"secret\n", b"cynva\n", None]
    assert find_blockers(workspace, made) == []
    out = fresh_checkout(workspace, made, tmp_path / "out")
    assert [(out / name).read_text() for name in ("a.rot", "b.txt")] == ["secret\n", "plain\n"]


def test_a_pointer_that_an_agent_wrote_blocks_where_nobody_has_its_bytes(large: Path, home: Home) -> None:
    workspace = workspace_of(home, large, "lfs")
    (workspace.path / "a.bin").write_bytes(make_pointer(b"nobody has this"))
    (workspace.path / "b.bin").write_bytes(make_pointer(OLD))
    made = commit_files(workspace)
    assert find_blockers(workspace, made) == [
        "a.bin: .gitattributes has filter=lfs for it: what is stored is not what that program makes."
    ]


def test_the_lfs_settings_of_a_branch_reach_no_server(large: Path, home: Home, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        git(tmp_path, "clone", "-q", str(large), "clone")
        lines = f"\turl = {address}\n\tpushurl = {address}\n\tfetchexclude = *\n\tskipdownloaderrors = true\n"
        (tmp_path / "clone" / ".lfsconfig").write_text(f"[lfs]\n{lines}")
        git(tmp_path / "clone", "add", ".lfsconfig")
        git(tmp_path / "clone", "commit", "-qm", "elsewhere")
        git(tmp_path / "clone", "push", "-q")
        workspace = workspace_of(home, large, "lfs")
        assert (workspace.path / "a.bin").read_bytes() == OLD
        (workspace.path / "a.bin").write_bytes(NEW)
        (workspace.path / "b.bin").write_bytes(make_pointer(b"nobody has this"))
        made = commit_files(workspace)
        assert [line.partition(":")[0] for line in find_blockers(workspace, made)] == ["b.bin"]
        (workspace.path / "b.bin").write_bytes(b"b2")
        made = commit_files(workspace)
        publish.push_commit(workspace.vault, workspace.vault.url, made, SHIP, None)
        assert object_path(large, NEW).exists()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_file_that_is_encrypted_in_the_repository_is_read_and_written_with_the_owners_key(
    home: Home, tmp_path: Path, owner: Path
) -> None:
    require("git-crypt")
    work = tmp_path / "work"
    git(tmp_path, "init", "-q", str(work))
    run = {"cwd": work, "check": True, "env": {"PATH": "/usr/bin:/bin", "HOME": str(owner)}}
    subprocess.run(["git-crypt", "init"], **run)  # type: ignore[call-overload]
    subprocess.run(["git-crypt", "export-key", str(owner / "key")], **run)  # type: ignore[call-overload]
    (work / ".gitattributes").write_text("*.key filter=git-crypt diff=git-crypt\n")
    (work / "a.key").write_text("secret\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "x")
    origin = shutil.copytree(work / ".git", tmp_path / "crypt.git")
    git(origin, "config", "core.bare", "true")
    git(origin, "config", "--remove-section", "filter.git-crypt")
    for kind in ("clean", "smudge"):
        command = f'"git-crypt" {kind} --key-file={owner / "key"}'
        git(owner, "config", "--file", ".gitconfig", f"filter.git-crypt.{kind}", command)
    workspace = workspace_of(home, origin, "git-crypt")
    assert (workspace.path / "a.key").read_text() == "secret\n"
    (workspace.path / "b.key").write_text("more\n")
    made = commit_files(workspace)
    assert (workspace.vault.read_file(made, "b.key") or b"").startswith(b"\0GITCRYPT\0")
    assert find_blockers(workspace, made) == []
