"""Output for terminals that cannot show Perdure's marks: similar plain characters instead of them; JSON stays valid."""

from __future__ import annotations

import codecs
import json
from typing import Any, TextIO

PLAIN_ERRORS = "perdure.plain"
"""Name of the error handler for encoding: needed in a C locale without UTF-8 mode, or an old 8-bit one."""

_SUBSTITUTES = dict(zip("✓✗↻▸–−—·│─╭╮╰╯“”‘’×", "vx@>---||-++++\"\"''x", strict=True)) | {"→": "->", "…": "..."}


def _substitute(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SUBSTITUTES.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def as_json(value: Any, stream: TextIO, indent: int | None = None) -> str:
    """Return a value as JSON text for a stream; a string is taken as JSON already.

    Where the stream is not UTF-8, everything beyond ASCII is escaped: a substitute for a quotation mark would end a
    string.
    """
    if (stream.encoding or "utf-8").lower().startswith("utf"):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=indent)
    return json.dumps(json.loads(value) if isinstance(value, str) else value, indent=indent)


codecs.register_error(PLAIN_ERRORS, _substitute)
