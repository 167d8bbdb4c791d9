"""Repositories that bring programs along in their own configuration: none of them runs, whatever we ask there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.foreign_repository import _STARTS, find_repository, receive_pack_options
from perdure.adapters.git.publish import push_commit
from perdure.adapters.git.target import list_not_included, resolve_repository
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.cli.host.init import _find_root
from perdure.cli.host.remote_checks import _remembered_default_branch
from perdure.cli.look.pulls import _find_origin
from perdure.cli.request.repository import find_local_repository, origin_url, read_file_at_commit
from perdure.models.errors import BadInput, PerdureError
from tests.engine import CALC, git, make_target

STATUS, MISSING, DIFF = ("status",), ("cat-file", "-e", "1" * 40), ("diff",)

ATTACKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "filter clean": ('[filter "x"]\n clean = "RUN; cat"\n required = true\n', STATUS),
    "filter process": ('[filter "x"]\n process = "RUN"\n', STATUS),
    "filter of an odd name": ('[filter "x=y.z"]\n clean = "RUN; cat"\n', STATUS),
    "fsmonitor": ('[core]\n fsmonitor = "RUN; false"\n', STATUS),
    "include": ("[include]\n path = extra\n", STATUS),
    "includeIf": ('[includeIf "gitdir:**"]\n path = extra\n', STATUS),
    "worktree configuration": ("[extensions]\n worktreeConfig = true\n", STATUS),
    "a missing object": (
        '[core]\n repositoryformatversion = 1\n[extensions]\n partialClone = evil\n[remote "evil"]\n promisor = true\n'
        ' url = HERE\n uploadpack = "RUN; false"\n',
        MISSING,
    ),
    "external diff": ('[diff]\n external = "RUN"\n', DIFF),
    "textconv": ('[diff "x"]\n textconv = "RUN; cat"\n', DIFF),
}
"""Configuration of a checkout → a plain git command that is known to start what it names."""


def hostile(tmp_path: Path, config: str) -> tuple[Path, Path]:
    """An unpacked checkout without a remote, and the file that says that a command of its ran."""
    make_target(tmp_path / "calc.git", {**CALC, ".gitattributes": "* filter=x diff=x\n*.toml filter=x=y.z\n"})
    checkout, ran = tmp_path / "calc.git-work", tmp_path / "RAN"
    told = config.replace("RUN", f"touch {ran}").replace("HERE", str(checkout))
    filters = f'[filter "x"]\n clean = "touch {ran}; cat"\n'
    (checkout / ".git" / "extra").write_text(filters)
    (checkout / ".git" / "config.worktree").write_text(filters)
    with (checkout / ".git" / "config").open("a") as file:
        file.write(told)
    (checkout / "calc.py").write_text("# changed\n")
    return checkout, ran


def everything(checkout: Path, tmp_path: Path) -> None:
    """Whatever the product asks of a person's checkout, from `doctor` to the pull request."""
    target = resolve_repository(".", checkout)
    name, sha = target.base_branch()
    list_not_included(checkout, name)
    for commit in (sha, "1" * 40):
        if place := find_local_repository(target, commit):
            read_file_at_commit(place, commit)
    for ask in (origin_url, _remembered_default_branch, _find_origin, _find_root):
        ask(checkout)
    vault = Vault.open_or_create(Home(tmp_path / "home"), target.url)
    vault.fetch()
    made = vault.git.text("commit-tree", "-p", sha, "-m", "x", f"{sha}^{{tree}}")
    push_commit(vault, target.url, made, "perdure/x", None)
    forge = LocalForge(target.url)
    forge.open_or_update_pull(Proposal("x", "x", "x", "perdure/x", made, name))
    forge.pulls_of_branch("perdure/x", "x")
    forge.pull_details(1)
    assert list_not_included(checkout, name), "it is looked at all the same"


@pytest.mark.parametrize("name", ATTACKS)
def test_no_program_of_a_checkouts_own_configuration_runs(tmp_path: Path, name: str) -> None:
    config, plain = ATTACKS[name]
    checkout, ran = hostile(tmp_path, config)
    subprocess.run(["git", "-C", str(checkout), *plain], capture_output=True, timeout=60, check=False)
    assert ran.exists(), "unprotected it does"
    ran.unlink()
    (checkout / "calc.py").write_text("# changed once more\n")
    everything(checkout, tmp_path)
    assert not ran.exists()


@pytest.mark.parametrize("hook", ["pre-receive", "update", "post-receive", "post-update", "reference-transaction"])
def test_no_hook_of_a_checkout_runs_when_its_own_branch_is_pushed(tmp_path: Path, hook: str) -> None:
    checkout, ran = hostile(tmp_path, "")
    script = checkout / ".git" / "hooks" / hook
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    git(tmp_path / "calc.git", "push", "-q", str(checkout), "main:refs/heads/unprotected")
    assert ran.exists(), "unprotected it does"
    ran.unlink()
    everything(checkout, tmp_path)
    assert not ran.exists()


