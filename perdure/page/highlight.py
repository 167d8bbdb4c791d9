"""Colours of source code, by Pygments, in a process of their own that is ended when it takes too long: what is read was
written by strangers, and a lexer is a few thousand regular expressions. Used by the page's review; run as a module it
is that process."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress

SourceText = tuple[str, str]
"""The name of a file, which says its language, and a part of its text."""

Piece = tuple[str, str]
"""A CSS class, or nothing, and the characters that have it."""

SOURCE_CHARS = 300_000
"""Characters that are coloured on one page, those first that come first: Pygments reads half a million a second."""

HIGHLIGHT_CPU_S = 3
"""Limit of the process in seconds of a processor: it needs less than one for SOURCE_CHARS of usual code."""

HIGHLIGHT_PATIENCE_S = 20.0
"""Limit in seconds of a busy machine, in which it gets its seconds of a processor late."""


async def color_sources(texts: Sequence[SourceText]) -> list[list[list[Piece]]] | None:
    """Return the lines of each text as pieces with CSS classes, in the order of the texts; without lines where a text
    has no colours: its language is not known, or it is beyond SOURCE_CHARS. None where the process was ended by its
    limits."""
    taken, chars = list[SourceText](), 0
    for name, text in texts:
        chars += len(text)
        taken.append((name, text if chars <= SOURCE_CHARS else ""))
    if not any(text for _, text in taken):
        return [[] for _ in texts]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "perdure.page.highlight",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(HIGHLIGHT_PATIENCE_S):
            output, _ = await process.communicate(json.dumps(taken).encode())
        lines: list[list[list[Piece]]] = json.loads(output)
        return lines
    except (TimeoutError, ValueError):
        return None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _read_pieces(name: str, text: str) -> list[list[Piece]]:
    """Return the lines of a text as pieces; none where Pygments knows no language for the file's name."""
    from pygments.lexers import find_lexer_class_for_filename  # type: ignore[import-untyped]  # has no types of its own
    from pygments.token import STANDARD_TYPES, Token  # type: ignore[import-untyped]  # as above

    classes = (
        (Token.Comment, "c"),
        (Token.Keyword, "k"),
        (Token.Operator.Word, "k"),
        (Token.Literal.String, "s"),
        (Token.Literal.Number, "m"),
        (Token.Name.Function, "f"),
        (Token.Name.Class, "f"),
        (Token.Name.Decorator, "d"),
        (Token.Name.Tag, "k"),
        (Token.Name.Attribute, "f"),
    )
    by_type = {kind: next((css for parent, css in classes if kind in parent), "") for kind in STANDARD_TYPES}
    lexer_class = find_lexer_class_for_filename(name) if text else None
    if lexer_class is None:
        return []
    lines: list[list[Piece]] = [[]]
    for kind, value in lexer_class(stripnl=False, ensurenl=False).get_tokens(text):
        css = by_type.get(kind, "")
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part and lines[-1] and lines[-1][-1][0] == css:
                lines[-1][-1] = css, lines[-1][-1][1] + part
            elif part:
                lines[-1].append((css, part))
    return lines


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (HIGHLIGHT_CPU_S, HIGHLIGHT_CPU_S))
    json.dump([_read_pieces(*entry) for entry in json.load(sys.stdin)], sys.stdout)
