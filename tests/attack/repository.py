"""A hostile repository: what its configuration and its files make git and the engine do on the host."""

# ruff: noqa: E501 - one case a line reads as the table it is
from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git import publish
from perdure.adapters.git.patch import unified_diff
from perdure.adapters.git.target import list_not_included, resolve_repository
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.models.errors import PerdureError
from tests.attack.table import Case, Ground, Seen, held, one_line
from tests.engine import git, make_target

GROUP = "hostile repository"


@dataclass(frozen=True)
class Planted:
    """Configuration of a checkout, `{evil}` a program, and a plain git command that runs it where that is safe."""

    name: str
    settings: tuple[tuple[str, str], ...]
    command: tuple[str, ...] = ()


CONFIGURED = (
    Planted("a clean filter", (("filter.x.clean", "{evil}"),), ("add", "-A")),
    Planted("a filter that stays (process)", (("filter.x.process", "{evil}"),), ("add", "-A")),
    Planted("a smudge filter", (("filter.x.smudge", "{evil}"),), ("checkout", "--", ".")),
    Planted("a required filter", (("filter.x.clean", "{evil}"), ("filter.x.required", "true")), ("add", "-A")),
    Planted("a file system monitor", (("core.fsmonitor", "{evil}"),), ("status",)),
    Planted("a directory of hooks", (("core.hooksPath", "{hooks}"),), ("commit", "-q", "--allow-empty", "-m", "x")),
    Planted("an external diff", (("diff.external", "{evil}"),), ("diff",)),
    Planted("a diff driver", (("diff.x.command", "{evil}"),), ("diff",)),
    Planted("a text conversion", (("diff.x.textconv", "{evil}"),), ("diff",)),
    Planted("a merge driver", (("merge.x.driver", "{evil}"), ("merge.default", "x"))),
    Planted("a program that signs", (("commit.gpgSign", "true"), ("gpg.program", "{evil}")), ("commit", "-q", "--allow-empty", "-m", "x")),
    Planted("a credential helper", (("credential.helper", "!{evil}"),)),
    Planted("a program for ssh", (("core.sshCommand", "{evil}"), ("remote.origin.url", "ssh://127.0.0.1:1/x.git")), ("ls-remote", "origin")),
    Planted("a program for git://", (("core.gitProxy", "{evil}"), ("remote.origin.url", "git://127.0.0.1:1/x.git")), ("ls-remote", "origin")),
    Planted("a program that asks for passwords", (("core.askPass", "{evil}"),)),
    Planted("a pager", (("core.pager", "{evil}"), ("pager.status", "true"))),
    Planted("an editor", (("core.editor", "{evil}"),), ("commit", "--amend")),
    Planted("a file that is included", (("include.path", "{included}"),), ("status",)),
    Planted("a file that is included by condition", (("includeIf.gitdir:/.path", "{included}"),), ("status",)),
    Planted("a remote that is a command line", (("remote.origin.url", "ext::{evil} %S"),)),
    Planted("an address rewritten to a command line", (("url.ext::{evil} .insteadOf", "https://forge.invalid/"), ("remote.origin.url", "https://forge.invalid/x"))),
    Planted("another program for upload", (("remote.origin.uploadpack", "{evil}"),), ("ls-remote", "origin")),
    Planted("an alias of a command", (("alias.status", "!{evil}"), ("alias.rev-parse", "!{evil}"))),
    Planted("a program that says what changed (trailers)", (("trailer.x.command", "{evil}"), ("trailer.x.ifExists", "add"))),
)  # fmt: skip


def _evil(at: Path) -> Path:
    """A program that leaves a trace."""
    program = at / "evil"
    program.write_text(f"#!/bin/sh\necho ran >> {at}/ran\n[ $# -gt 0 ] || cat\n")
    program.chmod(0o755)
    hooks = at / "hooks"
    hooks.mkdir()
    for name in (
        "pre-commit",
        "post-checkout",
        "post-commit",
        "pre-push",
        "reference-transaction",
        "post-index-change",
    ):
        (hooks / name).symlink_to(program)
    (at / "included").write_text(f"[core]\n\tfsmonitor = {program}\n\thooksPath = {hooks}\n")
    return program


