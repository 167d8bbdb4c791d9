"""Match paths against patterns as in .gitignore (`[protect] paths`, `[tests] side`), and translate the patterns in test
runners' settings (globs, fnmatch, JavaScript expressions) to regular expressions of whole paths. Used by the engine's
findings, the runners and the rules of the test side.

Matching takes time bounded by the pattern's length times the path's: what stands between two stars is searched for
once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

GLOB_ALTERNATIVES = 64
"""The most patterns that braces and groups of one pattern may stand for: `**/*.{test,spec}.[cm]?[jt]s?(x)` stands for
four."""


def covering_pattern(path: str, patterns: Sequence[str]) -> str | None:
    """Return the pattern that covers a path, None when none does. As in .gitignore, the last one that matches decides.

    A pattern with a slash at its beginning or in its middle starts at the root, any other one matches at any depth; one
    that names a directory covers what is in it; `**` stands for any directories, `!` takes back.
    """
    pattern = last_match(path, patterns)
    return None if pattern is None or pattern.startswith("!") else pattern


def last_match(path: str, patterns: Sequence[str]) -> str | None:
    """Return the last pattern that matches a path, None when none does; one that begins with `!` says that the path is
    not covered."""
    matching = (pattern for pattern in reversed(patterns) if matches(path, pattern))
    return next(matching, None)


def matches(path: str, pattern: str) -> bool:
    """Return whether a pattern matches a path, by itself; a `!` before it is passed over."""
    compiled = _compile_pattern(pattern)
    return compiled is not None and compiled.fullmatch(path) is not None


@lru_cache(maxsize=1024)
def _compile_pattern(pattern: str) -> re.Pattern[str] | None:
    """Return the regular expression for a pattern as in .gitignore, an `!` before it passed over; None for one that
    matches nothing: blanks, comments, `/`. Answers are cached."""
    body = pattern.removeprefix("!").rstrip(" ")
    if body.startswith("#") or not body.strip("/"):
        return None
    inside_only = body.endswith("/")
    body = body.rstrip("/")
    rooted = "/" in body
    ending = "/." if inside_only else r"(?:/|\Z)"
    return re.compile(
        _segments_regex(body.removeprefix("/") if rooted else f"**/{body}", ending) + "(?:/.*)?", re.DOTALL
    )


def path_regex(pattern: str) -> str:
    """Return a regular expression for a pattern such as `src/**/*.spec.js`, which has to match the whole path."""
    return _segments_regex(pattern.removeprefix("./"), r"\Z")


def fnmatch_regex(pattern: str) -> str:
    """Return a regular expression for a pattern of Python's fnmatch, which has to match the whole path.

    A pattern without a slash is compared with the file's name alone. In others a star crosses slashes, and they may
    begin below any directory.
    """
    body = pattern.removeprefix("./")
    if "/" not in body:
        return f"(?s:(?:.*/)?{_name_regex(body)})"
    return f"(?s:{_name_regex(body, '.')}|{_name_regex(f'*/{body}', '.')})"


def expand_alternatives(pattern: str) -> tuple[str, ...]:
    """Return the patterns that one with braces or groups (`?(a|b)`) stands for, one for each choice; a group that may
    repeat counts as once, and one that may be absent as absent, too.

    Empty where the pattern is beyond this: `!(a)`, braces or groups without an end, or GLOB_ALTERNATIVES choices and
    more.
    """
    expanded, pending = list[str](), [pattern]
    while pending:
        candidate = pending.pop()
        if len(expanded) + len(pending) >= GLOB_ALTERNATIVES or "!(" in candidate:
            return ()
        match = re.search(r"\{([^{}]*)\}|([?@+*])\(([^()]*)\)", candidate)
        if match is None:
            if re.search(r"[{}()]", candidate):
                return ()
            expanded.append(candidate)
            continue
        kind, braces = match[2] or "", match[1] is not None
        choices = match[1].split(",") if braces else match[3].split("|")
        choices += [""] if kind in ("?", "*") and kind else []
        pending += [candidate[: match.start()] + choice + candidate[match.end() :] for choice in reversed(choices)]
    return tuple(dict.fromkeys(expanded))


def _segments_regex(body: str, ending: str) -> str:
    """Return a regular expression for a pattern of names between slashes, in which `**` stands for any directories.

    ending  a regular expression for what must follow; it is a lookahead, and no part of the match

    What stands between two `**` is searched for once, at its first place: it is a fixed number of names, so that a
    later place can do no better.
    """
    groups, names = [list[str]()], body.split("/")
    for name in names:
        if name == "**":
            groups += [[]] if groups[-1] or len(groups) == 1 else []
        else:
            groups[-1].append(_name_regex(name))
    first, *others = ["/".join(group) for group in groups]
    if not others:
        return f"{first}(?={ending})"
    start = f"(?>{first}/)" if first else ""
    *middle, end = others
    between = "".join(f"(?>(?:[^/]+/)*?{group}/)" for group in middle)
    return f"{start}{between}(?>(?:[^/]+/)*?{end or '[^/]+'}(?={ending}))"


def _name_regex(part: str, star_character: str = "[^/]") -> str:
    """Return a regular expression for the pattern of one name, with `*`, `?`, `[…]` and backslashes as in .gitignore.

    star_character  a regular expression for each character that a star or `?` stands for

    What stands between two stars is searched for once, at its first place, so that time stays linear.
    """
    pieces = [""]
    position = 0
    while position < len(part):
        if part[position] == "*":
            pieces += [""] if pieces[-1] or len(pieces) == 1 else []
            position += 1
        elif part[position] == "?":
            pieces[-1] += star_character
            position += 1
        elif part[position] == "[" and (match := re.match(r"\[([!^]?)(\]?[^]]*)\]", part[position:])) is not None:
            inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", match[2])
            pieces[-1] += f"(?!/)[{'^' if match[1] else ''}{inner}]"
            position += match.end()
        else:
            position += part[position] == "\\" and position + 1 < len(part)
            pieces[-1] += re.escape(part[position])
            position += 1
    first, *others = pieces
    if not others:
        return first
    *middle, end = others
    return first + "".join(f"(?>{star_character}*?{piece})" for piece in middle) + f"{star_character}*{end}"


_ANY = ""


def search_regexes(pattern: str) -> tuple[str, ...]:
    """Translate a JavaScript regular expression that is searched for in a path with `/` before it, and return regular
    expressions that match whole paths: one or two for each of its choices.

    Empty where it cannot be translated: it repeats anything but `.`, looks around, begins with `^`, or has more than
    GLOB_ALTERNATIVES choices.
    """
    body = pattern.removesuffix("$")
    try:
        choices, position = _parse_choices(body, 0)
    except ValueError:
        return ()
    if position != len(body):
        return ()
    expressions = list[str]()
    for tokens in choices:
        open_end = [] if body != pattern else [_ANY]
        expressions.append(_tokens_regex([_ANY, *tokens, *open_end]))
        if tokens[:1] == ["/"]:
            expressions.append(_tokens_regex([*tokens[1:], *open_end]))
    return tuple(dict.fromkeys(expressions))


def _parse_choices(body: str, position: int, depth: int = 0) -> tuple[list[list[str]], int]:
    """Parse a regular expression from a position to the end of its group; return its choices, each a list of
    expressions of one character, and the position of that end.

    depth  groups around it

    Raises ValueError for what is not understood here, and for more than GLOB_ALTERNATIVES choices or levels.
    """
    done, open_choices = list[list[str]](), [list[str]()]
    if depth > GLOB_ALTERNATIVES:
        raise ValueError("too deep")
    while position < len(body) and body[position] != ")":
        if body[position] == "|":
            done, open_choices, position = done + open_choices, [[]], position + 1
            continue
        if body[position] == "(":
            inner, position = _parse_choices(body, position + 1 + 2 * body.startswith("(?:", position), depth + 1)
            position += 1
        else:
            match = re.compile(r"\[\^?[\w.-]+\]|\\[./-]|[\w/.@~%=, -]").match(body, position)
            if match is None:
                raise ValueError(body[position])
            position, inner = match.end(), [[match[0]]]
        if position < len(body) and body[position] == "?":
            position, inner = position + 1, [*inner, []]
        elif position < len(body) and body[position] in "*+":
            if inner != [["."]]:
                raise ValueError(body[position])
            inner, position = [[_ANY] if body[position] == "*" else [".", _ANY]], position + 1
        open_choices = [head + tail for head in open_choices for tail in inner]
        if len(open_choices) + len(done) > GLOB_ALTERNATIVES:
            raise ValueError("too many choices")
    if position == len(body) and depth:
        raise ValueError("no end")
    return done + open_choices, position


def _tokens_regex(tokens: Sequence[str]) -> str:
    """Return a regular expression for a sequence of one-character expressions and `_ANY` (any characters, or none);
    what stands between two `_ANY` is searched for once, at its first place."""
    pieces = [list[str]()]
    for token in tokens:
        pieces += [[]] if token == _ANY else []
        pieces[-1] += [token] if token != _ANY else []
    first, *others = ["".join(piece) for piece in pieces]
    if not others:
        return f"(?s:{first})"
    *middle, end = others
    return f"(?s:{first}{''.join(f'(?>.*?{piece})' for piece in middle if piece)}.*{end})"
