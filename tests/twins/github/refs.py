"""Branches and commits in a bare repository: what a pull request is about."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_GIT_S = 60
"""For one git command: on a busy machine a clone of a small repository can take seconds."""

_CONFIG = {
    "gc.auto": "0",
    "maintenance.auto": "false",
    "core.fsync": "none",
    "safe.directory": "*",
    "init.defaultBranch": "main",
}


class GitFailed(Exception):
    """git ended with an error; the text is what it said."""


@dataclass(frozen=True)
class Comparison:
    """What a head has that its base has not. `files`: path, added and deleted lines; -1 for binary files."""

    commits: int
    related: bool
    mergeable: bool
    files: tuple[tuple[str, int, int], ...]

    @property
    def additions(self) -> int:
        return sum(max(added, 0) for _, added, _ in self.files)

    @property
    def deletions(self) -> int:
        return sum(max(deleted, 0) for _, _, deleted in self.files)


def git(repository: Path, *arguments: str, who: str = "GitHub", text: str = "") -> str:
    """git in a bare repository; GitFailed when it does not end with 0."""
    settings = {f"GIT_CONFIG_{kind}_{index}": part for index, pair in enumerate(_CONFIG.items()) for kind, part in
                zip(("KEY", "VALUE"), pair, strict=True)}  # fmt: skip
    email = f"{who}@users.noreply.example.com"
    done = subprocess.run(
        ["git", *arguments],
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_DIR": str(repository),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
            **{f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in
               (("NAME", who), ("EMAIL", email))},
            "GIT_CONFIG_COUNT": str(len(_CONFIG)),
            **settings,
        },
        input=text.encode(),
        capture_output=True,
        timeout=_GIT_S,
    )  # fmt: skip
    if done.returncode:
        raise GitFailed(done.stderr.decode(errors="replace").strip() or f"git {arguments[0]}: {done.returncode}")
    return done.stdout.decode(errors="replace").removesuffix("\n")


def make(path: Path, source: Path | None) -> None:
    """A new bare repository: all of `source`, or `main` with one commit that has a README.md."""
    if source is not None:
        git(path, "clone", "-q", "--bare", "--no-hardlinks", str(source.resolve()), str(path))
        git(path, "remote", "remove", "origin")
        return
    git(path, "init", "-q", "--bare", str(path))
    blob = git(path, "hash-object", "-w", "--stdin", text=f"# {path.stem}\n")
    tree = git(path, "mktree", text=f"100644 blob {blob}\tREADME.md\n")
    git(path, "update-ref", "refs/heads/main", git(path, "commit-tree", tree, "-m", "Initial commit"))


def default_branch(repository: Path) -> str:
    return (repository / "HEAD").read_text().strip().removeprefix("ref: refs/heads/")


def tip(repository: Path, branch: str) -> str | None:
    """The sha that a branch points at, read without starting git; None when there is no such branch."""
    if not branch or ".." in branch or branch.startswith("/") or not branch.isprintable():
        return None
    try:
        found = (repository / "refs" / "heads" / branch).read_text().strip()
        if re.fullmatch("[0-9a-f]{40}", found):
            return found
    except (OSError, ValueError):
        pass
    try:
        packed = (repository / "packed-refs").read_text()
    except OSError:
        return None
    line = re.search(rf"^([0-9a-f]{{40}}) refs/heads/{re.escape(branch)}$", packed, re.MULTILINE)
    return line[1] if line else None


@lru_cache(maxsize=1024)
def compare(repository: Path, base: str, head: str) -> Comparison:
    """Two commits, by sha: what they are does not change."""
    commits = int(git(repository, "rev-list", "--count", f"{base}..{head}"))
    try:
        fork = git(repository, "merge-base", base, head)
    except GitFailed:
        return Comparison(commits, False, False, ())
    rows = [row.split("\t", 2) for row in git(repository, "diff", "--numstat", fork, head).splitlines()]
    files = tuple((path, _lines(added), _lines(deleted)) for added, deleted, path in rows)
    return Comparison(commits, True, _merged_tree(repository, base, head) is not None, files)


def patch(repository: Path, base: str, head: str, most: int) -> list[str]:
    """The lines of what a head has changed since it left its base; at most so many, then one that says so."""
    try:
        lines = git(repository, "diff", "--no-color", f"{base}...{head}").splitlines()
    except GitFailed:
        return []
    return lines if len(lines) <= most else [*lines[:most], f"… {len(lines) - most} more lines"]


def subject(repository: Path, sha: str) -> tuple[str, str, str, str, str]:
    """Tree, author's name and email, time and message of a commit."""
    pieces = git(repository, "show", "-s", "--format=%T%x00%an%x00%ae%x00%at%x00%B", sha).split("\0")
    tree, name, email, when, message = pieces
    return tree, name, email, when, message.strip()


def parents(repository: Path, sha: str) -> list[str]:
    return git(repository, "show", "-s", "--format=%P", sha).split()


def remember_pull(repository: Path, source: Path, number: int, sha: str) -> None:
    """`refs/pull/N/head`; with its commits, when they come from a fork."""
    if source != repository:
        git(repository, "fetch", "-q", "--no-tags", str(source), sha)
    git(repository, "update-ref", f"refs/pull/{number}/head", sha)


def merge(repository: Path, branch: str, head: str, *, squash: bool, message: str, who: str) -> str | None:
    """Merge a commit into a branch and return the new one; None when they are in conflict, or the branch has moved."""
    base = tip(repository, branch)
    tree = _merged_tree(repository, base, head) if base else None
    if base is None or tree is None:
        return None
    both = ("-p", base) if squash else ("-p", base, "-p", head)
    made = git(repository, "commit-tree", tree, *both, "-m", message, who=who)
    try:
        git(repository, "update-ref", f"refs/heads/{branch}", made, base)
    except GitFailed:
        return None
    return made


def _merged_tree(repository: Path, base: str, head: str) -> str | None:
    try:
        return git(repository, "merge-tree", "--write-tree", base, head).splitlines()[0]
    except GitFailed:
        return None


def _lines(count: str) -> int:
    return int(count) if count.isdigit() else -1
