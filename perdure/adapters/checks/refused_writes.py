"""Writes to the read-only test side that made a command fail: the paths, and the setting that allows them."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from perdure.models.report import CommandResult

_REFUSED = re.compile(r"read-only file system|EROFS|device or resource busy|EBUSY", re.IGNORECASE)
_WORD = re.compile(r"[^\s'\"`:,;()\[\]<>]+")
_PATHS_NAMED = 4


def find_refused_writes(
    result: CommandResult, read_only_paths: Sequence[str], repository_path: Path
) -> tuple[str, ...]:
    """Return the paths that a command could not write, as its output and its tests' messages name them; relative to the
    repository's top.

    read_only_paths  paths of the test side that were shown read-only
    repository_path  where the command saw the repository's top

    Of each line in which the kernel refuses to write, the last path at or below a read-only one counts: behind the
    refusal, as Python and node name it, else before it.
    """
    refused_paths = dict[str, None]()
    for text in (result.tail, *(case.message for case in result.cases)):
        for line in text.splitlines():
            if (match := _REFUSED.search(line)) is None:
                continue
            for fragment in (
                line[match.end() :],
                line[: match.start()],
            ):  # Python and node name it behind, others before
                candidates = (
                    _path_in_repository(word, result.directory, str(repository_path))
                    for word in _WORD.findall(fragment)
                )
                matches = [word for word in candidates if any(_is_below(word, path) for path in read_only_paths)]
                if matches:
                    refused_paths[matches[-1]] = None
                    break
    return tuple(refused_paths)


def refused_writes_message(paths: Iterable[str]) -> str:
    """Return the reason for people, with the first four paths: `the test side is read-only: tests/output; [[test]]
    writes = ["tests/output"]`."""
    named_paths = list(paths)[:_PATHS_NAMED]
    return f"the test side is read-only: {', '.join(named_paths)}; {writes_setting(named_paths)}"


def writes_setting(paths: Iterable[str]) -> str:
    """Return the line of perdure.toml that allows a command to write to the first four of these paths."""
    return f"[[test]] writes = {json.dumps(list(paths)[:_PATHS_NAMED], ensure_ascii=False)}"


def _path_in_repository(word: str, directory: str, repository_path: str) -> str:
    """Return a word of the output as a path relative to the repository's top; empty for what is elsewhere."""
    path = posixpath.normpath(word if word.startswith("/") else posixpath.join(repository_path, directory, word))
    return path.removeprefix(f"{repository_path}/") if path.startswith(f"{repository_path}/") else ""


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")
