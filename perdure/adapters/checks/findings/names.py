"""Paths as text: git takes any bytes, a finding takes what can be read and stored."""

from __future__ import annotations

import os

from perdure.text import is_visible

FINDING_NAME_CHARS = 200
"""Of a path in a finding: names may have 4096 bytes."""


def shown(path: str) -> str:
    """A path of the file system as text on one line; what cannot be printed is escaped, a long one loses its middle."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    plain = "".join(c if is_visible(c) else c.encode("unicode_escape").decode() for c in text)
    if len(plain) <= FINDING_NAME_CHARS:
        return plain
    half = FINDING_NAME_CHARS // 2
    return f"{plain[:half]}…{plain[-half + 1 :]}"
