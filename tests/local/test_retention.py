"""What ended long ago is removed; what runs, waits for a merge or may be wanted again is not."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from perdure.adapters.git.retention import is_unmerged, kept_deliveries, prune_vault, record_branches, remove_delivery
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.sandbox.environment import Binds
from perdure.adapters.system.home import Home
from perdure.local.retention import collect_garbage, forget_ended_delivery
from perdure.models import ids
from tests.engine import CALC, git, make_target
from tests.temporal_server import server

__all__ = ["server"]

WEEKS = timedelta(weeks=3)


def delivery(home: Home, vault: Vault, id: str, text: str = "") -> str:
    """One that ended, with a checkpoint, an artifact, and a commit where it has a `text`; returns the checkpoint."""
    _, base = vault.fetch()
    workspace = Workspace.create(home, vault, id, base)
    store = vault.objects
    blob = store.write_blob(f"what {id} said".encode())
    git(vault.path, "update-ref", ids.run_ref(id, "run"), blob)
    vault.put_artifact(id, f"the plan of {id}".encode())
    if text:
        (workspace.path / "calc.py").write_text(text)
        git(workspace.path, "commit", "-qam", f"{id}: change")
        git(vault.path, "update-ref", f"refs/heads/{ids.branch_name(id)}", git(workspace.path, "rev-parse", "HEAD"))
    workspace.mark_ended()
    return blob


def aged(vault: Vault) -> None:
    """Three weeks pass for the vault's objects."""
    then = time.time() - WEEKS.total_seconds()
    for path in (vault.path / "objects").rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


async def test_packages_go_when_no_setup_has_used_them_for_long_and_no_worktree_needs_them(
    home: Home, server: str, tmp_path: Path
) -> None:
    vault = Vault.open_or_create(home, str(make_target(tmp_path / "calc.git", CALC)))
    delivery(home, vault, "there")
    then = time.time() - WEEKS.total_seconds()
    for name in ("needed", "old", "young"):
        (home.caches / name / "go/mod/closed").mkdir(parents=True)
        (home.caches / name / "go/mod/closed/file").touch()
        (home.caches / name / "go/mod/closed").chmod(0o555)  # as go has them
        os.utime(home.caches / name, (then, then) if name != "young" else None)
    (home.workspace("there") / "binds.json").write_text(Binds(cache="needed").model_dump_json())
    client = await Client.connect(server)
    assert (await collect_garbage(client, home, timedelta(days=7)))[1] == []
    assert sorted(path.name for path in home.caches.iterdir()) == ["needed", "young"]
    assert Workspace.open(home, "there").remove() == ""
    await collect_garbage(client, home, timedelta(days=7))
    assert [path.name for path in home.caches.iterdir()] == ["young"]


async def test_what_is_merged_or_has_nothing_goes_and_what_runs_or_is_nowhere_else_stays(
    home: Home, server: str, tmp_path: Path
) -> None:
    origin = make_target(tmp_path / "calc.git", CALC)
    person = tmp_path / "calc.git-work"
    vault = Vault.open_or_create(home, str(origin))
    said = {
        id: delivery(home, vault, id, text)
        for id, text in (("merged", "one = 1\n"), ("alone", "two = 2\n"), ("empty", ""), ("runs", ""), ("young", ""))
    }
    (person / "calc.py").write_text("one = 1\n")  # squashed by a forge: another commit with the same change
    git(person, "commit", "-qam", "squashed")
    git(person, "push", "-q", str(origin), "HEAD:main")
    client = await Client.connect(server)
    await client.start_workflow("Delivery", {}, id="runs", task_queue="nobody")
    young = Workspace.open(home, "young")
    assert Workspace.open(home, "empty").remove() == "", "as at the end of one that delivered"
    for id in said.keys() - {"young"}:
        there = Workspace.open(home, id)
        there.write_record(there.record().model_copy(update={"ended_at": datetime.now(UTC) - WEEKS}))
    aged(vault)

    verdicts, problems, freed = await collect_garbage(client, home, timedelta(days=7), dry=True)
    stays = {"alone": "is not merged", "runs": "has not ended", "young": "ended less than 7 days ago"}
    assert {one.delivery: one.why for one in verdicts} == {"merged": "", "empty": ""} | stays
    assert (problems, freed, len(list(kept_deliveries(home)))) == ([], 0, 5), "a look removes nothing"

    _, problems, freed = await collect_garbage(client, home, timedelta(days=7))
    assert problems == []
    assert freed > 0
    assert {one.delivery for one in kept_deliveries(home)} == set(stays)
    assert [id for id, blob in said.items() if vault._succeeds("cat-file", "-e", blob)] == ["alone", "runs", "young"]
    assert young.find_problems() == []
    assert not home.tree("merged").exists()
    assert not home.workspace("merged").exists()
    assert git(vault.path, "fsck", "--connectivity-only", "--no-dangling") == ""

    verdicts, _, _ = await collect_garbage(client, home, timedelta(days=7), also_unmerged=True)
    assert {one.delivery for one in verdicts if not one.why} == {"alone"}
    await client.get_workflow_handle("runs").terminate()


