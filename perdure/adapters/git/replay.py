"""Commits of one line put onto another commit, one after the other: authors, dates, messages and trailers stay."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.adapters.git.integration import BACKLOG_TRAILER
from perdure.adapters.git.landing import merge_change_onto
from perdure.adapters.git.vault import Vault

ITEM_TRAILER = "Perdure-Item"

_DROPPED_HEADERS = (b"tree", b"parent", b"gpgsig", b"gpgsig-sha256", b"mergetag")
"""Headers of a commit that are not copied: two are written anew, and a signature is over the old ones."""

_MAX_PATHS = 5
"""The most paths in conflict that are named in one line."""


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay. `head` is the last new commit, empty where the replay failed; `problem` then says why, in
    one line."""

    head: str = ""
    commits: int = 0
    problem: str = ""


def replay_commits(vault: Vault, head: str, onto: str, *excluded: str) -> ReplayResult:
    """Write the commits that `head` has, and neither `onto` nor any of `excluded` has, once more on top of `onto`. No
    ref is moved. A merge among them, or a conflict, ends it with a `problem`.

    The same commits always give the same new ones. A change that is there already stays as an empty commit, because its
    message tells of the item.
    """
    exclusions = [f"^{commit}" for commit in (onto, *excluded) if vault.has_commit(commit)]
    listed = vault.git.text("log", "--reverse", "--topo-order", "--format=%H %P", "--end-of-options", head, *exclusions)
    lines = [line.split() for line in listed.splitlines()]
    tip = onto
    for commit, *parents in lines:
        if len(parents) != 1:
            kind = "a merge" if parents else "another beginning"
            return ReplayResult(problem=f"{_describe_commit(vault, commit)} is {kind}, and it is one line of commits")
        merged = merge_change_onto(vault, parents[0], tip, commit)
        if merged.conflicts:
            more = f" and {len(merged.conflicts) - _MAX_PATHS} more" if len(merged.conflicts) > _MAX_PATHS else ""
            paths = ", ".join(path.encode(errors="replace").decode() for path in merged.conflicts[:_MAX_PATHS])
            return ReplayResult(problem=f"{_describe_commit(vault, commit)} conflicts in {paths[:300]}{more}")
        tip = _copy_commit(vault, commit, merged.tree, tip)
    return ReplayResult(tip, len(lines))


def landed_items(vault: Vault, tip: str, base: str, backlog: str) -> dict[str, str]:
    """Return, by item, the oldest commit for it of this backlog that `tip` has and `base` has not."""
    names = "".join(f"%x00%(trailers:key={key},valueonly,separator=%x2C)" for key in (BACKLOG_TRAILER, ITEM_TRAILER))
    output = vault.git.text("log", f"--format=%H{names}", "--end-of-options", tip, f"^{base}")
    parts = (line.split("\0") for line in output.splitlines())
    return {item: commit for commit, owner, item in parts if owner == backlog and item}


def _copy_commit(vault: Vault, commit: str, tree: str, parent: str) -> str:
    """Write a copy of a commit with another tree and parent, and return it. Its message and all headers but
    _DROPPED_HEADERS stay."""
    content = vault.git.execute("cat-file", "commit", commit).stdout
    headers, _, message = content.partition(b"\n\n")
    kept_headers, is_kept = list[bytes](), True
    for line in headers.split(b"\n"):
        is_kept = is_kept if line.startswith(b" ") else line.partition(b" ")[0] not in _DROPPED_HEADERS
        kept_headers += [line] if is_kept else []
    lines = (f"tree {tree}".encode(), f"parent {parent}".encode(), *kept_headers)
    return vault.objects.write_raw_commit(b"\n".join(lines) + b"\n\n" + message)


def _describe_commit(vault: Vault, commit: str) -> str:
    """Return a commit's item, subject and short hash for a message: `page ("feat: show it", 4e5f123)`. Without an item:
    `a commit (…)`."""
    log_format = f"--format=%(trailers:key={ITEM_TRAILER},valueonly,separator=%x2C)%x00%s"
    item, _, subject = vault.git.text("log", "-1", log_format, "--end-of-options", commit).partition("\0")
    return f'{item or "a commit"} ("{subject[:80]}", {commit[:7]})'
