"""Texts that pass between models and people: the first line of an answer, frames that mark a text as data or as a
person's so that its content cannot end them, and texts without secrets. Used by the other modules of
`perdure.adapters.agents` alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from perdure.text import SECRET_CHARS, one_line, redact_values, shorten, visible

_MARKDOWN = re.compile(r"^(?:#{1,6}\s+|[-*+>]\s+|\d+[.)]\s+)+|\*\*|`+")

_THOUGHT = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)

_PERSON = re.compile(r'^<person mark="(\w+)">\n(.*?)\n</person mark="\1">', re.DOTALL | re.MULTILINE)


def first_line(text: str, limit: int) -> str:
    """Return the first line with words in it, without Markdown and control characters, at most `limit` characters;
    empty: there is none."""
    for line in text.splitlines():
        plain = _MARKDOWN.sub("", visible(line).strip()).strip()
        if any(c.isalnum() for c in plain):
            return shorten(" ".join(plain.split()), limit)
    return ""


def without_thoughts(text: str) -> str:
    """Return the text without what a model thought before it, which some servers leave there between tags."""
    return _THOUGHT.sub("", text)


def frame_data(name: str, text: str) -> str:
    """Return a text of others, marked as data: the mark is a hash of the text, so the text cannot contain its own
    end."""
    return _frame("data", f' name="{one_line(name)}"', text)


def frame_person_text(text: str) -> str:
    """Return a person's text, marked as that in the same way."""
    return _frame("person", "", text)


def person_texts_in(text: str) -> list[str]:
    """Return the texts in the frames of people's texts; a frame whose mark is not the one of its text is none."""
    frames = _PERSON.findall(text)
    return [content for mark, content in frames if mark == _text_mark(content)]


def _text_mark(text: str) -> str:
    """Return the mark of a text: the beginning of its SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _frame(tag: str, attributes: str, text: str) -> str:
    """Return a text between two tags that bear its mark."""
    mark = _text_mark(text)
    return f'<{tag}{attributes} mark="{mark}">\n{text}\n</{tag} mark="{mark}">'


def redact_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each of these values replaced by `[redacted]`; ones of at most SECRET_CHARS characters
    stay."""
    return redact_values(text, {secret for secret in secrets if len(secret) > SECRET_CHARS})
