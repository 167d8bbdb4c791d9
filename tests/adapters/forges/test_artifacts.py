"""One branch holds what every delivery has to show, whoever is faster, dies, or had the name before."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from twin_repository import TOKEN, TwinRepository

from perdure.adapters.forges.artifacts import ARTIFACT_ATTEMPTS, ARTIFACT_BYTES, permalink, publish_artifacts
from perdure.adapters.forges.select import Forges
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from tests.fork_server import Forked, fork
from tests.repositories import git
from tests.waiting import patient

BRANCH = "perdure-artifacts"
FILES = {"plan.md": b"# Plan\n", "receipt.json": b"{}\n"}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A bare repository with one commit on main."""
    path = tmp_path / "origin.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(path))
    git(path, "update-ref", "refs/heads/main", a_commit(path, "what people work on"))
    return path


@pytest.fixture
def vault(origin: Path, tmp_path: Path) -> Vault:
    return Vault.open_or_create(Home(tmp_path / "home"), str(origin))


def a_commit(path: Path, message: str, *parents: str) -> str:
    blob = git(path, "hash-object", "-w", "--stdin", stdin=message)
    tree = git(path, "mktree", stdin=f"100644 blob {blob}\ttheirs.txt\n")
    return git(path, "commit-tree", tree, "-m", message, *(word for parent in parents for word in ("-p", parent)))


def hook(origin: Path, name: str, script: str) -> None:
    path = origin / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def listed(origin: Path, commit: str = BRANCH) -> list[str]:
    return git(origin, "ls-tree", "-r", "--name-only", commit).splitlines()


def count(origin: Path) -> int:
    return int(git(origin, "rev-list", "--count", BRANCH))


def test_the_first_delivery_begins_a_branch_that_has_nothing_in_common_with_the_others(
    vault: Vault, origin: Path
) -> None:
    commit = publish_artifacts(vault, str(origin), BRANCH, "calc-issue-1", FILES)
    assert git(origin, "rev-parse", BRANCH) == commit
    assert listed(origin) == ["README.md", "calc-issue-1/plan.md", "calc-issue-1/receipt.json"]
    assert git(origin, "show", f"{commit}:calc-issue-1/plan.md") == "# Plan"
    assert git(origin, "log", "-1", "--format=%an|%P|%(trailers:only,unfold)", commit).splitlines() == [
        "Perdure||Perdure-Artifacts: 1",
        "Perdure-Delivery: calc-issue-1",
    ]
    assert git(origin, "log", "--format=%s", "main") == "what people work on"


def test_what_is_published_already_is_adopted_and_what_changed_is_added(vault: Vault, origin: Path) -> None:
    first = publish_artifacts(vault, str(origin), BRANCH, "a", FILES)
    assert publish_artifacts(vault, str(origin), BRANCH, "a", FILES) == first
    other = publish_artifacts(vault, str(origin), BRANCH, "b", {"plan.md": b"b"})
    assert publish_artifacts(vault, str(origin), BRANCH, "a", FILES) == other, "its files are there as well"
    changed = publish_artifacts(vault, str(origin), BRANCH, "a", {"plan.md": b"new"})
    assert listed(origin) == ["README.md", "a/plan.md", "b/plan.md"]
    assert git(origin, "show", f"{first}:a/plan.md") == "# Plan", "an older link still leads to what it named"
    assert git(origin, "rev-list", "--first-parent", BRANCH).splitlines() == [changed, other, first]


def test_what_people_added_to_the_branch_stays(vault: Vault, origin: Path) -> None:
    publish_artifacts(vault, str(origin), BRANCH, "a", FILES)
    git(origin, "update-ref", f"refs/heads/{BRANCH}", a_commit(origin, "pruned by hand", BRANCH))
    publish_artifacts(vault, str(origin), BRANCH, "b", FILES)
    assert listed(origin) == ["b/plan.md", "b/receipt.json", "theirs.txt"]


def test_a_branch_of_that_name_that_is_somebody_elses_is_left_alone(vault: Vault, origin: Path) -> None:
    theirs = a_commit(origin, "ours since 2019\n\nPerdure-Artifacts: 1 is not a trailer here.\n\nSigned: Ada")
    git(origin, "update-ref", f"refs/heads/{BRANCH}", theirs)
    with pytest.raises(ForgeRefused, match="not begun by Perdure") as caught:
        publish_artifacts(vault, str(origin), BRANCH, "a", FILES)
    assert "[artifacts] branch" in caught.value.fix
    assert git(origin, "rev-parse", BRANCH) == theirs
    mixed = git(origin, "commit-tree", f"{theirs}^{{tree}}", "-m", "x\n\nPerdure-Artifacts: 1")
    git(origin, "update-ref", f"refs/heads/{BRANCH}", a_commit(origin, "merged", mixed, theirs))
    with pytest.raises(ForgeRefused, match="not begun by Perdure"):
        publish_artifacts(vault, str(origin), BRANCH, "a", FILES)


