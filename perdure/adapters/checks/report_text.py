"""Decode what a runner has written, and keep what a report in XML or JSON cannot hold: control characters, halves of
characters, bytes of no encoding. Used by the readers of reports (`checks.junit`, `checks.command_result`).

Runners copy titles and output into their reports as they are: node's own writes an escape that XML forbids.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from perdure.models.limits import CASE_NAME_CHARS
from perdure.text import without_control

_CHUNK = 64 * 1024
_MARK_LENGTH = 40
"""Characters that the longest mark has: what the end of a piece may begin."""

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_MARK = re.compile(
    rf"(<!\[CDATA\[|\]\]>|<!--|-->)|&#(?:[xX]([0-9a-fA-F]{{1,20}})|([0-9]{{1,20}}));|{_FORBIDDEN.pattern}"
)
_BEGUN = re.compile(r"[&<\]-]")
_DECLARATION = re.compile(r"\s*<\?xml\b[^>]{0,500}\?>")
_ENCODING = re.compile(rb"""^\s*<\?xml\b[^>]{0,200}\sencoding\s{0,9}=\s{0,9}["']([\w.:-]{1,40})["']""")
_LEGACY = re.compile(r"iso8859|cp\d|koi8|mac|gb|big5|shift_jis|euc")
"""Names of encodings, as Python has them, that write what ASCII has as ASCII does."""

_BYTE_ORDERS = (  # of UTF-32 first: its mark begins with one of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"), (b"<\0\0\0", "utf-32-le"), (b"<\0", "utf-16-le"),
    (b"\0\0\0<", "utf-32-be"), (b"\0<", "utf-16-be"),
)  # fmt: skip

_STAND_IN = 0xF0000
"""Added to the number of a character that XML cannot hold, for its parser: a private character stands for it."""

_STOOD_IN = re.compile("[\U000f0000-\U000f001f\U000fd800-\U000fdfff\U000ffffe\U000fffff]")
_HALVES = re.compile("([\U000fd800-\U000fdbff])([\U000fdc00-\U000fdfff])")


def iter_xml(path: Path) -> Iterator[bytes]:
    """Yield a file of XML in pieces of UTF-8 that a parser accepts as far as their characters go; clean_name and
    clean_message put back what stands in for the others. Its XML declaration is left out, and white space before it.

    Raises OSError where it cannot be read.
    """
    decoder = codecs.getincrementaldecoder(_detect_encoding(path))(errors="backslashreplace")
    marks = _MarkReplacer()
    with path.open("rb") as file:
        text = decoder.decode(file.read(_CHUNK)).lstrip("\ufeff \t\r\n")
        text = _DECLARATION.sub("", text, count=1)
        while data := file.read(_CHUNK):
            piece, text = marks.replace_marks(text + decoder.decode(data))
            yield piece.encode()
        text += decoder.decode(b"", final=True)
        yield "".join(marks.replace_marks(text)).encode()


def _detect_encoding(path: Path) -> str:
    """Return the encoding of a file of XML: that of its byte order mark, UTF-8 where all of it is that, the declared
    one where that is an old one of known name, else UTF-8."""
    with path.open("rb") as file:
        head = file.read(_CHUNK)
        for beginning, encoding in _BYTE_ORDERS:
            if head.startswith(beginning):
                return encoding
        decoder, data = codecs.getincrementaldecoder("utf-8")(), head
        with contextlib.suppress(UnicodeDecodeError):
            while data:
                decoder.decode(data)
                data = file.read(_CHUNK)
            decoder.decode(b"", final=True)
            return "utf-8"
    if declared := _ENCODING.match(head):
        with contextlib.suppress(LookupError):
            name = codecs.lookup(declared[1].decode()).name
            return name if _LEGACY.match(name) else "utf-8"
    return "utf-8"


class _MarkReplacer:
    """Replaces what XML forbids in a text that comes in pieces, and knows across them where references are plain text:
    in sections and comments."""

    def __init__(self) -> None:
        self._inside = ""  # the end of the section or comment that is open

    def replace_marks(self, text: str) -> tuple[str, str]:
        """Return the text with stand-ins, and what may be the beginning of a mark at its end, as it is."""
        pieces, position = list[str](), 0
        for mark in _MARK.finditer(text):
            pieces += [text[position : mark.start()], self._replace_mark(mark)]
            position = mark.end()
        begun = _BEGUN.search(text, max(position, len(text) - _MARK_LENGTH))
        end = begun.start() if begun else len(text)
        return "".join([*pieces, text[position:end]]), text[end:]

    def _replace_mark(self, mark: re.Match[str]) -> str:
        """Return the stand-in for a character or reference that XML forbids, any other mark as it is."""
        text, hexadecimal, decimal = mark.groups()[0] or "", mark[2], mark[3]
        if text in ("<![CDATA[", "<!--"):
            self._inside = self._inside or ("]]>" if text == "<![CDATA[" else "-->")
        elif text:
            self._inside = "" if self._inside == text else self._inside
        elif not (hexadecimal or decimal):
            return chr(_STAND_IN + ord(mark[0]))
        elif not self._inside:
            code = int(hexadecimal, 16) if hexadecimal else int(decimal)
            if code > 0x10FFFF or _FORBIDDEN.match(chr(code)):
                return chr(_STAND_IN + (code if code <= 0xFFFF else 0xFFFE))
        return mark[0]


def clean_name(text: str) -> str:
    """Return a name from a report, every character that cannot be stored as its escape (`\\x1b`), so that names differ
    as they did. One longer than CASE_NAME_CHARS is its beginning and a hash of it."""
    if text.isascii() and len(text) <= CASE_NAME_CHARS:  # nothing stands in for anything
        return text
    text = _HALVES.sub(_join_halves, text)
    text = _STOOD_IN.sub(lambda stand_in: _escape_code(ord(stand_in[0]) - _STAND_IN), text)
    text = storable_text(text)
    if len(text) <= CASE_NAME_CHARS:
        return text
    return f"{text[:CASE_NAME_CHARS]}… ({len(text):,} characters, {sha256(text.encode()).hexdigest()[:16]})"


def clean_message(text: str) -> str:
    """Return a message from a report without control characters and colours; U+FFFD stands for what else cannot be
    stored."""
    if text.isascii():
        return without_control(text)
    text = _HALVES.sub(_join_halves, text)
    text = _STOOD_IN.sub(lambda stand_in: _control_character(ord(stand_in[0]) - _STAND_IN), text)
    return without_control(text)


def storable_text(text: str) -> str:
    """Return a text with an escape in place of what UTF-8 cannot hold: bytes of a file's name, halves of characters."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _join_halves(halves: re.Match[str]) -> str:
    """Return the character of two references to its halves, as Java writes one."""
    high, low = (ord(half) - _STAND_IN for half in halves.groups())
    return chr(0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00)


def _escape_code(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _control_character(code: int) -> str:
    return chr(code) if code < 0x20 else "\ufffd"
