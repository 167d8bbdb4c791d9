"""Small rules for text that models write and people read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from perdure.text import one_line, shortened, visible

SECRET_CHARS = 8
"""Values this short are not looked for: a "secret" like `test` would black out half of every output."""

_MARKDOWN = re.compile(r"^(?:#{1,6}\s+|[-*+>]\s+|\d+[.)]\s+)+|\*\*|`+")

_PERSON = re.compile(r'^<person mark="(\w+)">\n(.*?)\n</person mark="\1">', re.DOTALL | re.MULTILINE)


def first_line(text: str, limit: int) -> str:
    """The first line with words in it, without Markdown and control characters, at most `limit` characters."""
    for line in text.splitlines():
        plain = _MARKDOWN.sub("", visible(line).strip()).strip()
        if any(c.isalnum() for c in plain):
            return shortened(" ".join(plain.split()), limit)
    return ""


def middle_out(text: str, limit: int) -> str:
    """At most about `limit` characters: a third from the beginning, the rest from the end, the gap named."""
    if len(text) <= limit:
        return text
    head, tail = limit // 3, limit - limit // 3
    return f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n{text[-tail:]}"


def framed(name: str, text: str) -> str:
    """Text of others, marked as data: the mark is a hash of the text, so the text cannot contain its own end."""
    return _between("data", f' name="{one_line(name)}"', text)


def framed_words(text: str) -> str:
    """Return a person's words, marked as that in the same way."""
    return _between("person", "", text)


def words_in(text: str) -> list[str]:
    """Return the text in the frames of a person's words; a frame whose mark is not the one of its text is none."""
    found = _PERSON.findall(text)
    return [words for mark, words in found if mark == _mark(words)]


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _between(tag: str, attributes: str, text: str) -> str:
    mark = _mark(text)
    return f'<{tag}{attributes} mark="{mark}">\n{text}\n</{tag} mark="{mark}">'


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` without these values; ones of at most SECRET_CHARS characters stay."""
    for secret in sorted({s for s in secrets if len(s) > SECRET_CHARS}, key=len, reverse=True):
        text = text.replace(secret, "[redacted]")
    return text