def _ran(at: Path) -> bool:
    ran = (at / "ran").exists()
    (at / "ran").unlink(missing_ok=True)
    return ran


def _checkout(at: Path) -> Path:
    target = make_target(at / "calc.git")
    work = target.with_name("calc.git-work")
    if not git(work, "remote"):
        git(work, "remote", "add", "origin", str(target))
    (work / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
    (work / "README.md").write_text("changed\n")
    git(work, "add", "-A")
    (work / "README.md").write_text("changed again\n")
    return work


def _plain(work: Path, command: Sequence[str]) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(work.parent), "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": ""}
    env.pop("GIT_EDITOR")
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run(["git", *who, *command], cwd=work, env=env, capture_output=True, check=False, timeout=30)


def _as_a_person_delivers(work: Path) -> str:
    """The command line in somebody's checkout, before anything is asked or paid."""
    from perdure.cli.request.repository import origin_url, read_file_at_commit, read_working_tree_config

    try:
        origin_url(work)
        target = resolve_repository(str(work), work)
        base, sha = target.base_branch()
        list_not_included(work, base)
        read_file_at_commit(work, sha)
        read_working_tree_config(work)
    except PerdureError as error:
        return f"refused: {error}"
    return "read"


def _configured(one: Planted) -> Case:
    def attack(at: Ground) -> Seen:
        place = Path(tempfile.mkdtemp(dir=at.root))
        evil, work = _evil(place), _checkout(place)
        for key, value in one.settings:
            git(work, "config", _in(key, place, evil), _in(value, place, evil))
        if one.command:
            _plain(work, one.command)
            if not _ran(place):
                return Seen("MISSED", f"proves nothing: plain git {' '.join(one.command)} did not run it")
        said = _as_a_person_delivers(work)
        shown = "; plain git runs it" if one.command else ""
        return (
            Seen("MISSED", f"it ran on the host ({one_line(said, 40)})")
            if _ran(place)
            else held(True, f"did not run ({one_line(said, 40)}){shown}")
        )

    return Case(GROUP, f"the checkout's configuration has {one.name}", "does not run", attack)


def _in(text: str, place: Path, evil: Path) -> str:
    return (
        text.replace("{evil}", str(evil))
        .replace("{hooks}", f"{place}/hooks")
        .replace("{included}", f"{place}/included")
    )


def _bare_inside(at: Ground) -> Seen:
    """`cd docs && perdure deliver`, where docs looks like a bare repository with configuration of its own."""
    place = Path(tempfile.mkdtemp(dir=at.root))
    evil, work = _evil(place), _checkout(place)
    docs = work / "docs"
    git(work, "init", "-q", "--bare", "docs")
    (docs / ".gitattributes").write_text("* filter=x\n")
    (docs / "page").write_text("before")
    config = f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {docs}\n"
    (docs / "config").write_text(config)
    git(docs, "add", "page", ".gitattributes")
    git(docs, "commit", "-qm", "x")
    (docs / "page").write_text("AFTER!")
    (docs / "config").write_text(config + f'[filter "x"]\n\tclean = {evil}\n')
    _plain(docs, ("status",))
    bare = _ran(place)
    said = _as_a_person_delivers(docs)
    if _ran(place):
        return Seen("MISSED", f"it ran on the host; {said}")
    return held(bare, f"did not run ({one_line(said, 50)}); plain git runs it" if bare else "proves nothing")


