"""Patterns of files that items of a backlog are expected to change, and whether two of them may mean the same file: for
the scheduling of a backlog, the checks of its request, and the patterns that a plan's paths are made into.

As in .gitignore, a directory stands for all in it, `**` for any directories, and a pattern such as `*.md`, without a
slash, counts at any depth; a plain name is the one at the root. A last name with a dot inside it (`a.py`, `*.md`) means
files; `v1.2/` is a directory. The answer errs on one side only: in doubt, patterns overlap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from operator import ne
from typing import TypeVar

from perdure.text import shorten

TOUCHES_MOST = 20
"""Patterns of one item: what changes more places is named by the directories above them."""

OVERLAP_STEPS = 200_000
"""Of one decision about a whole backlog, half a second of a processor: Temporal takes a workflow that thinks for two as
hung. Past that, patterns count as overlapping; a thousand items of ordinary patterns need a tenth."""

PLAN_PATTERNS_CHARS = 600
"""Of the patterns of one plan together: a thousand items with as much go into a backlog's next run in one message."""

Item = TypeVar("Item")

_ANY_CHARACTERS, _ANY_CHARACTER = -1, -2
_ANY_DIRECTORIES: tuple[int, ...] = ()
_WILDCARD = re.compile(r"[][*?\\]")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_REMARK = re.compile(r"\s+\([^()]*\)$|:\d+(-\d+)?$")
_CLASS = re.compile(r"\[[^\]/]*\]?")


def invalid_pattern_reason(pattern: str) -> str:
    """Return why a pattern is not valid, in one line: it is absolute, leaves the repository, excludes files, or names
    none; empty when it is valid."""
    if pattern.startswith(("/", "~", "\\\\")) or _DRIVE.match(pattern):
        return f"{shorten(pattern, 80)!r} is absolute: write it from the repository's root, src/**"
    if ".." in re.split(r"[/\\]", pattern):
        return f"{shorten(pattern, 80)!r} leaves the repository"
    if pattern.startswith("!"):
        return f"{shorten(pattern, 80)!r} takes back: name what it changes"
    if not pattern.strip("/. ") or not pattern.isprintable():
        return f"{shorten(pattern, 80)!r} names no files: write src/**, or ** for all"
    return ""


