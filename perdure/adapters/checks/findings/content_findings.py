"""Findings about what no text diff shows: binary files, symbolic links that leave the tree, submodules, files that a
filter should have stored; about files that tools leave behind, and the size of a change. `engine_findings` collects
them."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterable
from itertools import pairwise

from perdure.adapters.checks.findings.secret_leaks import printable_path
from perdure.adapters.checks.trees import CommitTree
from perdure.adapters.git import patch
from perdure.adapters.git.checkouts import cleaned_paths, filtered_paths
from perdure.adapters.git.filters import configured_filters
from perdure.adapters.git.patch import FILES, LINK, SUBMODULE, ChangedPath
from perdure.adapters.git.repository import Repository, ask_about_objects
from perdure.models.checks.report import Finding, FindingRule, Severity
from perdure.models.limits import FINDING_BINARY_BYTES, PATCH_FILE_BYTES

FINDING_IMAGE_BYTES = 256 * 1024
"""Bytes up to which a picture is nothing to talk about."""

FINDING_LINK_BYTES = 4096
"""The most bytes of a symbolic link's target, PATH_MAX of Linux: what is longer is no path."""

CHANGE_LINES = (1_000, 20_000)
CHANGE_FILES = (60, 1_000)
"""Added and deleted lines, and files, without lock files: from the first number on a reviewer misses things, from the
second nobody reviews it."""


_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".avif", ".bmp")

