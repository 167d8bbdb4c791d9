"""Our marks on a terminal that cannot show them: letters that look alike, and no question marks; JSON stays JSON."""

from __future__ import annotations

import codecs
import json
from typing import Any, TextIO

PLAIN = "perdure.plain"
"""An error handler for encoding: a C locale without UTF-8 mode, or an old 8-bit one."""

_ALIKE = dict(zip("✓✗↻▸–−—·│─╭╮╰╯“”‘’×", "vx@>---||-++++\"\"''x", strict=True)) | {"→": "->", "…": "..."}


def _alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ALIKE.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def as_json(value: Any, stream: TextIO, indent: int | None = None) -> str:
    """JSON for a stream; strings are taken as JSON already. All escaped where it is not UTF-8: of quotation marks that
    look alike some would end a string."""
    if (stream.encoding or "utf-8").lower().startswith("utf"):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=indent)
    return json.dumps(json.loads(value) if isinstance(value, str) else value, indent=indent)


codecs.register_error(PLAIN, _alike)