def patterns_of_paths(*path_lists: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that a plan names as patterns, sorted and each once, within TOUCHES_MOST and
    PLAN_PATTERNS_CHARS.

    When there are more, the deepest ones are replaced by the directories above them, at worst all by `**`. What is no
    path of the repository is left out.
    """
    patterns = {
        pattern
        for paths in path_lists
        for path in paths
        if (pattern := _path_as_pattern(path)) and not invalid_pattern_reason(pattern)
    }
    while len(patterns) > TOUCHES_MOST or sum(map(len, patterns)) > PLAN_PATTERNS_CHARS:
        deepest = max(_depth(pattern) for pattern in patterns)
        if not deepest:
            return ("**",)
        patterns = {_parent_directory(pattern) if _depth(pattern) == deepest else pattern for pattern in patterns}
    return tuple(sorted(patterns))


def _path_as_pattern(path: str) -> str:
    """Return the pattern for a path as models write it: without quotes, and without a line number or remark behind it.

    Brackets, as in `[id].tsx`, become `*`: that overlaps with patterns that mean the name, and with those that mean a
    class of characters.
    """
    cleaned = _REMARK.sub("", path.strip().strip("`'\"")).replace("\\", "/")
    cleaned = "/".join(part.strip() for part in cleaned.split("/"))  # or a directory above it would not be known again
    while cleaned.startswith("./"):
        cleaned = cleaned[2:].strip()
    return _CLASS.sub("*", cleaned)


def _depth(pattern: str) -> int:
    """Return how many directories stand above what a pattern names."""
    return pattern.rstrip("/").count("/")


def _parent_directory(pattern: str) -> str:
    """Return the directory above a pattern, with a slash at its end."""
    return pattern.rstrip("/").rpartition("/")[0] + "/"


@dataclass
class OverlapCheck:
    """Answers whether patterns overlap, for one decision about a whole backlog, and counts the steps that it takes, so
    that one decision has a bounded number."""

    steps: int = 0

    def may_overlap(self, patterns: tuple[str, ...], other_patterns: tuple[str, ...]) -> bool:
        """Return True when a pattern of one item may mean a file that a pattern of the other item means, too.

        Adds to `steps`; once those exceed OVERLAP_STEPS the answer is always True.
        """
        for pattern in patterns:
            for other in other_patterns:
                if self.steps > OVERLAP_STEPS:
                    return True
                self.steps += 1
                if _begin_differently(_parse_pattern(pattern), _parse_pattern(other)):
                    continue
                overlaps, steps = _overlap_and_steps(pattern, other)
                self.steps += steps
                if overlaps:
                    return True
        return False


def patterns_overlap(pattern: str, other: str) -> bool:
    """Return True when a file may be meant by both patterns; False only when none can be."""
    return _overlap_and_steps(pattern, other)[0]


@lru_cache(maxsize=4096)
def _overlap_and_steps(pattern: str, other_pattern: str) -> tuple[bool, int]:
    """Return whether a file may be meant by both patterns, and how many steps it took to find out. Answers are
    cached."""
    first, second = _parse_pattern(pattern), _parse_pattern(other_pattern)
    steps = 0

    def names_overlap(name: tuple[int, ...], other_name: tuple[int, ...]) -> bool:
        """Return whether two names of directories or files, as characters and wildcards, can be the same; count the
        steps."""
        nonlocal steps
        if min((*name, *other_name), default=0) >= 0:
            steps += 1
            return name == other_name
        overlaps, more = _sequences_overlap(
            name,
            other_name,
            _ANY_CHARACTERS,
            lambda character, other_character: (
                character == other_character or _ANY_CHARACTER in (character, other_character)
            ),
        )
        steps += more
        return overlaps

    overlaps, more = _sequences_overlap(
        first.names, second.names, _ANY_DIRECTORIES, names_overlap, (first.inside, second.inside)
    )
    return overlaps, steps + more


def _sequences_overlap(
    first: Sequence[Item],
    second: Sequence[Item],
    any_items: Item,
    items_match: Callable[[Item, Item], bool],
    inside: tuple[bool, bool] = (False, False),
) -> tuple[bool, int]:
    """Return whether some sequence of items is matched by both patterns to their ends, and how many steps it took.

    It visits each pair of positions in the two once, so that it ends in at most their product of steps.

    any_items    the item that stands for any number of items
    items_match  tells whether two other items can be the same
    inside       whether more items may follow after the end of the first pattern, and of the second
    """
    steps, visited, to_visit = 0, {(0, 0)}, [(0, 0)]
    while to_visit:
        first_index, second_index = to_visit.pop()
        steps += 1
        first_remains, second_remains = first_index < len(first), second_index < len(second)
        if (not first_remains and (inside[0] or not second_remains)) or (not second_remains and inside[1]):
            return True, steps
        following = list[tuple[int, int]]()
        if (first_remains and first[first_index] == any_items) or (
            second_remains and second[second_index] == any_items
        ):  # it ends here, or takes one more
            following += [(first_index + 1, second_index)] if first_remains else []
            following += [(first_index, second_index + 1)] if second_remains else []
        elif first_remains and second_remains and items_match(first[first_index], second[second_index]):
            following.append((first_index + 1, second_index + 1))
        to_visit += [place for place in following if place not in visited]
        visited.update(following)
    return False, steps


@dataclass(frozen=True)
class _PatternParts:
    """A parsed pattern.

    names   its directories and file, each as characters and wildcards; `**` is the empty one
    inside  everything below what it names is meant, too
    plain   the names it begins with, as far as they have no wildcard
    """

    names: tuple[tuple[int, ...], ...]
    inside: bool
    plain: tuple[str, ...]


def _begin_differently(first: _PatternParts, second: _PatternParts) -> bool:
    """Return True when two patterns begin with different names: most of a thousand items' do, and need no further
    steps."""
    return any(map(ne, first.plain, second.plain))


@lru_cache(maxsize=4096)
def _parse_pattern(pattern: str) -> _PatternParts:
    """Return a pattern's parts; one that counts at any depth begins with `**`. Results are cached."""
    text = pattern.strip(" ")
    names = [name for name in text.split("/") if name not in ("", ".")]
    inside = text.endswith("/") or not names or "." not in names[-1][1:]
    is_rooted = "/" in text.rstrip("/") or not any(wild in text for wild in "*?[")
    parsed_names = [_ANY_DIRECTORIES if name == "**" else _parse_name(name) for name in names]
    plain = tuple(takewhile(lambda name: not _WILDCARD.search(name), names)) if is_rooted else ()
    return _PatternParts(tuple(parsed_names if is_rooted else [_ANY_DIRECTORIES, *parsed_names]), inside, plain)


def _parse_name(name: str) -> tuple[int, ...]:
    """Return one name of a pattern as code points, with _ANY_CHARACTERS for `*`, and _ANY_CHARACTER for `?` and for a
    class such as `[a-z]`."""
    characters, index = list[int](), 0
    while index < len(name):
        end = _class_end(name, index) if name[index] == "[" else 0
        if name[index] == "*":
            characters += [_ANY_CHARACTERS] if characters[-1:] != [_ANY_CHARACTERS] else []
        elif name[index] == "?" or end:
            characters.append(_ANY_CHARACTER)
        else:
            index += name[index] == "\\" and index + 1 < len(name)
            characters.append(ord(name[index]))
        index = end or index + 1
    return tuple(characters)


def _class_end(name: str, index: int) -> int:
    """Return the index behind the `]` of the character class that begins at this index; 0: no class begins there."""
    index += 2 if name[index + 1 : index + 2] in ("!", "^") and name[index + 1 : index + 2] else 1
    index += name[index : index + 1] == "]"
    while index < len(name):
        if name[index] == "]":
            return index + 1
        name_end = name.find(":]", index + 2) if name.startswith("[:", index) else -1
        index = name_end + 2 if name_end > 0 else index + 1 + (name[index] == "\\")
    return 0
