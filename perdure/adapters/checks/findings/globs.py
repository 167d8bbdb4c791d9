"""Patterns of paths, matched in time that is bounded by their length times the path's: no star is tried twice.

As in .gitignore for `[protect] paths` and `[tests] side`; as a test runner means them in what its settings name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

GLOB_ALTERNATIVES = 64
"""Patterns that braces and groups of one may stand for: `**/*.{test,spec}.[cm]?[jt]s?(x)` stands for four."""


def covering(path: str, patterns: Sequence[str]) -> str | None:
    """The pattern that covers a path, None when none does. As in .gitignore: the last one that matches decides.

    A pattern with a slash at its beginning or in its middle starts at the root, any other one matches at any depth; one
    that names a directory covers what is in it; `**` stands for any directories, `!` takes back.
    """
    last = last_of(path, patterns)
    return None if last is None or last.startswith("!") else last


def last_of(path: str, patterns: Sequence[str]) -> str | None:
    """The last pattern that matches a path; one that begins with `!` says that it is not covered."""
    found = (pattern for pattern in reversed(patterns) if matches(path, pattern))
    return next(found, None)


def matches(path: str, pattern: str) -> bool:
    """True when this one, by itself, says something about the path."""
    compiled = _compiled(pattern)
    return compiled is not None and compiled.fullmatch(path) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None for what matches nothing: blanks, comments, `/`."""
    body = pattern.removeprefix("!").rstrip(" ")
    if body.startswith("#") or not body.strip("/"):
        return None
    inside_only = body.endswith("/")
    body = body.rstrip("/")
    rooted = "/" in body
    more = "/." if inside_only else r"(?:/|\Z)"
    return re.compile(_path(body.removeprefix("/") if rooted else f"**/{body}", more) + "(?:/.*)?", re.DOTALL)


def exactly(pattern: str) -> str:
    """As a regular expression, one that has to match the whole path: `src/**/*.spec.js`."""
    return _path(pattern.removeprefix("./"), r"\Z")


def by_name(pattern: str) -> str:
    """As Python's fnmatch means it, a pattern without a slash for the name alone; in others a star crosses slashes."""
    body = pattern.removeprefix("./")
    if "/" not in body:
        return f"(?s:(?:.*/)?{_name(body)})"
    return f"(?s:{_name(body, '.')}|{_name(f'*/{body}', '.')})"


def alternatives(pattern: str) -> tuple[str, ...]:
    """Without braces and the groups of `?(a|b)`: one pattern for each choice; more than once counts as once.

    None of them where the pattern is beyond this: `!(a)`, braces without an end, or too many choices.
    """
    done, left = list[str](), [pattern]
    while left:
        one = left.pop()
        if len(done) + len(left) >= GLOB_ALTERNATIVES or "!(" in one:
            return ()
        found = re.search(r"\{([^{}]*)\}|([?@+*])\(([^()]*)\)", one)
        if found is None:
            if re.search(r"[{}()]", one):
                return ()
            done.append(one)
            continue
        kind, braces = found[2] or "", found[1] is not None
        choices = found[1].split(",") if braces else found[3].split("|")
        choices += [""] if kind in ("?", "*") and kind else []
        left += [one[: found.start()] + choice + one[found.end() :] for choice in reversed(choices)]
    return tuple(dict.fromkeys(done))


def _path(body: str, more: str) -> str:
    """`more`: what follows, looked at only. What stands between two `**` is looked for once, at its first place: names
    have a number of their own, so that a later place can do no better."""
    groups, names = [list[str]()], body.split("/")
    for name in names:
        if name == "**":
            groups += [[]] if groups[-1] or len(groups) == 1 else []
        else:
            groups[-1].append(_name(name))
    first, *others = ["/".join(group) for group in groups]
    if not others:
        return f"{first}(?={more})"
    start = f"(?>{first}/)" if first else ""
    *middle, end = others
    looked = "".join(f"(?>(?:[^/]+/)*?{group}/)" for group in middle)
    return f"{start}{looked}(?>(?:[^/]+/)*?{end or '[^/]+'}(?={more}))"


def _name(part: str, other: str = "[^/]") -> str:
    """One name: what stands between two stars is looked for once, at its first place, so that time stays linear.

    `other`: what a star stands for
    """
    pieces = [""]
    at = 0
    while at < len(part):
        if part[at] == "*":
            pieces += [""] if pieces[-1] or len(pieces) == 1 else []
            at += 1
        elif part[at] == "?":
            pieces[-1] += other
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
    return first + "".join(f"(?>{other}*?{piece})" for piece in middle) + f"{other}*{end}"


_ANY = ""


def searched(pattern: str) -> tuple[str, ...]:
    """As a JavaScript regular expression that is looked for in `/` and the path: one for each of its choices.

    None of them where it is beyond this: it repeats anything but `.`, looks around, begins with `^`.
    """
    body = pattern.removesuffix("$")
    try:
        choices, at = _choices(body, 0)
    except ValueError:
        return ()
    if at != len(body):
        return ()
    found = list[str]()
    for tokens in choices:
        open_end = [] if body != pattern else [_ANY]
        found.append(_sequence([_ANY, *tokens, *open_end]))
        if tokens[:1] == ["/"]:
            found.append(_sequence([*tokens[1:], *open_end]))
    return tuple(dict.fromkeys(found))


def _choices(body: str, at: int, depth: int = 0) -> tuple[list[list[str]], int]:
    """The choices from here to the end of the group, each as expressions of one character, and where that is."""
    done, left = list[list[str]](), [list[str]()]
    if depth > GLOB_ALTERNATIVES:
        raise ValueError("too deep")
    while at < len(body) and body[at] != ")":
        if body[at] == "|":
            done, left, at = done + left, [[]], at + 1
            continue
        if body[at] == "(":
            inner, at = _choices(body, at + 1 + 2 * body.startswith("(?:", at), depth + 1)
            at += 1
        else:
            one = re.compile(r"\[\^?[\w.-]+\]|\\[./-]|[\w/.@~%=, -]").match(body, at)
            if one is None:
                raise ValueError(body[at])
            at, inner = one.end(), [[one[0]]]
        if at < len(body) and body[at] == "?":
            at, inner = at + 1, [*inner, []]
        elif at < len(body) and body[at] in "*+":
            if inner != [["."]]:
                raise ValueError(body[at])
            inner, at = [[_ANY] if body[at] == "*" else [".", _ANY]], at + 1
        left = [some + more for some in left for more in inner]
        if len(left) + len(done) > GLOB_ALTERNATIVES:
            raise ValueError("too many choices")
    if at == len(body) and depth:
        raise ValueError("no end")
    return done + left, at


def _sequence(tokens: Sequence[str]) -> str:
    """Look for what stands between two stars once, at its first place."""
    pieces = [list[str]()]
    for token in tokens:
        pieces += [[]] if token == _ANY else []
        pieces[-1] += [token] if token != _ANY else []
    first, *others = ["".join(piece) for piece in pieces]
    if not others:
        return f"(?s:{first})"
    *middle, end = others
    return f"(?s:{first}{''.join(f'(?>.*?{piece})' for piece in middle if piece)}.*{end})"
