"""A hijacked agent looks in git for what other deliveries, and its own author, said."""

# ruff: noqa: E501 - one case a line reads as the table it is

from __future__ import annotations

import tempfile
from pathlib import Path

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git import publish
from perdure.adapters.git.git_view import update_view
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.models.config.repository import SandboxGrade
from tests.attack.inside import GROUP, Try, cases_of
from tests.attack.table import SECRET, Case, Ground, Seen, held
from tests.repositories import git, make_target

_BRANCH = "perdure/demo-1"
_BOTH = 2
"""Conversations with the secret: the delivery's own, and another's."""


def _delivery(at: Ground) -> tuple[Workspace, str, Vault, str]:
    """A delivery with a commit, another delivery's checkpoint, and a commit of a branch that is nobody's base here."""
    target = make_target(Path(tempfile.mkdtemp(dir=at.root)) / "calc.git")
    work = target.with_name("calc.git-work")
    git(work, "switch", "-qc", "internal")
    git(work, "commit", "-q", "--allow-empty", "-m", "not for everybody")
    git(work, "push", "-q", str(target), "internal")
    vault = Vault.open_or_create(at.home, str(target))
    _, base = vault.fetch()
    vault.fetch("internal")
    mine, other = (Workspace.create(at.home, vault, name, base) for name in ("demo-1", "other-2"))
    (mine.path / "new.py").write_text("NEW = 1\n")
    made = {}
    for one in (mine, other):
        said = [{"role": "assistant", "content": f"{one.delivery}: {SECRET}"}]
        made[one] = cp.snapshot_worktree(one, parent=None, turn={}, transcript=said)
        vault.git.execute("update-ref", f"refs/perdure/{one.delivery}/run", made[one])
    commit, _ = publish.commit_checkpoint(mine, checkpoint=made[mine], parent=base, message="feat: mine")
    mine.advance_head(commit)
    return mine, made[other], vault, git(work, "rev-parse", "internal")


def _viewed(at: Ground) -> tuple[dict[str, object], dict[str, object]]:
    mine, other, vault, internal = at.once(_delivery)
    shown = update_view(mine, "main", mine.record().base_sha, _BRANCH)
    named = {"vault": vault.path, "others": other, "internal": internal}
    return {"worktree": mine.path, "git_dir": shown}, named


def _try(name: str, expected: str, script: str, *, reduced: bool = False) -> Try:
    return Try(f"git: {name}", expected, script, reduced=reduced, given=_viewed)


TRIES = (
    _try("reads every object for conversations", "none is there", f"git cat-file --batch-all-objects --batch | grep -a {SECRET} && echo REACHED"),
    _try("reads another delivery's checkpoint by its hash", "not there", "git cat-file -p {others} && echo REACHED"),
    _try("lists the refs of checkpoints", "none is there", "git for-each-ref | grep refs/perdure && echo REACHED"),
    _try("names the vault as its repository", "not there", "git --git-dir={vault} cat-file -p {others} && echo REACHED"),
    _try("borrows the vault's objects", "not there", "GIT_ALTERNATE_OBJECT_DIRECTORIES={vault}/objects git cat-file -p {others} && echo REACHED"),
    _try("asks the vault as a remote", "not there", "git ls-remote {vault} | grep refs/perdure && echo REACHED"),
    _try("looks for the vault's files", "not there", "ls -d {vault}/objects/[0-9a-f][0-9a-f] && echo REACHED"),
    _try("reads a branch that is not its base", "not there", "git cat-file -p {internal} && echo REACHED"),
    _try("moves a branch", "read-only", "git update-ref refs/heads/moved-$$ HEAD && echo REACHED", reduced=True),
    _try("configures the repository", "read-only", "git config attack.key value && echo REACHED", reduced=True),
)  # fmt: skip


def _works(at: Ground) -> Seen:
    """That nothing is found there would be no wonder in a view in which git does not work."""
    fields, _ = at.once(_viewed)
    shown = at.run(
        "git log --format=%s; git status --short; git diff --stat origin/main..HEAD", SandboxGrade.FULL, **fields
    )
    mine, _, vault, _ = at.once(_delivery)
    whole = at.run("git cat-file --batch-all-objects --batch", worktree=mine.path, git_dir=vault.path).count(SECRET)
    return held("feat: mine" in shown and "fatal" not in shown and whole == _BOTH, f"{shown}; the vault shows {whole}")


CASES = (
    *cases_of(GROUP, TRIES),
    Case(GROUP, "git: uses log, status and diff, which it may", "they work", _works, benign=True),
)