def bare_inside(tmp_path: Path) -> tuple[Path, Path]:
    """A plain clone with a folder that is itself a bare repository, which git finds before the clone around it."""
    make_target(tmp_path / "calc.git")
    clone, ran = tmp_path / "calc.git-work", tmp_path / "RAN"
    docs = clone / "docs"
    git(clone, "clone", "-q", "--bare", "--template=", str(tmp_path / "calc.git"), str(docs))
    (docs / ".gitattributes").write_text("* filter=x\n")
    config = f'[core]\n bare = false\n worktree = .\n[filter "x"]\n clean = "touch {ran}; cat"\n'
    with (docs / "config").open("a") as file:
        file.write(config)
    git(docs, "read-tree", "HEAD", GIT_DIR=str(docs))
    (docs / "calc.py").write_text("x\n")
    return docs, ran


@pytest.mark.parametrize(
    "ask",
    [
        lambda docs: resolve_repository(".", docs),
        lambda docs: resolve_repository("docs", docs.parent),
        lambda docs: resolve_repository(".", docs / "objects"),
        lambda docs: list_not_included(docs, "main"),
        lambda docs: LocalForge(str(docs)).list_pulls(),
        _find_root,
    ],
)
def test_a_folder_of_a_clone_that_is_a_repository_runs_nothing_and_is_never_taken_for_one(
    tmp_path: Path, ask: Callable[[Path], object]
) -> None:
    docs, ran = bare_inside(tmp_path)
    unprotected = ["git", "-C", str(docs), "status"]
    subprocess.run(unprotected, capture_output=True, timeout=60, check=False)
    assert ran.exists(), "unprotected it does"
    ran.unlink()
    with pytest.raises(PerdureError):
        ask(docs)
    assert not ran.exists()


def test_a_bare_repository_inside_a_checkout_is_refused_with_the_way_out(tmp_path: Path) -> None:
    make_target(tmp_path / "calc.git")
    inside = tmp_path / "calc.git-work" / "docs"
    git(tmp_path, "clone", "-q", "--bare", "--template=", str(tmp_path / "calc.git"), str(inside))
    with pytest.raises(BadInput, match="docs is a bare repository inside the checkout") as refused:
        resolve_repository(".", inside)
    assert "name the checkout itself" in refused.value.fix
    assert find_repository(tmp_path / "calc.git").root is None, "one that lies by itself is a place to push to"


def test_what_became_such_a_folder_since_the_delivery_began_starts_nothing_at_its_push(tmp_path: Path) -> None:
    docs, ran = bare_inside(tmp_path)
    hook = docs / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    clone = tmp_path / "calc.git-work"
    git(clone, "push", "-q", str(docs), "HEAD:refs/heads/unprotected")
    assert ran.exists(), "unprotected it does"
    ran.unlink()
    git(clone, "push", "-q", *receive_pack_options(str(docs)), str(docs), "HEAD:refs/heads/ours")
    assert not ran.exists()


def test_a_checkout_cannot_make_another_directory_its_working_tree(tmp_path: Path) -> None:
    checkout, _ = hostile(tmp_path, f"[core]\n worktree = {tmp_path}\n")
    with pytest.raises(BadInput, match=r"core\.worktree leads elsewhere"):
        resolve_repository(".", checkout)


@pytest.mark.parametrize("name", [b"caf\xe9", b"two\nlines"])
def test_a_directory_whose_name_cannot_be_written_down_is_refused_by_that(tmp_path: Path, name: bytes) -> None:
    odd = tmp_path / os.fsdecode(name)
    subprocess.run(["git", "init", "-q", odd], check=True, timeout=60)
    with pytest.raises(BadInput, match="path is not UTF-8 text, or has the end of a line") as refused:
        find_repository(odd)
    assert refused.value.fix == "rename the directory"
    str(refused.value).encode()


def test_every_key_of_git_that_starts_a_program_is_known_to_be_one() -> None:
    """From git-config(1): whatever says that it is a command, a program, a helper or a hook."""
    listed = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, timeout=60, check=True).stdout
    said = {
        *(
            "clean",
            "smudge",
            "process",
            "textconv",
            "driver",
            "cmd",
            "command",
            "program",
            "helper",
            "vcs",
            "hookspath",
        ),
        *("uploadpack", "receivepack", "editor", "askpass", "sshcommand", "gitproxy", "fsmonitor", "difffilter"),
        *("pager", "external", "packobjectshook", "recentobjectshook", "alternaterefscommand", "promisor"),
    }
    harmless = {"color.pager", "column.clean"}
    starts = {key for key in listed.splitlines() if key.rpartition(".")[2].lower() in said} - harmless
    assert [key for key in starts if not _STARTS.match(re.sub("<.*?>", "x", key).replace("*", "x"))] == []
    assert len(starts) > 25


@pytest.mark.parametrize("count", [1, 40_000])
def test_more_programs_than_can_be_blanked_are_refused_in_words(tmp_path: Path, count: int) -> None:
    name = "x" * (200_000 // count)
    checkout, ran = hostile(tmp_path, "".join(f'[filter "{n}{name}"]\n clean = "RUN"\n' for n in range(count)))
    with pytest.raises(BadInput, match="names programs by more than 64 KiB of keys"):
        find_repository(checkout)
    assert not ran.exists()
