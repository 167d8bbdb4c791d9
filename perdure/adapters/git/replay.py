"""Commits of one line brought onto another commit, one after the other: authors, dates, words and trailers stay."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.adapters.git.integration import BACKLOG_TRAILER
from perdure.adapters.git.landing import bring_onto
from perdure.adapters.git.vault import Vault

ITEM_TRAILER = "Perdure-Item"

_REPLACED = (b"tree", b"parent", b"gpgsig", b"gpgsig-sha256", b"mergetag")
"""Headers of a commit that do not go along: a signature is over the others."""

_PATHS = 5
"""In conflict, named in one line."""


@dataclass(frozen=True)
class Replayed:
    """`head`: the last of them; empty where it could not be done, and `problem` says why, in one line."""

    head: str = ""
    commits: int = 0
    problem: str = ""


def replay(vault: Vault, head: str, onto: str, *without: str) -> Replayed:
    """The commits that `head` has, and neither `onto` nor any of `without`, once more on `onto`. No ref is moved.

    The same commits give the same ones again, whenever that is. A change that is there already stays as an empty
    commit: its words tell of the item.
    """
    spared = [f"^{commit}" for commit in (onto, *without) if vault.has(commit)]
    listed = vault.git.text("log", "--reverse", "--topo-order", "--format=%H %P", "--end-of-options", head, *spared)
    lines = [line.split() for line in listed.splitlines()]
    tip = onto
    for commit, *parents in lines:
        if len(parents) != 1:
            kind = "a merge" if parents else "another beginning"
            return Replayed(problem=f"{_subject(vault, commit)} is {kind}, and it is one line of commits")
        merged = bring_onto(vault, parents[0], tip, commit)
        if merged.conflicts:
            more = f" and {len(merged.conflicts) - _PATHS} more" if len(merged.conflicts) > _PATHS else ""
            paths = ", ".join(path.encode(errors="replace").decode() for path in merged.conflicts[:_PATHS])
            return Replayed(problem=f"{_subject(vault, commit)} conflicts in {paths[:300]}{more}")
        tip = _again(vault, commit, merged.tree, tip)
    return Replayed(tip, len(lines))


def items_on(vault: Vault, tip: str, base: str, backlog: str) -> dict[str, str]:
    """By item, the oldest commit of this backlog's that `tip` has and `base` has not."""
    names = "".join(f"%x00%(trailers:key={key},valueonly,separator=%x2C)" for key in (BACKLOG_TRAILER, ITEM_TRAILER))
    told = vault.git.text("log", f"--format=%H{names}", "--end-of-options", tip, f"^{base}")
    parts = (line.split("\0") for line in told.splitlines())
    return {item: commit for commit, of, item in parts if of == backlog and item}


def _again(vault: Vault, commit: str, tree: str, parent: str) -> str:
    written = vault.git.run("cat-file", "commit", commit).stdout
    headers, _, words = written.partition(b"\n\n")
    kept, keeps = list[bytes](), True
    for line in headers.split(b"\n"):
        keeps = keeps if line.startswith(b" ") else line.partition(b" ")[0] not in _REPLACED
        kept += [line] if keeps else []
    lines = (f"tree {tree}".encode(), f"parent {parent}".encode(), *kept)
    return vault.objects.written_commit(b"\n".join(lines) + b"\n\n" + words)


def _subject(vault: Vault, commit: str) -> str:
    """`page ("feat: show it", 4e5f123)`, as far as it is an item's."""
    told = f"--format=%(trailers:key={ITEM_TRAILER},valueonly,separator=%x2C)%x00%s"
    item, _, subject = vault.git.text("log", "-1", told, "--end-of-options", commit).partition("\0")
    return f'{item or "a commit"} ("{subject[:80]}", {commit[:7]})'
