"""Our marks on a terminal that cannot show them: letters that look alike, instead of question marks."""

from __future__ import annotations

import codecs

PLAIN = "perdure.plain"
"""An error handler for encoding: a C locale without UTF-8 mode, or an old 8-bit one."""

_ALIKE = dict(zip("✓✗↻▸–−—·│─╭╮╰╯“”‘’×", "vx@>---||-++++\"\"''x", strict=True)) | {"→": "->", "…": "..."}


def _alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ALIKE.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error(PLAIN, _alike)
