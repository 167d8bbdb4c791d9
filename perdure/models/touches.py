"""Patterns of files that two items are expected to change: may one file be meant by both?

As in .gitignore, a directory stands for all in it, `**` for any directories, and a pattern such as `*.md`, without a
slash, counts at any depth; a plain name is the one at the root. A last name with a dot inside it (`a.py`, `*.md`) means
files; `v1.2/` is a directory. The answer errs on one side only: where in doubt, they meet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from operator import ne
from typing import TypeVar

TOUCHES_MOST = 20
"""Patterns of one item: what changes more places is named by the directories above them."""

MEETING_STEPS = 200_000
"""Of one decision about a whole backlog, half a second of a processor: Temporal takes a workflow that thinks for two as
hung. Past that, patterns count as meeting; a thousand items of ordinary patterns need a tenth."""

LEARNT_CHARS = 600
"""Of the patterns of one plan together: a thousand items with as much go into a backlog's next run in one message."""

Item = TypeVar("Item")

_STAR, _ONE = -1, -2
_ANY: tuple[int, ...] = ()
_WILD = re.compile(r"[][*?\\]")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_BESIDE = re.compile(r"\s+\([^()]*\)$|:\d+(-\d+)?$")
_CLASS = re.compile(r"\[[^\]/]*\]?")


def leaves(pattern: str) -> str:
    """Say why it is no pattern of files of the repository; empty when it is one."""
    if pattern.startswith(("/", "~", "\\\\")) or _DRIVE.match(pattern):
        return f"{pattern[:80]!r} is absolute: write it from the repository's root, src/**"
    if ".." in re.split(r"[/\\]", pattern):
        return f"{pattern[:80]!r} leaves the repository"
    if pattern.startswith("!"):
        return f"{pattern[:80]!r} takes back: name what it changes"
    if not pattern.strip("/. ") or not pattern.isprintable():
        return f"{pattern[:80]!r} names no files: write src/**, or ** for all"
    return ""


def learnt(*named: Iterable[str]) -> tuple[str, ...]:
    """Files that a plan names as patterns, at most TOUCHES_MOST and LEARNT_CHARS: where there are more, the directories
    above them. What is no path of the repository is left out."""
    found = {pattern for paths in named for path in paths if (pattern := _named(path)) and not leaves(pattern)}
    while len(found) > TOUCHES_MOST or sum(map(len, found)) > LEARNT_CHARS:
        deepest = max(_depth(pattern) for pattern in found)
        if not deepest:
            return ("**",)
        found = {_above(pattern) if _depth(pattern) == deepest else pattern for pattern in found}
    return tuple(sorted(found))


def _named(path: str) -> str:
    """A path as models write them: in ticks, with a line or a remark behind it. What stands in brackets,
    as in `[id].tsx`, may be anything, so that it is met by whoever means the name and by whoever means a class."""
    bare = _BESIDE.sub("", path.strip().strip("`'\"")).replace("\\", "/")
    bare = "/".join(part.strip() for part in bare.split("/"))  # or a directory above it would not be known again
    while bare.startswith("./"):
        bare = bare[2:].strip()
    return _CLASS.sub("*", bare)


def _depth(pattern: str) -> int:
    return pattern.rstrip("/").count("/")


def _above(pattern: str) -> str:
    return pattern.rstrip("/").rpartition("/")[0] + "/"


@dataclass
class Meeting:
    """The answers of one decision, and the work they took: the same whatever was asked before."""

    steps: int = 0

    def may(self, some: tuple[str, ...], others: tuple[str, ...]) -> bool:
        for one in some:
            for other in others:
                if self.steps > MEETING_STEPS:
                    return True
                self.steps += 1
                if _apart(_parts(one), _parts(other)):
                    continue
                met, steps = _meet(one, other)
                self.steps += steps
                if met:
                    return True
        return False


def meet(one: str, other: str) -> bool:
    """False only where no file can be meant by both."""
    return _meet(one, other)[0]


