"""Program behind grep and glob: reads one JSON request from standard input, answers with one JSON object.

A process of its own, because `re` holds Python's global lock while it matches: one unlucky pattern of a model's
(`(a+)+$`) would stop every heartbeat of the worker. Standard library only; started with `python -I -S`.

request   root, under (relative, a file or directory), pattern, mode (grep or glob), files (glob for grep's files, or
          null), ignore_case, seconds, max_files, max_bytes, max_results, max_chars
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

SKIPPED = frozenset(
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
    request = json.load(sys.stdin.buffer)
    _die_with(request["parent"])
    signal.alarm(request["seconds"])
    try:
        answer = _answer(request)
    except re.error as error:
        answer = {"error": f"not a regular expression: {error}"}
    sys.stdout.buffer.write(json.dumps(answer).encode())


def _die_with(parent: int) -> None:
    """A killed worker leaves no process behind. Where the kernel cannot do that, the alarm ends us."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    lines: list[str] = []
    skipped = seen = 0
    found = _matches(request)
    for item in found:
        if item is None:
            skipped += 1
            continue
        seen += 1
        if seen > request["max_results"]:
            return {"lines": lines, "more": True, "skipped": skipped}
        lines.append(item)
    return {"lines": lines, "more": False, "skipped": skipped}


def _matches(request: dict[str, Any]) -> Iterator[str | None]:
    """Results in order of path; None for a file that was too large to look into."""
    files = _files(request["root"], request["under"], request["max_files"])
    if request["mode"] == "glob":
        wanted = translate(request["pattern"])
        yield from (path for path in files if _named(path, request["under"], wanted))
        return
    pattern = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    only = translate(request["files"]) if request["files"] else None
    for path in files:
        if only is not None and not _named(path, request["under"], only):
            continue
        text = _text(os.path.join(request["root"], path), request["max_bytes"])
        if text is None:
            yield None
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if pattern.search(line):
                yield f"{path}:{number}: {_cut(line.rstrip(), request['max_chars'])}"


def _named(path: str, under: str, wanted: re.Pattern[str]) -> bool:
    """A pattern may be meant from the root or from the directory that is searched."""
    return bool(wanted.fullmatch(path) or wanted.fullmatch(os.path.relpath(path, under)))


def _files(root: str, under: str, most: int) -> Iterator[str]:
    """Paths of regular files relative to `root`, sorted, links not followed, at most `most`."""
    start = os.path.join(root, under)
    if not os.path.isdir(start):
        yield under
        return
    for directory, names, files in os.walk(start):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        for name in sorted(set(files) - SKIPPED):  # a worktree's .git is a file
            path = os.path.join(directory, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield os.path.relpath(path, root)
                most -= 1
                if most <= 0:
                    return


def _text(path: str, most: int) -> str | None:
    """A file's text; empty for a binary or unreadable one, None for one that is too large."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(fd, "rb") as file:
        if os.fstat(fd).st_size > most:
            return None
        data = file.read(most)
    return "" if b"\0" in data[:8192] else data.decode("utf-8", "replace")


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else line[:most] + "…"


def translate(glob: str) -> re.Pattern[str]:
    """A glob as a regular expression over whole relative paths.

    `**/` is any number of directories, `*` and `?` stay within one name, `[ab]` and `{a,b}` are alternatives; a
    pattern without a slash matches names anywhere.
    """
    if "/" not in glob:
        glob = f"**/{glob}"
    glob, out, i, depth = glob.removeprefix("/").removeprefix("./"), "", 0, 0
    while i < len(glob):
        char = glob[i]
        i += 1
        if char == "*" and glob[i : i + 2] == "*/":
            out, i = out + "(?:.*/)?", i + 2
        elif char == "*" and glob[i : i + 1] == "*":
            out, i = out + ".*", i + 1
        elif char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := glob.find("]", i + 1)) > 0:
            inner = glob[i:end].replace("\\", "\\\\").replace("[", "\\[")
            out, i = f"{out}[{'^' + inner[1:] if inner.startswith('!') else inner}]", end + 1
        elif char == "{" and "}" in glob[i:]:
            out, depth = out + "(?:", depth + 1
        elif char == "}" and depth:
            out, depth = out + ")", depth - 1
        elif char == "," and depth:
            out += "|"
        else:
            out += re.escape(char)
    return re.compile(out + ")" * depth, re.DOTALL)


if __name__ == "__main__":
    main()
