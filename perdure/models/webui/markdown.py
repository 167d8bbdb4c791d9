"""Single lines of text in the Web UI, which shows Markdown: written so that nothing is markup, and read back."""

from __future__ import annotations

import re

from perdure.text import one_line

_MARKUP = re.compile(r"[\\`*_{}\[\]()#+!:|&<>~^$]|^[-.]|(?<=[-.\d])[-.]|[-.](?=[-.])")
_FRACTION = re.compile(r"(?<=\d)/(?=\d)")


def escape_line(text: str, limit: int) -> str:
    """Return a text on one line with all markup escaped, safe in a table too; at most `limit` characters of it, "…" the
    last one when there were more."""
    return _FRACTION.sub("&#47;", _MARKUP.sub(lambda match: "\\" + match[0], one_line(text, limit)))


def unescape_line(text: str) -> str:
    """Return the plain text of a line that `escape_line` escaped."""
    return re.sub(r"\\(.)", r"\1", text.replace("&#47;", "/"))
