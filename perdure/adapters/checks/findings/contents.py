"""Parts of a change that are no text: binary files, links out of the tree, submodules; and its sheer size."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from itertools import pairwise

from perdure.adapters.checks.findings.leaked import shown
from perdure.adapters.git import patch
from perdure.adapters.git.patch import FILES, LINK, SUBMODULE, ChangedPath
from perdure.adapters.git.repository import Repository
from perdure.models.limits import FINDING_BINARY_BYTES, PATCH_FILE_BYTES
from perdure.models.report import Finding, FindingRule, Severity

FINDING_IMAGE_BYTES = 256 * 1024
"""A picture up to this size is nothing to talk about."""

FINDING_LINK_BYTES = 4096
"""Of a symbolic link's target: PATH_MAX of Linux; what is longer is no path."""

CHANGE_LINES = (1_000, 20_000)
CHANGE_FILES = (60, 1_000)
"""Lines and files without lock files: from the first on a reviewer misses things, from the second nobody reviews it."""


_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".avif", ".bmp")

LOCK_FILES = (
    *("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "uv.lock", "poetry.lock"),
    *("pdm.lock", "Pipfile.lock", "pylock.toml", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock", "mix.lock"),
    *("flake.lock", "gradle.lockfile", "packages.lock.json", "Package.resolved", "pubspec.lock", "deno.lock"),
)
"""Written by a tool and read by nobody: they do not make a change large."""


def binary_files(changed: Iterable[ChangedPath], binaries: set[str]) -> list[Finding]:
    """Files that no diff shows: each is debt, a large one blocks, a small picture is neither."""
    found = []
    for one in changed:
        if one.mode not in FILES or one.sha == one.was_sha or one.path not in binaries:
            continue
        how = "changed" if one.was_mode in FILES else "added"
        what = "file too large to be looked into" if one.size > PATCH_FILE_BYTES else "binary file"
        severity = Severity.TECH_DEBT
        if one.size > FINDING_BINARY_BYTES >= one.was_size:
            severity = Severity.BLOCKER
        elif one.path.lower().endswith(_IMAGES) and one.size <= FINDING_IMAGE_BYTES:
            severity = Severity.SKIPPABLE
        found.append(
            Finding(
                rule=FindingRule.BINARY,
                severity=severity,
                title=f"a {what} is {how} ({readable(one.size)})",
                description="No diff shows what is in it, and it stays in every clone for ever.",
                file=shown(one.path),
                suggestion="Leave it out if something in the repository can make it, or if nobody asked for it.",
            )
        )
    return found


def links(repository: Repository, changed: Iterable[ChangedPath]) -> list[Finding]:
    """Symbolic links that lead out of the tree, or could."""
    new = [one for one in changed if is_link(one) and one.sha != one.was_sha]
    targets = patch.read_blobs(repository, [one for one in new if one.size <= FINDING_LINK_BYTES])
    problems = {one.path: "is longer than a path can be" for one in new if one.size > FINDING_LINK_BYTES}
    problems |= {one.path: problem for one, target in targets if (problem := _leaves(one.path, target))}
    return [
        Finding(
            rule=FindingRule.SYMLINK,
            severity=Severity.BLOCKER,
            title="a symbolic link leaves the repository",
            description=f"Its target {problem}: on another machine it leads to something else.",
            file=shown(path),
            suggestion="Link to a path inside the repository, relative to the link, or copy the file.",
        )
        for path, problem in problems.items()
    ]


def _leaves(path: str, target: bytes) -> str:
    text = target.decode("utf-8", "surrogateescape")
    if text.startswith("/") or re.match(r"[A-Za-z]:|\\", text):
        return "is absolute"
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
    if whole == ".." or whole.startswith("../"):
        return "is above the repository's root"
    if ".git" in whole.lower().split("/"):
        return "is inside .git"
    names = [part for part in text.split("/") if part not in ("", ".")]
    if any(part == ".." and before != ".." for before, part in pairwise(names)):
        return "goes down and up again, which ends elsewhere where a part of it is a link itself"
    return ""


def submodules(changed: Iterable[ChangedPath]) -> list[Finding]:
    """Other repositories that the change brings in, or moves to another commit."""
    return [
        Finding(
            rule=FindingRule.SYMLINK,
            severity=Severity.TECH_DEBT if one.was_mode == SUBMODULE else Severity.BLOCKER,
            title=f"a submodule is {'moved to another commit' if one.was_mode == SUBMODULE else 'added'}",
            description=f"Commit {one.sha[:12]} of another repository: nothing of it was looked at.",
            file=shown(one.path),
            suggestion="Leave it as it was, unless the request asks for it.",
        )
        for one in changed
        if one.mode == SUBMODULE
    ]


def is_link(one: ChangedPath) -> bool:
    return one.mode == LINK


def size(repository: Repository, base: str, head: str) -> list[Finding]:
    """Find a change too large to be reviewed: without lock files, a rename counted as what changed in it."""
    without = [f":(exclude,top,glob)**/{name}" for name in LOCK_FILES]
    told = patch.size_limited_git(repository).text(
        "diff-tree", "-r", "-M", "--shortstat", "--no-ext-diff", "--no-textconv", "--end-of-options",
        base, head, "--", ".", *without,
    )  # fmt: skip
    files, added, deleted = (_number(told, word) for word in ("file", "insertion", "deletion"))
    far = files > CHANGE_FILES[1] or added > CHANGE_LINES[1]
    if not far and files <= CHANGE_FILES[0] and added + deleted <= CHANGE_LINES[0]:
        return []
    return [
        Finding(
            rule=FindingRule.SIZE,
            severity=Severity.BLOCKER if far else Severity.TECH_DEBT,
            title=f"the change has {files:,} files, {added:,} lines added and {deleted:,} deleted",
            description="Nobody reviews that much at once." if far else "A reviewer misses things in so much at once.",
            suggestion="Leave out what the request does not ask for; ask for the rest in several requests.",
        )
    ]


def _number(told: str, word: str) -> int:
    found = re.search(rf"(\d+) {word}", told)
    return int(found[1]) if found else 0


def readable(size: int) -> str:
    """Bytes as people say them."""
    for unit, step in (("MB", 1024**2), ("KB", 1024)):
        if size >= step:
            return f"{size / step:.1f} {unit}"
    return f"{size} bytes"
