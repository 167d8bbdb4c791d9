"""Landing: a delivery's change brought onto a branch that others land on, and that branch moved by compare-and-swap."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.branch import push
from perdure.adapters.git.door import Git, GitError, redact
from perdure.adapters.git.remote import remote_heads
from perdure.adapters.git.repository import RefMoved
from perdure.adapters.git.vault import BARE, Vault
from perdure.models.errors import Diverged, ForgeRefused, WorkspaceLost

LANDED, OURS = "landed", "this-delivery"
"""The sides, as the marks of a conflict and git's words about it call them."""

_SETTINGS = (
    "merge.conflictStyle=diff3",  # without what both began from nobody can tell what was changed and what was left
    "merge.renames=true",
    "merge.directoryRenames=conflict",
    "merge.renameLimit=1000",  # beyond it renames are not looked for: a conflict more, and never a minute
)


@dataclass(frozen=True)
class Merged:
    """Two sides brought together. `tree` has the marks of what could not be; `conflicts`: all paths, in git's order;
    `told`: git's words about them, one line each."""

    tree: str
    conflicts: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def fetch_landing(vault: Vault, branch: str, landed: str = "") -> str:
    """Fetch an integration branch and return its commit.

    landed  has to be on it still, itself or as the commit it became when the branch followed its base; empty: nothing
            has landed as far as anybody knows

    Raises ForgeRefused where somebody took it away, or the whole branch; ForgeUnavailable.
    """
    tip = vault.fetch_branch(branch)
    if tip is None:
        raise gone(vault, branch, landed)
    there = not landed or (vault.has(landed) and (vault.is_ancestor(landed, tip) or _again(vault, landed, tip)))
    if not there:
        raise ForgeRefused(
            f"branch {branch} was put back: it is at {tip[:12]}, without {landed[:12]}, which had landed",
            where=redact(vault.url),
            fix=f"nothing was overwritten; {_bring_back(vault, branch, landed)}",
        )
    return tip


def _again(vault: Vault, landed: str, tip: str) -> bool:
    """True where the item of that commit is there, as another one."""
    told = vault.git.text("log", "-1", "--format=%(trailers:only,unfold)", "--end-of-options", landed).splitlines()
    trailers = dict(line.split(": ", 1) for line in told if line.startswith("Perdure-"))
    return "Perdure-Item" in trailers and bool(find_landed(vault, landed, tip, trailers))


def find_landed(vault: Vault, base: str, tip: str, trailers: Mapping[str, str]) -> str:
    """The oldest commit that `tip` has and `base` has not, and that carries all these trailers; empty: none does.

    It landed before: whoever pushed it died before it could say so, or the delivery was rewound.
    """
    if base == tip:
        return ""
    told = "--format=%x00%H%n%(trailers:only,unfold)"
    listed = vault.git.run("log", "--reverse", told, "--end-of-options", tip, f"^{base}")
    for written in listed.stdout.decode(errors="replace").split("\0")[1:]:
        commit, *lines = written.splitlines()
        if set(trailers.items()) <= {tuple(line.split(": ", 1)) for line in lines}:
            return commit
    return ""


def bring_onto(vault: Vault, base: str, onto: str, head: str) -> Merged:
    """The change from `base` to `head`, brought onto `onto`. No ref is moved and no worktree touched.

    That change alone: nothing else comes along of a history that `head` has and `onto` has not, and it does not matter
    how the two are related. Git 2.39 takes the merge base from history only: it is shown one of three commits.
    """
    if base == onto:
        return Merged(vault.tree_of(head))
    with tempfile.TemporaryDirectory(prefix="perdure-landing-") as scratch:
        at = Path(scratch)
        (at / "refs" / "heads").mkdir(parents=True)
        (at / "HEAD").write_text("ref: refs/heads/none\n")
        (at / "config").write_text(BARE)
        began = vault.objects.commit(vault.tree_of(base), (), "base", at=0)
        for name, commit in ((LANDED, onto), (OURS, head)):
            side = vault.objects.commit(vault.tree_of(commit), (began,), name, at=0)
            (at / "refs" / "heads" / name).write_text(f"{side}\n")
        return _merged(Git(git_dir=at, objects=vault.objects.path, settings=_SETTINGS), LANDED, OURS)


