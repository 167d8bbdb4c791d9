"""Text that a model or a stranger wrote, made harmless for a forge's Markdown.

It calls nobody, refers to nothing, closes nothing, shows no link, image or HTML, commands no bot, hides nothing. What
would do so is broken by a zero-width space and stays readable as text; forges do all of this on text in code as well or
are not agreed about it, so it is broken there too.
"""

from __future__ import annotations

import re

from perdure.text import visible

_BREAK = "\u200b"
"""A zero-width space. Those that come with a text are removed first: none of its own can hide what is looked for."""

_KEYWORD = (
    r"\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?|complet(?:e[sd]?|ing))"
)

_Breaks = tuple[tuple[re.Pattern[str], str], ...]


def _breaks(*patterns: tuple[str, str]) -> _Breaks:
    return tuple((re.compile(pattern, re.MULTILINE), broken) for pattern, broken in patterns)


_NAMES = _breaks(
    (r"[@\uff20\ufe6b](?=[\w.\\-])", r"\g<0>" "\0"),  # @ada, @org/team, and mail addresses
    (r"[#!\uff03\ufe5f](?=\\?\d)", r"\g<0>" "\0"),  # #12, o/r#12; !12 at GitLab and Forgejo
    (r"(?i)\bgh(?=\\?-\d)", r"\g<0>" "\0"),  # GH-12
    (rf"(?i)({_KEYWORD}[\s:*_~`(\[\"'-]++[A-Z][A-Z0-9_]*+)(?=-\d)", r"\1" "\0"),  # Fixes ABC-12: other trackers
    (r":(?=\\?/\\?/)", ":\0"),  # every address, and with it `closes https://…/issues/1`
    (r"(?i)\bwww(?=\\?\.)", r"\g<0>" "\0"),
    (r"^([ \t]*)(?=/\w)", r"\1" "\0"),  # /approve
)
"""References that a forge finds in any text. An escape (`#\12`) is resolved before it looks."""

_MARKUP = _breaks(
    (r"&(?=[#\w])", "&\0"),  # so is a character reference: `&#64;ada`
    (r"\](?=[(\[:])", "]\0"),  # links, images, what they refer to
    (r"\[(?=[!^])", "[\0"),  # `> [!WARNING]` in a quotation is a box of ours; footnotes
    (r"<(?=[A-Za-z/!?])", "<\0"),  # HTML, its comments, <https://…>
    (
        r"(?i)(?<![`~])([`~]{3,}+[ \t]*+)(?=mermaid|geojson|topojson|stl|math|suggestion)",
        r"\1" "\0",
    ),  # drawn, not shown
)

_BLOCK = re.compile(r"#|>|[-+*](?:\s|$)|\d+[.)]|~~~|```|\[|!|=+$|(?:[-_*]\s*){3,}$")
"""At the start of a line: what would be more than words there, in a list or a paragraph."""


def plain(text: str) -> str:
    """Neutral text where there is no Markdown, such as in a title: the same, but `<b>` stays what it is."""
    return _broken(text, _NAMES)


def neutral(text: str) -> str:
    """Several lines, their Markdown kept where it is only form: emphasis, lists, code. A quotation has to hold them."""
    return _broken(text, _MARKUP + _NAMES)


def quote(text: str) -> str:
    """Several lines of somebody else's: whatever they open (a heading, a fence) ends with the quotation."""
    return "\n".join(f"> {line}" for line in neutral(text).splitlines())


def line(text: str, limit: int = 1000) -> str:
    """One line that is one, in a list or a paragraph; at most `limit` characters of the text."""
    whole = " ".join(_visible(text).split())  # before looking at how it begins
    safe = neutral(whole if len(whole) <= limit else whole[:limit].rstrip() + "…")
    return _BREAK + safe if _BLOCK.match(safe) else safe


def code(text: str) -> str:
    """A name as a code span that it cannot end, to be copied as it is; no marker for who searches the text."""
    name = "".join(c for c in _visible(text).replace("\n", " ") if c != "`").replace("<!--", f"<{_BREAK}!--")
    return f"`{name}`" if name.strip() else ""


def span(text: str) -> str:
    """A name as a code span where forges look for references in code, too: neutral, and so not to be copied."""
    name = neutral(" ".join(text.replace("`", "").split()))
    return f"`{name}`" if name.strip() else ""


def web_address(url: str) -> bool:
    """True where this can stand in a link of ours, and lead nowhere but to the web."""
    return re.fullmatch(r"https?://[^\s()<>\"'`\\]+", url) is not None


def _broken(text: str, harmful: _Breaks) -> str:
    text = _visible(text)
    for pattern, broken in harmful:
        text = pattern.sub(broken, text)
    return text.replace("\0", _BREAK)  # only now: a break must not make a word of what comes before it


def _visible(text: str) -> str:
    """Without tabs besides: one at the beginning of a line makes it code."""
    return visible(text).replace("\t", " ")
