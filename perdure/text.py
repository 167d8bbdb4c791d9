"""Text as a person sees it, when it comes from models, tools or strangers: without control and invisible characters,
cut to a length, with secrets redacted; and time, money and other numbers as people read them."""

from __future__ import annotations

import base64
import difflib
import json
import re
import shlex
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC, DCS and the like: titles, links, clipboards
    r"|\x1b[ -/]*[0-~]?"  # one without its end takes no words with it
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ENDS = re.compile("\r\n?|[\u2028\u2029]")

_UNSEEN = re.compile(
    "[\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0000-\U000e0fff]"
)
"""Invisible to people, and most of it printable to Unicode: fillers, tags, variation selectors, which can carry whole
messages."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` with the known name that is closest to `name`; empty when none is close."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def is_text(text: str) -> bool:
    """Return False when a text holds bytes that are not UTF-8 (as surrogates), as names of files, variables and
    arguments may."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def without_control(text: str) -> str:
    """Return a program's output without terminal control sequences and control characters; tabs, newlines and every
    other character stay as they are."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


def visible(text: str, *, besides: str = "") -> str:
    """Return what a person sees of a text: no control, format, filler or unknown character, and nothing that reorders
    letters.

    Ends of lines become newlines; those and tabs stay, any other space becomes a plain one. `besides`: characters that
    are left as they are.
    """
    if text.isascii() and text.isprintable():
        return text  # nearly all of a list's texts: a page of 2,000 rows has 30,000 of them
    text = _ENDS.sub("\n", _SEQUENCE.sub("", text))
    if not text.isprintable():
        kept = f"\n\t{besides}"
        text = "".join(c if c.isprintable() or c in kept else " " if c.isspace() else "" for c in text)
    return _UNSEEN.sub("", text)


def is_visible(character: str) -> bool:
    """Return whether a person sees a character: it is printable, and no invisible filler."""
    return character.isprintable() and _UNSEEN.match(character) is None


def name_hidden_characters(text: str) -> str:
    """Return a text with the name of every character that a person would not see, or that reorders letters, in its
    place: `⟨U+202E⟩`. Tabs and newlines stay."""
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(c if c in "\t\n" or is_visible(c) else f"⟨U+{ord(c):04X}⟩" for c in text)


def one_line(text: str, limit: int = 200) -> str:
    """Return what a person sees of a text on one line, white space as single spaces, cut to `limit` characters with `…`
    at the end."""
    return shorten(" ".join(visible(text).split()), limit)


def shorten(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters: as it is, or cut, with `…` as the last character."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def cut_middle(
    text: str, limit: int, gap: str = "\n[… {} characters left out …]\n", *, head_share: float = 1 / 3
) -> str:
    """Return a text of at most `limit` characters: as it is, or with `gap` in place of its middle.

    gap         `{}` in it becomes the number of characters that are left out
    head_share  the share of the kept characters that comes from the beginning; the end of a program's output says more
    """
    if len(text) <= limit:
        return text
    kept_chars = max(limit - len(gap.format(len(text))), 0)
    head_chars = int(kept_chars * head_share)
    return text[:head_chars] + gap.format(len(text) - kept_chars) + text[len(text) - kept_chars + head_chars :]


def cut_bytes(text: str, limit: int) -> str:
    """Return the whole characters in the first `limit` bytes of a text in UTF-8; `?` stands for what UTF-8 cannot
    hold."""
    return valid_text(text).encode()[:limit].decode(errors="ignore")


def valid_text(text: str) -> str:
    """Return a text with `?` for what UTF-8 cannot hold: undecodable bytes of a name, and the halves of characters that
    JSON can carry."""
    return text.encode(errors="replace").decode()


def shell_word(value: object) -> str:
    """Return an id, a path or another value as one word of a shell, for each command that people are told to type."""
    return shlex.quote(str(value))


def escape_path(path: str | bytes) -> str:
    """Return a path of the file system as text on one line: what cannot be seen, and bytes that are not UTF-8, are
    escaped (`\\n`, `\\xff`)."""
    data = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if is_visible(c) else c.encode("unicode_escape").decode() for c in text)


SECRET_CHARS = 8
"""Values of at most so many characters are not looked for in errors and outputs: a "secret" like `test` would black out
half of them."""

_known_secrets = set[str]()
"""The secrets that this process holds: keys of models, tokens of forges, addresses of webhooks."""


def register_secrets(*values: str) -> None:
    """Note values that no error of this process may show; those of at most SECRET_CHARS characters are ignored."""
    _known_secrets.update(value for value in values if len(value) > SECRET_CHARS)


def redact_known(text: str) -> str:
    """Return a text without the values that were registered, however they are written (see redact_values)."""
    return redact_values(text, tuple(_known_secrets))


def redact_values(text: str, secrets: Iterable[str], mark: str = "[redacted]") -> str:
    """Return a text with `mark` in place of each of the values `secrets`, as they are, percent-encoded, with escapes of
    JSON, and in base64, there also where other bytes stand before and behind them. Empty values are ignored; longer
    ones are replaced first, because one may begin with another."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        for form in _written_forms(secret):
            text = text.replace(form, mark)
    return text


@lru_cache(maxsize=1_000)
def _written_forms(secret: str) -> tuple[str, ...]:
    """Return the texts as which a secret is found, the longest first."""
    data = secret.encode("utf-8", "surrogatepass")
    forms = {secret, data.decode("latin-1"), quote(data, safe=""), quote(data, safe="/"), json.dumps(secret)[1:-1]}
    if len(secret) > SECRET_CHARS:
        for bytes_before in range(3):  # characters that bytes beside it change as well are left out
            encoded = base64.b64encode(b"\0" * bytes_before + data).decode()
            whole = encoded[(0, 2, 3)[bytes_before] : (bytes_before + len(data)) * 8 // 6]
            forms |= {whole, whole.translate(str.maketrans("+/", "-_"))}
    return tuple(sorted(forms, key=len, reverse=True))


def span(seconds: float) -> str:
    """Format seconds as `8.2 s`, `19 s`, `1m 12s` or `2h 05m`, the most exact that fits; negative ones count as 0."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def format_money(usd: float | None, of: float | None = None, *, unknown: str = "cost unknown", digits: int = 2) -> str:
    """Return dollars as `$0.43`, with a budget `$0.43 of $5.00`; a price nobody knows is `unknown`, never zero.

    digits  after the point; a smaller amount that is not zero is `<$0.01`
    """
    least = 10**-digits
    text = unknown if usd is None else f"<${least}" if 0 < usd < least / 2 else f"${usd:,.{digits}f}"
    return text if of is None else f"{text} of {format_money(of)}"


def format_tokens(count: int) -> str:
    """Return a number of tokens as `950`, `118k`, `1.2M`."""
    if count < 1000:
        return str(count)
    if count < 999_500:
        return f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def format_count(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: `1 turn`, `3 turns`. `plural` empty: the singular and an s."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def short_sha(sha: str) -> str:
    """Return a commit's first seven digits."""
    return sha[:7]


def is_web_address(url: str) -> bool:
    """Return True when a text is an http(s) address that can stand in a Markdown link, without ending it."""
    return re.fullmatch(r"https?://[^\s()<>\"'`\\]+", url) is not None