def _agents_worktree(what: Callable[[Workspace, Path, Path], None]) -> Callable[[Ground], Seen]:
    def attack(at: Ground) -> Seen:
        place = Path(tempfile.mkdtemp(dir=at.root))
        evil = _evil(place)
        target = make_target(place / "calc.git")
        from perdure.adapters.system.home import Home

        home = Home(place / "home")
        vault = Vault.open_or_create(home, str(target))
        _, base = vault.fetch()
        workspace = Workspace.create(home, vault, "demo-1", base)
        (workspace.path / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
        what(workspace, place, evil)
        try:
            (workspace.path / "new.x").write_text("changed\n")
            first = cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[])
            (workspace.path / "README.md").write_text("changed\n")
            second = cp.snapshot_worktree(workspace, parent=first, turn={}, transcript=[])
            cp.restore_checkpoint(workspace, second)
            unified_diff(vault, first + ":tree", second + ":tree")
            commit, _ = publish.commit_checkpoint(workspace, checkpoint=second, parent=base, message="feat: x")
            workspace.advance_head(commit)
            said = "snapshot, restore, diff and commit done"
        except PerdureError as error:
            said = f"refused: {error}"
        return held(not _ran(place) and not (place / "outside").exists(), said)

    return attack


def _settings(place: Path, evil: Path) -> str:
    return (
        f'[core]\n\tfsmonitor = {evil}\n\thooksPath = {place}/hooks\n[filter "x"]\n\tclean = {evil}\n\tsmudge = {evil}\n'
        f'[diff]\n\texternal = {evil}\n[diff "x"]\n\ttextconv = {evil}\n[commit]\n\tgpgSign = true\n'
        f"[gpg]\n\tprogram = {evil}\n"
    )


def _pointer(workspace: Workspace, place: Path, evil: Path) -> None:
    git(place, "init", "-q", "attacker")
    (place / "attacker" / ".git" / "config").write_text(_settings(place, evil))
    (workspace.path / ".git").write_text(f"gitdir: {place}/attacker/.git\n")


def _commondir(workspace: Workspace, place: Path, evil: Path) -> None:
    git(place, "init", "-q", "attacker")
    (place / "attacker" / ".git" / "config").write_text(_settings(place, evil))
    (Path(workspace.record().admin) / "commondir").write_text(f"{place}/attacker/.git\n")


def _nested(workspace: Workspace, place: Path, evil: Path) -> None:
    git(workspace.path, "init", "-q", "inner")
    (workspace.path / "inner" / ".git" / "config").write_text(_settings(place, evil))


def _git_link(workspace: Workspace, place: Path, evil: Path) -> None:
    (workspace.path / ".git").unlink()
    (workspace.path / ".git").symlink_to(place)
    (place / "config").write_text(_settings(place, evil))


def _modules(workspace: Workspace, place: Path, evil: Path) -> None:
    (workspace.path / ".gitmodules").write_text(
        f'[submodule "x"]\n\tpath = x\n\turl = ext::{evil}\n\tupdate = !{evil}\n'
    )


def _linked_out(workspace: Workspace, place: Path, _: Path) -> None:
    (place / "target").mkdir()
    (workspace.path / "new.x").symlink_to(place / "outside")


def _odd_names(workspace: Workspace, place: Path, evil: Path) -> None:
    for name in ("-rf", "--upload-pack=x", "a\nb", "\x1b[31m", "$(touch x)", "`x`", ".git\u200c", "GIT~1"):
        (workspace.path / name).write_text("x")


CASES = (
    *map(_configured, CONFIGURED),
    Case(GROUP, "a directory of the checkout is a bare repository (cd docs)", "does not run", _bare_inside),
    Case(GROUP, "the worktree's .git points to the attacker's", "does not run", _agents_worktree(_pointer)),
    Case(GROUP, "the worktree's commondir points to the attacker's", "does not run", _agents_worktree(_commondir)),
    Case(GROUP, "a nested repository with configuration", "does not run", _agents_worktree(_nested)),
    Case(GROUP, "the worktree's .git is a link", "does not run", _agents_worktree(_git_link)),
    Case(GROUP, "a submodule with a command for update", "does not run", _agents_worktree(_modules)),
    Case(GROUP, "file names with dashes, newlines and commands", "are names", _agents_worktree(_odd_names)),
)
