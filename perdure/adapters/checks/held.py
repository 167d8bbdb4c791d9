"""The words of a command that was refused to write to the test side: the path, and what allows it."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from perdure.models.report import CommandResult

_REFUSED = re.compile(r"read-only file system|EROFS|device or resource busy|EBUSY", re.IGNORECASE)
_WORD = re.compile(r"[^\s'\"`:,;()\[\]<>]+")
_NAMED = 4


def refused(result: CommandResult, held: Sequence[str], seen: Path) -> tuple[str, ...]:
    """Paths below those that were held, named in lines in which the kernel refuses to write.

    seen  where the command saw the repository's top
    """
    found = dict[str, None]()
    for text in (result.tail, *(case.message for case in result.cases)):
        for line in text.splitlines():
            if (match := _REFUSED.search(line)) is None:
                continue
            for said in (line[match.end() :], line[: match.start()]):  # Python and node name it behind, others before
                words = (_relative(word, result.directory, str(seen)) for word in _WORD.findall(said))
                named = [word for word in words if any(_below(word, path) for path in held)]
                if named:
                    found[named[-1]] = None
                    break
    return tuple(found)


def written_to(paths: Iterable[str]) -> str:
    """`the test side is read-only: tests/output; [[test]] writes = ["tests/output"]`."""
    named = list(paths)[:_NAMED]
    return f"the test side is read-only: {', '.join(named)}; {setting(named)}"


def setting(paths: Iterable[str]) -> str:
    return f"[[test]] writes = {json.dumps(list(paths)[:_NAMED], ensure_ascii=False)}"


def _relative(word: str, directory: str, seen: str) -> str:
    """Of the repository's top; empty for what is elsewhere."""
    path = posixpath.normpath(word if word.startswith("/") else posixpath.join(seen, directory, word))
    return path.removeprefix(f"{seen}/") if path.startswith(f"{seen}/") else ""


def _below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")
