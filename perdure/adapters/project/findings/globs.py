"""Patterns of `[protect] paths`: as in .gitignore."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache


def covering(path: str, patterns: Sequence[str]) -> str | None:
    """The pattern that covers a path, None when none does. As in .gitignore: the last one that matches decides.

    A pattern with a slash at its beginning or in its middle starts at the root, any other one matches at any depth; one
    that names a directory covers what is in it; `**` stands for any directories, `!` takes back.
    """
    found = None
    for pattern in patterns:
        compiled = _compiled(pattern)
        if compiled is not None and compiled.fullmatch(path):
            found = None if pattern.startswith("!") else pattern
    return found


@cache
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None for what matches nothing: blanks, comments, `/`."""
    body = pattern.removeprefix("!").rstrip(" ")
    if body.startswith("#") or not body.strip("/"):
        return None
    inside_only = body.endswith("/")
    body = body.rstrip("/")
    rooted = "/" in body
    start = "" if rooted else "(?:.*/)?"
    end = "/.+" if inside_only else "(?:/.*)?"
    return re.compile(start + _regex(body.removeprefix("/")) + end, re.DOTALL)


def _regex(body: str) -> str:
    parts = body.split("/")
    out = []
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        if part == "**" and len(parts) > 1:
            out.append(".+" if last else "(?:.*/)?")
        else:
            out.append(_name(part) + ("" if last else "/"))
    return "".join(out)


def _name(part: str) -> str:
    """One name: what stands between two stars is looked for once, at its first place, so that time stays linear."""
    pieces = [""]
    at = 0
    while at < len(part):
        if part[at] == "*":
            pieces += [""] if pieces[-1] or len(pieces) == 1 else []
            at += 1
        elif part[at] == "?":
            pieces[-1] += "[^/]"
            at += 1
        elif part[at] == "[" and (found := re.match(r"\[([!^]?)(\]?[^]]*)\]", part[at:])) is not None:
            inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", found[2])
            pieces[-1] += f"(?!/)[{'^' if found[1] else ''}{inner}]"
            at += found.end()
        else:
            at += part[at] == "\\" and at + 1 < len(part)
            pieces[-1] += re.escape(part[at])
            at += 1
    first, *others = pieces
    if not others:
        return first
    *middle, end = others
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle) + "[^/]*" + end