@lru_cache(maxsize=4096)
def _meet(one: str, other: str) -> tuple[bool, int]:
    """The answer, and how many steps it took."""
    first, second = _parts(one), _parts(other)
    steps = 0

    def fit(mine: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
        nonlocal steps
        if min((*mine, *theirs), default=0) >= 0:
            steps += 1
            return mine == theirs
        met, more = _walk(mine, theirs, _STAR, lambda some, other: some == other or _ONE in (some, other))
        steps += more
        return met

    met, more = _walk(first.names, second.names, _ANY, fit, (first.inside, second.inside))
    return met, steps + more


def _walk(
    one: Sequence[Item],
    other: Sequence[Item],
    star: Item,
    fit: Callable[[Item, Item], bool],
    inside: tuple[bool, bool] = (False, False),
) -> tuple[bool, int]:
    """Go along both together, at each pair of places once: is there something that both stand for, to the end of both?

    star    stands for any number of items; inside: whether more may follow after the end of the one, of the other
    """
    steps, seen, ahead = 0, {(0, 0)}, [(0, 0)]
    while ahead:
        at, to = ahead.pop()
        steps += 1
        mine, theirs = at < len(one), to < len(other)
        if (not mine and (inside[0] or not theirs)) or (not theirs and inside[1]):
            return True, steps
        following = list[tuple[int, int]]()
        if (mine and one[at] == star) or (theirs and other[to] == star):  # it ends here, or takes one more
            following += [(at + 1, to)] if mine else []
            following += [(at, to + 1)] if theirs else []
        elif mine and theirs and fit(one[at], other[to]):
            following.append((at + 1, to + 1))
        ahead += [place for place in following if place not in seen]
        seen.update(following)
    return False, steps


@dataclass(frozen=True)
class _Parts:
    """A pattern's names, each as characters; `**` is the empty one. `inside`: what is in what it names counts too;
    `plain`: the names it begins with, as far as each stands for itself alone."""

    names: tuple[tuple[int, ...], ...]
    inside: bool
    plain: tuple[str, ...]


def _apart(one: _Parts, other: _Parts) -> bool:
    """True where they begin in different directories: most patterns of a thousand items do, and are told at once."""
    return any(map(ne, one.plain, other.plain))


@lru_cache(maxsize=4096)
def _parts(pattern: str) -> _Parts:
    body = pattern.strip(" ")
    names = [name for name in body.split("/") if name not in ("", ".")]
    inside = body.endswith("/") or not names or "." not in names[-1][1:]
    rooted = "/" in body.rstrip("/") or not any(wild in body for wild in "*?[")
    found = [_ANY if name == "**" else _name(name) for name in names]
    plain = tuple(takewhile(lambda name: not _WILD.search(name), names)) if rooted else ()
    return _Parts(tuple(found if rooted else [_ANY, *found]), inside, plain)


def _name(name: str) -> tuple[int, ...]:
    found, at = list[int](), 0
    while at < len(name):
        end = _class_end(name, at) if name[at] == "[" else 0
        if name[at] == "*":
            found += [_STAR] if found[-1:] != [_STAR] else []
        elif name[at] == "?" or end:
            found.append(_ONE)
        else:
            at += name[at] == "\\" and at + 1 < len(name)
            found.append(ord(name[at]))
        at = end or at + 1
    return tuple(found)


def _class_end(name: str, at: int) -> int:
    """The place behind the `]` of a class that begins here; 0: there is none. In it, any character counts."""
    at += 2 if name[at + 1 : at + 2] in ("!", "^") and name[at + 1 : at + 2] else 1
    at += name[at : at + 1] == "]"
    while at < len(name):
        if name[at] == "]":
            return at + 1
        named = name.find(":]", at + 2) if name.startswith("[:", at) else -1
        at = named + 2 if named > 0 else at + 1 + (name[at] == "\\")
    return 0