LOCK_FILES = (
    *("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "uv.lock", "poetry.lock"),
    *("pdm.lock", "Pipfile.lock", "pylock.toml", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock", "mix.lock"),
    *("flake.lock", "gradle.lockfile", "packages.lock.json", "Package.resolved", "pubspec.lock", "deno.lock"),
)
"""Names of files that are written by a tool and read by nobody: they do not make a change large."""


def find_binary_files(changed: Iterable[ChangedPath], binaries: set[str]) -> list[Finding]:
    """Return a finding for each added or changed file that no diff shows.

    It is tech debt; a blocker where the file was not over FINDING_BINARY_BYTES before and is now; skippable for a
    picture of at most FINDING_IMAGE_BYTES.

    binaries  paths whose content is not text to git
    """
    findings = []
    for change in changed:
        if change.mode not in FILES or change.sha == change.was_sha or change.path not in binaries:
            continue
        how = "changed" if change.was_mode in FILES else "added"
        what = "file too large to be looked into" if change.size > PATCH_FILE_BYTES else "binary file"
        severity = Severity.TECH_DEBT
        if change.size > FINDING_BINARY_BYTES >= change.was_size:
            severity = Severity.BLOCKER
        elif change.path.lower().endswith(_IMAGES) and change.size <= FINDING_IMAGE_BYTES:
            severity = Severity.SKIPPABLE
        findings.append(
            Finding(
                rule=FindingRule.BINARY,
                severity=severity,
                title=f"a {what} is {how} ({format_bytes(change.size)})",
                description="No diff shows what is in it, and it stays in every clone for ever.",
                file=printable_path(change.path),
                suggestion="Leave it out if something in the repository can make it, or if nobody asked for it.",
            )
        )
    return findings


def find_leaving_links(repository: Repository, changed: Iterable[ChangedPath]) -> list[Finding]:
    """Return a blocker for each added or changed symbolic link that leads out of the tree or into `.git`, could do so
    where a part of its path is a link, or is too long for a path."""
    new = [change for change in changed if is_link(change) and change.sha != change.was_sha]
    targets = patch.read_blobs(repository, [change for change in new if change.size <= FINDING_LINK_BYTES])
    problems = {change.path: "is longer than a path can be" for change in new if change.size > FINDING_LINK_BYTES}
    problems |= {change.path: problem for change, target in targets if (problem := _link_problem(change.path, target))}
    return [
        Finding(
            rule=FindingRule.SYMLINK,
            severity=Severity.BLOCKER,
            title="a symbolic link leaves the repository",
            description=f"Its target {problem}: on another machine it leads to something else.",
            file=printable_path(path),
            suggestion="Link to a path inside the repository, relative to the link, or copy the file.",
        )
        for path, problem in problems.items()
    ]


def _link_problem(path: str, target: bytes) -> str:
    """Return in which way a link's target leaves the tree, for people (`is absolute`); empty where it stays inside.

    path  the link's own
    """
    text = target.decode("utf-8", "surrogateescape")
    if text.startswith("/") or re.match(r"[A-Za-z]:|\\", text):
        return "is absolute"
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
    if resolved == ".." or resolved.startswith("../"):
        return "is above the repository's root"
    if ".git" in resolved.lower().split("/"):
        return "is inside .git"
    names = [part for part in text.split("/") if part not in ("", ".")]
    if any(part == ".." and before != ".." for before, part in pairwise(names)):
        return "goes down and up again, which ends elsewhere where a part of it is a link itself"
    return ""


def find_submodules(changed: Iterable[ChangedPath]) -> list[Finding]:
    """Return a finding for each other repository that the change adds (a blocker), or moves to another commit (tech
    debt)."""
    return [
        Finding(
            rule=FindingRule.SYMLINK,
            severity=Severity.TECH_DEBT if change.was_mode == SUBMODULE else Severity.BLOCKER,
            title=f"a submodule is {'moved to another commit' if change.was_mode == SUBMODULE else 'added'}",
            description=f"Commit {change.sha[:12]} of another repository: nothing of it was looked at.",
            file=printable_path(change.path),
            suggestion="Leave it as it was, unless the request asks for it.",
        )
        for change in changed
        if change.mode == SUBMODULE
    ]


def find_unfiltered_files(
    repository: Repository, base: str, commit: str, changed: Iterable[ChangedPath]
) -> list[Finding]:
    """Return a blocker for each file that the change adds, changes or newly gives a filter by .gitattributes, and does
    not only move, where the filter has not run: a clone gets a broken pointer, or fails at bytes that are none. Of a
    filter that runs in the vault, what is stored has to be what the filter makes. Raises GitError when a commit is
    missing."""
    filters = filtered_paths(repository, commit)
    if not filters:
        return []
    old_filters, old = filtered_paths(repository, base), CommitTree.from_commit(repository, base).entries
    stored = {(old[path][1], name) for path, name in old_filters.items()}
    new, sizes = CommitTree.from_commit(repository, commit).entries, {change.path: change.size for change in changed}
    suspects = {
        path: name
        for path, name in sorted(filters.items())
        if (new[path][1], name) not in stored and sizes.get(path) != 0
    }
    running = configured_filters(repository.git)
    cleaned = cleaned_paths(repository, commit, {path for path, name in suspects.items() if name in running})
    return [
        Finding(
            rule=FindingRule.FILTER,
            severity=Severity.BLOCKER,
            title=f"the filter {name} did not run on it",
            description=f".gitattributes has filter={name} for it: what is stored is not what that program makes."
            if name in running
            else f".gitattributes has filter={name} for it: a program of the clone's owner that is not run.",
            file=printable_path(path),
            suggestion="Leave the file, and its attributes, as they were. Who has the filter can change it in a clone.",
        )
        for path, name in suspects.items()
        if path not in cleaned
    ]


_LEFTOVERS = (
    *(".DS_Store", "Thumbs.db", "desktop.ini", "*.orig", "*.rej", "*.swp", "*.swo", "*~", "*.bak", "*.tmp", "*.log"),
    *(".coverage", ".coverage.*", "coverage.out", "nohup.out", "core", "*.pid", "*.pyc", "*.pyo", "*.o", "*.obj"),
    *("*.class", "*.prof", "*.gcda", "*.gcno", "npm-debug.log*", "*.stackdump", "tmp.*", "temp.*", "scratch.*"),
)
"""Names of files that systems, editors, merges, runs and compilers leave, and that people try things out in."""

_LEFTOVER_DIRECTORIES = frozenset({"htmlcov", ".nyc_output", "__pycache__", "__MACOSX", ".ipynb_checkpoints"})


def find_leftovers(repository: Repository, base: str, changed: Iterable[ChangedPath]) -> list[Finding]:
    """Return a finding (tech debt) for each added file that looks as if a tool had left it, by its name. A repository
    that has others of that kind means them. Raises GitError when the base is missing."""
    kinds = {change.path: kind for change in changed if _is_added(change) and (kind := _leftover_kind(change.path))}
    known = set(map(_leftover_kind, CommitTree.from_commit(repository, base).entries)) if kinds else set()
    return [
        Finding(
            rule=FindingRule.LEFTOVER,
            severity=Severity.TECH_DEBT,
            title="a file that a tool has left, it seems",
            description=f"It is new, and named like {kind}, of which the base has none.",
            file=printable_path(path),
            suggestion="Remove it, unless the request asks for it.",
        )
        for path, kind in kinds.items()
        if kind not in known
    ]


def find_unnamed_files(
    repository: Repository, base: str, commit: str, read_agent_text: Callable[[], str | None]
) -> list[Finding]:
    """Return a finding (tech debt) for each file that the change adds and that no agent has named, neither it nor the
    directory that is new with it: a command wrote it, and nobody asked for it. Files that tools write for everybody
    (lock files), and those beside which the base has others with the same ending, are meant. Raises GitError when a
    commit is missing.

    read_agent_text  what agents were asked, and wrote themselves, while they made the change; None: that is not known
    """
    entries = CommitTree.from_commit(repository, base).entries
    known = {(posixpath.dirname(path), posixpath.splitext(path)[1]) for path in entries}
    directories = {path[:end] for path in entries for end, character in enumerate(path) if character == "/"}
    candidates = [
        change.path
        for change in patch.changed_paths(repository, base, commit)
        if _is_added(change)
        and (posixpath.dirname(change.path), posixpath.splitext(change.path)[1]) not in known
        and posixpath.basename(change.path) not in LOCK_FILES
        and not _leftover_kind(change.path)
    ]
    if not candidates or (text := read_agent_text()) is None:
        return []
    return [
        Finding(
            rule=FindingRule.LEFTOVER,
            severity=Severity.TECH_DEBT,
            title="a file that a command has written, it seems",
            description="It is new, and neither the request nor a word or a call of an agent names it.",
            file=printable_path(path),
            suggestion="Remove it, unless the request asks for it.",
        )
        for path in candidates
        if not any(name in text for name in (posixpath.basename(path), *_directory_names(path, directories)))
    ]


def _directory_names(path: str, known: set[str]) -> list[str]:
    """Return the names of the directories on a path that are not among `known`."""
    ends = [end for end, character in enumerate(path) if character == "/"]
    return [posixpath.basename(path[:end]) for end in ends if path[:end] not in known]


def _leftover_kind(path: str) -> str:
    """Return which pattern or directory of leftovers a path is named by; empty for none."""
    *directories, name = path.split("/")
    patterns = (pattern for pattern in _LEFTOVERS if fnmatch.fnmatchcase(name, pattern))
    return next(iter([*patterns, *(f"{part}/" for part in directories if part in _LEFTOVER_DIRECTORIES)]), "")


def _is_added(change: ChangedPath) -> bool:
    return change.exists and not change.was_mode.strip("0")


def is_link(change: ChangedPath) -> bool:
    """Return whether the path is a symbolic link after the change."""
    return change.mode == LINK


def check_size(repository: Repository, base: str, head: str) -> list[Finding]:
    """Return one finding where the change is too large to be reviewed, else an empty list. Lock files do not count, and
    of a rename only what changed in it.

    Tech debt beyond the first of CHANGE_FILES and CHANGE_LINES; a blocker beyond the second, for lines by the added
    ones alone. Raises GitError when a commit is missing.
    """
    exclusions = [f":(exclude,top,glob)**/{name}" for name in LOCK_FILES]
    command = ("diff-tree", "-r", "-M", "--shortstat", "--no-ext-diff", "--no-textconv", "--end-of-options")
    git = patch.size_limited_git(repository)
    stat = ask_about_objects(git, *command, objects=[base, head], paths=[".", *exclusions]).decode()
    files, added, deleted = (_number_before(stat, word) for word in ("file", "insertion", "deletion"))
    is_too_large = files > CHANGE_FILES[1] or added > CHANGE_LINES[1]
    if not is_too_large and files <= CHANGE_FILES[0] and added + deleted <= CHANGE_LINES[0]:
        return []
    return [
        Finding(
            rule=FindingRule.SIZE,
            severity=Severity.BLOCKER if is_too_large else Severity.TECH_DEBT,
            title=f"the change has {files:,} files, {added:,} lines added and {deleted:,} deleted",
            description="Nobody reviews that much at once."
            if is_too_large
            else "A reviewer misses things in so much at once.",
            suggestion="Leave out what the request does not ask for; ask for the rest in several requests.",
        )
    ]


def _number_before(stat: str, word: str) -> int:
    """Return the number before a word of git's `--shortstat`; 0 where the word is not there."""
    match = re.search(rf"(\d+) {word}", stat)
    return int(match[1]) if match else 0


def format_bytes(size: int) -> str:
    """Return a number of bytes for people: `2.5 MB`, `3.0 KB`, `17 bytes`."""
    for unit, step in (("MB", 1024**2), ("KB", 1024)):
        if size >= step:
            return f"{size / step:.1f} {unit}"
    return f"{size} bytes"