def forecast(vault: Vault, a: str, b: str) -> tuple[str, ...]:
    """Paths on which two open commits would conflict if both landed: 6 ms. Empty where none would, and where git cannot
    tell (one of them is not here)."""
    try:
        return _merged(Git(git_dir=vault.path, settings=_SETTINGS), a, b).conflicts
    except GitError:
        return ()


def land(vault: Vault, branch: str, onto: str, commit: str) -> str:
    """Move a branch of the remote from `onto` to its child `commit`, and return where it is now: that commit, or what
    somebody else has moved it to; then nothing was done. Safe to repeat.

    Raises ForgeRefused (it is gone, protected, the default branch), ForgeUnavailable, Diverged.
    """
    _follows(vault, commit, onto)
    heads = remote_heads(vault.url, vault.keys)
    tip = heads.branches.get(branch)
    if branch == heads.default:
        raise ForgeRefused(f"{branch} is the default branch: nobody lands there", where=redact(vault.url))
    if tip is None:
        raise gone(vault, branch, onto)
    if tip != onto:
        return tip
    try:
        push(vault, vault.url, commit, branch, onto)
    except ForgeRefused:
        now = remote_heads(vault.url, vault.keys).branches.get(branch)
        if now is None or now == onto:
            raise
        return now  # somebody was faster, between the look and the push
    return commit


def land_here(vault: Vault, branch: str, onto: str, commit: str) -> str:
    """The same for a branch that only the vault has: nothing is pushed. Raises Diverged."""
    _follows(vault, commit, onto)
    ref = ref_here(branch)
    with vault.lock():
        vault.remove_stale_locks(ref)  # whoever moves it holds the vault's lock: one that is there is of a dead writer
        try:
            vault.move_ref(ref, commit, onto)
        except RefMoved:
            return head_here(vault, branch)
    return commit


def head_here(vault: Vault, branch: str) -> str:
    """The commit of a branch that only the vault has. Raises WorkspaceLost where it is gone."""
    tip = vault.read_ref(ref_here(branch))
    if tip is None:
        raise WorkspaceLost(f"branch {branch} is not in the vault any more", where=str(vault.path))
    return tip


def ref_here(branch: str) -> str:
    """Its ref: it is kept as long as its delivery, whose key its name begins with."""
    return f"refs/artifacts/{branch}"


def _follows(vault: Vault, commit: str, onto: str) -> None:
    if vault.git.text("rev-list", "--parents", "-1", "--end-of-options", commit).split()[1:] != [onto]:
        raise Diverged(f"{commit[:12]} does not follow {onto[:12]}: it was not made to land there")


def _merged(git: Git, a: str, b: str) -> Merged:
    how = ("merge-tree", "--write-tree", "-z", "--name-only", "--allow-unrelated-histories")
    done = git.run(*how, a, b, ok=(0, 1))
    if not done.stdout:  # git 2.39 ends as with a conflict where one of them is not here
        raise GitError([*how, a, b], done.returncode, done.stderr)
    (tree, *paths), said = _until_empty(done.stdout.split(b"\0"))
    if done.returncode == 0:
        return Merged(tree.decode())
    return Merged(tree.decode(), tuple(path.decode(errors="surrogateescape") for path in paths), _messages(said))


def _until_empty(parts: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The tree and the paths; then messages, each of them a number of paths, the paths, its kind and its words."""
    end = parts.index(b"")
    return parts[:end], parts[end + 1 :]


def _messages(parts: list[bytes]) -> tuple[str, ...]:
    found, at = [], 0
    while at < len(parts) and parts[at].strip().isdigit():
        at += int(parts[at]) + 1
        kind, words = parts[at], parts[at + 1]
        if kind.startswith(b"CONFLICT"):
            found.append(" ".join(words.decode(errors="replace").split()))
        at += 2
    return tuple(dict.fromkeys(found))


def gone(vault: Vault, branch: str, landed: str) -> ForgeRefused:
    """Say that somebody took the branch away. `landed`: what was on it; empty: nothing is known."""
    fix = _bring_back(vault, branch, landed) if landed else f"make {branch} again, then retry"
    return ForgeRefused(f"branch {branch} is not on the remote any more", where=redact(vault.url), fix=fix)


def _bring_back(vault: Vault, branch: str, landed: str) -> str:
    """The command on a line of its own: whoever reads it can paste it. No force: what others pushed there stays."""
    typed = shlex.join(["git", "-C", str(vault.path), "push", redact(vault.url), f"{landed[:12]}:refs/heads/{branch}"])
    return f"bring {landed[:12]} back, then retry:\n{typed}"