async def test_what_has_no_record_goes_when_its_delivery_ended_long_ago(
    home: Home, server: str, tmp_path: Path
) -> None:
    """Of one that was refused, and of one that was cut off while its worktree was made."""
    vault = Vault.open_or_create(home, str(make_target(tmp_path / "calc.git", CALC)))
    _, base = vault.fetch()
    for id in ("refused", "cut-off", "goes-on"):
        Workspace.create(home, vault, id, base)
        (home.workspace(id) / "record.json").unlink()
    assert Workspace(delivery="refused", path=home.tree("refused"), vault=vault, home=home).remove() == ""
    client = await Client.connect(server)
    await client.start_workflow("Delivery", {}, id="goes-on", task_queue="nobody")
    verdicts, _, _ = await collect_garbage(client, home, timedelta(days=7))
    assert {verdict.delivery: verdict.why for verdict in verdicts} == {
        "refused": "ended less than 7 days ago", "cut-off": "ended less than 7 days ago", "goes-on": "has not ended"
    }  # fmt: skip
    verdicts, problems, _ = await collect_garbage(client, home, timedelta(0))
    assert problems == []
    assert sorted(path.name for path in (home.root / "workspaces").iterdir() if path.is_dir()) == ["goes-on"]
    assert not home.tree("cut-off").exists()
    assert [path.name for path in vault.path.glob("worktrees/*")] == ["goes-on"]
    await client.get_workflow_handle("goes-on").terminate()


def test_the_branch_of_its_own_pull_request_is_no_merge(home: Home, tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git", CALC)
    vault = Vault.open_or_create(home, str(origin))
    delivery(home, vault, "open", "one = 1\n")
    record_branches(home, "open", ("feat/open", "fix/open"))
    commit = f"refs/heads/{ids.branch_name('open')}"
    for branch in ("feat/open", "main"):
        git(vault.path, "push", "-q", str(origin), f"{commit}:refs/heads/{branch}")
        assert vault.fetch_branch(branch), "whoever asks for it: verify does, and the next push"
        assert [is_unmerged(one) for one in kept_deliveries(home)] == [branch != "main"]


def test_an_origin_that_does_not_answer_proves_no_merge_and_a_long_delivery_keeps_every_object(
    home: Home, tmp_path: Path
) -> None:
    origin = make_target(tmp_path / "calc.git", CALC)
    vault = Vault.open_or_create(home, str(origin))
    delivery(home, vault, "alone", "two = 2\n")
    (one,) = kept_deliveries(home)
    assert is_unmerged(one)
    lost = vault.objects.write_blob(b"nobody refers to it")
    aged(vault)
    workspace = Workspace.open(home, "alone")
    long_ago = {"ended_at": None, "created_at": datetime.now(UTC) - WEEKS}
    workspace.write_record(workspace.record().model_copy(update=long_ago))
    assert prune_vault(vault, list(kept_deliveries(home))).endswith("keeps its objects: alone has not ended")
    assert vault._succeeds("cat-file", "-e", lost)
    workspace.mark_ended()
    assert prune_vault(vault, list(kept_deliveries(home))) == ""
    assert not vault._succeeds("cat-file", "-e", lost)


def test_the_commit_a_delivery_began_at_stays_although_its_origin_has_left_it(home: Home, tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git", CALC)
    person = tmp_path / "calc.git-work"
    vault = Vault.open_or_create(home, str(origin))
    delivery(home, vault, "waits")
    (one,) = kept_deliveries(home)
    git(person, "commit", "-q", "--amend", "-m", "another first commit")
    git(person, "push", "-qf", str(origin), "HEAD:main")
    vault.fetch()
    Workspace.open(home, "waits").remove()
    aged(vault)
    assert prune_vault(vault, [one]) == ""
    assert vault.has_commit(one.record.base_sha)


async def test_what_was_begun_again_since_it_was_judged_is_not_removed(home: Home, server: str, tmp_path: Path) -> None:
    delivery(home, Vault.open_or_create(home, str(make_target(tmp_path / "calc.git", CALC))), "retried")
    (one,) = kept_deliveries(home)
    client = await Client.connect(server)
    started = await client.start_workflow("Delivery", {}, id="retried", task_queue="nobody")
    assert await forget_ended_delivery(client, home, one, one.record.ended_at) == "retried stays: it goes on again"
    assert Workspace.open(home, "retried").find_problems() == []
    assert one.vault.list_refs("refs/perdure/retried/")
    await started.terminate()


def test_whoever_dies_while_it_forgets_leaves_what_says_that_there_is_more_to_forget(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery(home, Vault.open_or_create(home, str(make_target(tmp_path / "calc.git", CALC))), "d")
    for number in range(500):  # so that the record is not the last by chance in a file system's own order
        (home.workspace("d") / f"{number}.log").touch()
    removed: list[str] = []
    unlink, rmdir = os.unlink, os.rmdir

    def noted(path: str | Path, *, dir_fd: int | None = None) -> None:
        removed.append(os.path.basename(path))
        unlink(path, dir_fd=dir_fd)

    def noted_too(path: str | Path, *, dir_fd: int | None = None) -> None:
        removed.append(os.path.basename(path))
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", noted)
    monkeypatch.setattr(os, "rmdir", noted_too)
    (one,) = kept_deliveries(home)
    remove_delivery(home, one)
    assert removed[-2:] == ["record.json", "d"]
    assert not home.workspace("d").exists()


def test_an_old_object_that_is_written_again_counts_as_new(home: Home, tmp_path: Path) -> None:
    vault = Vault.open_or_create(home, str(make_target(tmp_path / "calc.git", CALC)))
    sha = vault.objects.write_blob(b"the same again")
    aged(vault)
    vault.objects.write_blob(b"the same again")
    assert prune_vault(vault, []) == ""
    assert vault._succeeds("cat-file", "-e", sha)