def test_a_branch_that_people_work_on_is_never_written_to(vault: Vault, origin: Path) -> None:
    before = git(origin, "rev-parse", "main")
    with pytest.raises(ForgeRefused, match="main was not begun by Perdure"):
        publish_artifacts(vault, str(origin), "main", "a", FILES)
    assert git(origin, "rev-parse", "main") == before


@pytest.mark.parametrize("branch", ["", "a b", "-x..y", "a.lock"])
def test_what_is_no_name_for_a_branch_is_refused_at_once(vault: Vault, origin: Path, branch: str) -> None:
    with pytest.raises(ForgeRefused, match="no name for a branch"):
        publish_artifacts(vault, str(origin), branch, "a", FILES)


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", "", "a\nb"])
def test_a_name_leads_to_no_other_directory(vault: Vault, origin: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no name for a file"):
        publish_artifacts(vault, str(origin), BRANCH, "a", {name: b"x"})
    with pytest.raises(ValueError, match="no name for a file"):
        publish_artifacts(vault, str(origin), BRANCH, name, FILES)


PUBLISH = """
import os, sys
from pathlib import Path
from perdure.adapters.forges.artifacts import publish_artifacts
from perdure.adapters.forges.select import Forges
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
home, origin, delivery, pid = sys.argv[1:]
Path(pid).write_text(str(os.getpid()))
for number in range(3):
    vault = Vault.open_or_create(Home(Path(home)), origin)
    publish_artifacts(vault, origin, "perdure-artifacts", delivery, {"n": str(number).encode()})
"""


def process(home: Path, origin: Path, delivery: str) -> Forked:
    pid, script = home.with_name(f"{delivery}.pid"), home.with_name(f"{delivery}.py")
    script.write_text(PUBLISH)
    given, nothing = map(str, (home, origin, delivery, pid)), os.open(os.devnull, os.O_RDWR)
    try:
        return fork(str(script), *given, env=dict(os.environ), cwd=home.parent, files=(nothing, nothing, 2))
    finally:
        os.close(nothing)


def test_processes_on_one_host_and_on_others_publish_at_once_and_nothing_is_lost(origin: Path, tmp_path: Path) -> None:
    homes = {"a": "one", "b": "one", "c": "two", "d": "three"}
    started = [process(tmp_path / home, origin, delivery) for delivery, home in homes.items()]
    assert [running.wait(patient(120)) for running in started] == [0, 0, 0, 0]
    assert listed(origin) == ["README.md", "a/n", "b/n", "c/n", "d/n"]
    assert [git(origin, "show", f"{BRANCH}:{delivery}/n") for delivery in homes] == ["2"] * 4
    assert count(origin) == 12, "one commit for each, none twice"


def test_who_dies_after_the_push_adopts_it_the_next_time(vault: Vault, origin: Path, tmp_path: Path) -> None:
    hook(origin, "post-receive", f"kill -9 $(cat {tmp_path}/a.pid)")
    dying = process(tmp_path / "home", origin, "a")
    assert dying.wait(patient(60)) == -9
    until = time.monotonic() + patient(30)
    while not git(origin, "for-each-ref", f"refs/heads/{BRANCH}") and time.monotonic() < until:
        time.sleep(0.05)  # its git lives on for a moment
    tip = git(origin, "rev-parse", BRANCH)
    (origin / "hooks" / "post-receive").unlink()
    assert publish_artifacts(vault, str(origin), BRANCH, "a", {"n": b"0"}) == tip
    assert count(origin) == 1


def test_who_meets_a_faster_delivery_builds_on_it(vault: Vault, origin: Path, tmp_path: Path) -> None:
    first = publish_artifacts(vault, str(origin), BRANCH, "a", FILES)
    rival = publish_artifacts(
        Vault.open_or_create(Home(tmp_path / "other"), str(origin)), str(origin), BRANCH, "b", FILES
    )
    git(origin, "update-ref", f"refs/heads/{BRANCH}", first)
    move = f"unset GIT_QUARANTINE_PATH; git update-ref refs/heads/{BRANCH} {rival}"
    hook(origin, "pre-receive", f"test -e {tmp_path}/once || {{ touch {tmp_path}/once; {move}; }}")
    mine = publish_artifacts(vault, str(origin), BRANCH, "c", FILES)
    assert git(origin, "rev-list", BRANCH).splitlines() == [mine, rival, first]


def test_who_meets_a_lock_tries_again_and_who_is_told_no_does_not(vault: Vault, origin: Path, tmp_path: Path) -> None:
    say = "echo \"cannot lock ref 'refs/heads/x': File exists\" >&2; exit 1"
    hook(origin, "pre-receive", f"test -e {tmp_path}/once || {{ touch {tmp_path}/once; {say}; }}")
    publish_artifacts(vault, str(origin), BRANCH, "a", FILES)
    hook(origin, "pre-receive", f"echo x >> {tmp_path}/asked; echo blocked on Fridays >&2; exit 1")
    with pytest.raises(ForgeRefused, match="blocked on Fridays"):
        publish_artifacts(vault, str(origin), BRANCH, "b", FILES)
    assert (tmp_path / "asked").read_text() == "x\n"


def test_who_is_never_faster_gives_up_in_words_and_can_be_retried(vault: Vault, origin: Path, tmp_path: Path) -> None:
    say = "echo 'failed to update ref' >&2; exit 1"
    hook(origin, "pre-receive", f"echo x >> {tmp_path}/asked; {say}")
    with pytest.raises(ForgeUnavailable, match="faster"):
        publish_artifacts(vault, str(origin), BRANCH, "a", FILES)
    assert len((tmp_path / "asked").read_text().split()) == ARTIFACT_ATTEMPTS


def test_a_repository_that_is_away_is_worth_another_try(vault: Vault, origin: Path) -> None:
    away = origin.rename(origin.with_name("away.git"))
    with pytest.raises((ForgeUnavailable, ForgeRefused)):
        publish_artifacts(vault, str(origin), BRANCH, "a", FILES)
    away.rename(origin)
    publish_artifacts(vault, str(origin), BRANCH, "a", FILES)


def test_a_file_that_is_too_large_is_cut_with_a_word(vault: Vault, origin: Path) -> None:
    large = "é".encode() * ARTIFACT_BYTES
    commit = publish_artifacts(
        vault, str(origin), BRANCH, "a", {"even.md": large, "odd.md": b"x" + large, "small.md": b"x"}
    )
    for name in ("even.md", "odd.md"):  # in one of them the cut is in the middle of a letter
        shown = git(origin, "show", f"{commit}:a/{name}")
        assert ARTIFACT_BYTES - 10 < len(shown.encode()) <= ARTIFACT_BYTES
        assert shown.endswith("é\n\n(cut here: the file is too large to be shown)")
    assert git(origin, "show", f"{commit}:a/small.md") == "x"


def test_a_permalink_names_the_commit() -> None:
    link = permalink("https://github.com/me/calc/", "c" * 40, "calc-issue-1", "plan.md")
    assert link == f"https://github.com/me/calc/blob/{'c' * 40}/calc-issue-1/plan.md"
    assert permalink("https://x", "c", "a b", "ü)") == "https://x/blob/c/a%20b/%C3%BC%29"


async def test_a_private_repository_behind_a_token_gets_its_branch_and_pages(
    twin: TwinRepository, tmp_path: Path
) -> None:
    url = f"{twin.hub.url}/me/calc.git"
    keys = Forges.from_environment({"PERDURE_GITHUB_URL": twin.hub.url, "PERDURE_GITHUB_TOKEN": TOKEN})
    vault = Vault.open_or_create(Home(tmp_path / "home"), url, keys)
    forge = twin.forge()

    def twice() -> tuple[str, str]:
        return publish_artifacts(vault, url, BRANCH, "a", FILES), publish_artifacts(vault, url, BRANCH, "a", FILES)

    commit, again = await asyncio.to_thread(twice)
    assert commit == again
    assert permalink(forge.web_url, commit, "a", "plan.md") == f"{twin.hub.url}/me/calc/blob/{commit}/a/plan.md"
    (bare,) = (tmp_path / "hub").rglob("calc.git")
    assert listed(bare, commit) == ["README.md", "a/plan.md", "a/receipt.json"]
    twin.hub.faults.add("git/push", "bad_gateway_after")
    later = await asyncio.to_thread(publish_artifacts, vault, url, BRANCH, "b", FILES)
    assert git(bare, "rev-parse", BRANCH) == later
    twin.hub.faults.add("git/push", "bad_gateway")
    with pytest.raises(ForgeUnavailable):
        await asyncio.to_thread(publish_artifacts, vault, url, BRANCH, "c", FILES)
    twin.hub.faults.add("git/push", "forbidden")
    with pytest.raises(ForgeRefused):
        await asyncio.to_thread(publish_artifacts, vault, url, BRANCH, "c", FILES)
    assert git(bare, "rev-parse", BRANCH) == later
