"""The program behind grep and glob: it reads one JSON request from standard input and answers with one JSON object.

A process of its own, because `re` holds Python's global lock while it matches: one unlucky pattern of a model's
(`(a+)+$`) would stop every heartbeat of the worker. Standard library only; started with `python -I -S`.

request   root, under (relative, a file or directory), pattern, mode (grep or glob), files (glob for grep's files, or
          null), ignore_case, parent (the process with which this one dies), seconds, max_files, max_bytes, max_results,
          max_chars
answer    {"lines": [text], "more": whether results were left out, "skipped": files too large} or {"error": text}
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from typing import Any

SKIPPED_NAMES = frozenset(
    {
        ".git",
        ".venv",
        "node_modules",
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".hypothesis",
    }
)
"""Directories that hold no source: the engine's, setup's, and caches."""

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Read the request from standard input and write the answer to standard output: the results, or the error for a
    pattern that is no regular expression. This process is killed after the request's seconds, and when its parent
    dies."""
    request = json.load(sys.stdin.buffer)
    _die_with_parent(request["parent"])
    signal.alarm(request["seconds"])
    try:
        answer = _collect_results(request)
    except re.error as error:
        answer = {"error": f"not a regular expression: {error}"}
    sys.stdout.buffer.write(json.dumps(answer).encode())


def _die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, and exit now if it is dead already. Where the kernel
    cannot do that, the alarm ends us."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _collect_results(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request: `lines`, at most max_results of them, `more`, whether there were more, and
    `skipped`, how many files were too large. Raises re.error for a wrong pattern."""
    lines: list[str] = []
    skipped = count = 0
    results = _find_matches(request)
    for item in results:
        if item is None:
            skipped += 1
            continue
        count += 1
        if count > request["max_results"]:
            return {"lines": lines, "more": True, "skipped": skipped}
        lines.append(item)
    return {"lines": lines, "more": False, "skipped": skipped}


def _find_matches(request: dict[str, Any]) -> Iterator[str | None]:
    """Yield results in order of path, paths for glob and `path:number: line` for grep, lines cut; None for a file that
    was too large to search. Raises re.error for a wrong pattern."""
    files = _list_files(request["root"], request["under"], request["max_files"])
    if request["mode"] == "glob":
        path_pattern = glob_to_regex(request["pattern"])
        yield from (path for path in files if _matches_path(path, request["under"], path_pattern))
        return
    pattern = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    file_pattern = glob_to_regex(request["files"]) if request["files"] else None
    for path in files:
        if file_pattern is not None and not _matches_path(path, request["under"], file_pattern):
            continue
        text = _read_text(os.path.join(request["root"], path), request["max_bytes"])
        if text is None:
            yield None
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if pattern.search(line):
                yield f"{path}:{number}: {_cut_line(line.rstrip(), request['max_chars'])}"


def _matches_path(path: str, under: str, pattern: re.Pattern[str]) -> bool:
    """Return whether a path matches, seen from the root or from the directory that is searched: a pattern may be meant
    either way."""
    return bool(pattern.fullmatch(path) or pattern.fullmatch(os.path.relpath(path, under)))


def _list_files(root: str, under: str, max_files: int) -> Iterator[str]:
    """Yield the paths of regular files below `under`, relative to `root`, sorted, links not followed, without
    SKIPPED_NAMES, at most `max_files`; where `under` is no directory, that path alone."""
    start = os.path.join(root, under)
    if not os.path.isdir(start):
        yield under
        return
    for directory, names, files in os.walk(start):
        names[:] = sorted(name for name in names if name not in SKIPPED_NAMES)
        for name in sorted(set(files) - SKIPPED_NAMES):  # a worktree's .git is a file
            path = os.path.join(directory, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield os.path.relpath(path, root)
                max_files -= 1
                if max_files <= 0:
                    return


def _read_text(path: str, max_bytes: int) -> str | None:
    """Read a file's text; empty for a binary or unreadable one, None for one that is too large."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(fd, "rb") as file:
        if os.fstat(fd).st_size > max_bytes:
            return None
        data = file.read(max_bytes)
    return "" if b"\0" in data[:8192] else data.decode("utf-8", "replace")


def _cut_line(line: str, max_chars: int) -> str:
    """Return a line cut to `max_chars` characters, with `…` where it was longer."""
    return line if len(line) <= max_chars else line[:max_chars] + "…"


def glob_to_regex(glob: str) -> re.Pattern[str]:
    """Convert a glob to a regular expression over whole relative paths. Raises re.error for a wrong one.

    `**/` is any number of directories, `*` and `?` stay within one name, `[ab]` and `{a,b}` are alternatives; a pattern
    without a slash matches names anywhere.
    """
    if "/" not in glob:
        glob = f"**/{glob}"
    glob, regex, i, depth = glob.removeprefix("/").removeprefix("./"), "", 0, 0
    while i < len(glob):
        char = glob[i]
        i += 1
        if char == "*" and glob[i : i + 2] == "*/":
            regex, i = regex + "(?:.*/)?", i + 2
        elif char == "*" and glob[i : i + 1] == "*":
            regex, i = regex + ".*", i + 1
        elif char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif char == "[" and (end := glob.find("]", i + 1)) > 0:
            inner = glob[i:end].replace("\\", "\\\\").replace("[", "\\[")
            regex, i = f"{regex}[{'^' + inner[1:] if inner.startswith('!') else inner}]", end + 1
        elif char == "{" and "}" in glob[i:]:
            regex, depth = regex + "(?:", depth + 1
        elif char == "}" and depth:
            regex, depth = regex + ")", depth - 1
        elif char == "," and depth:
            regex += "|"
        else:
            regex += re.escape(char)
    return re.compile(regex + ")" * depth, re.DOTALL)


if __name__ == "__main__":
    main()
