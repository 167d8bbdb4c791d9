"""Markdown for forges: text that a model or a stranger wrote is made harmless, and screenshots are shown where a review
names them. The texts of pull requests, comments, artifacts and webhook messages are put together of it.

Such text mentions nobody, refers to nothing, closes nothing, shows no link, image or HTML, commands no bot, hides
nothing. What would do so is broken by a zero-width space and stays readable as text. Forges do all of this in code as
well, or do not agree about it, so it is broken there too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from perdure.models.checks.report import ReviewIssue, Screenshot, Screenshots
from perdure.text import is_web_address, shorten, visible

_BREAK = "\u200b"
"""A zero-width space. Those that come with a text are removed first, so that none of its own can hide what is looked
for."""

_KEYWORD = (
    r"\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?|complet(?:e[sd]?|ing))"
)

_Replacements = tuple[tuple[re.Pattern[str], str], ...]


def _compile_replacements(*patterns: tuple[str, str]) -> _Replacements:
    """Compile pairs of a pattern, which sees every line's beginning, and what replaces it. `\\0` in the latter becomes
    the zero-width space."""
    return tuple((re.compile(pattern, re.MULTILINE), replacement) for pattern, replacement in patterns)


_REFERENCES = _compile_replacements(
    (r"[@\uff20\ufe6b](?=[\w.\\-])", r"\g<0>" "\0"),  # @ada, @org/team, and mail addresses
    (r"[#!\uff03\ufe5f](?=\\?\d)", r"\g<0>" "\0"),  # #12, o/r#12; !12 at GitLab and Forgejo
    (r"(?i)\bgh(?=\\?-\d)", r"\g<0>" "\0"),  # GH-12
    (rf"(?i)({_KEYWORD}[\s:*_~`(\[\"'-]++[A-Z][A-Z0-9_]*+)(?=-\d)", r"\1" "\0"),  # Fixes ABC-12: other trackers
    (r":(?=\\?/\\?/)", ":\0"),  # every address, and with it `closes https://…/issues/1`
    (r"(?i)\bwww(?=\\?\.)", r"\g<0>" "\0"),
    (r"^([ \t]*)(?=/\w)", r"\1" "\0"),  # /approve
)
"""References that a forge finds in any text. An escape (`#\\12`) is resolved before it looks."""

_MARKUP = _compile_replacements(
    (r"&(?=[#\w])", "&\0"),  # a character reference is resolved first, too: `&#64;ada`
    (r"\](?=[(\[:])", "]\0"),  # links, images, what they refer to
    (r"\[(?=[!^])", "[\0"),  # `> [!WARNING]` in a quotation is a box of ours; footnotes
    (r"<(?=[A-Za-z/!?])", "<\0"),  # HTML, its comments, <https://…>
    (
        r"(?i)(?<![`~])([`~]{3,}+[ \t]*+)(?=mermaid|geojson|topojson|stl|math|suggestion)",
        r"\1" "\0",
    ),  # drawn, not shown
)

_BLOCK = re.compile(r"#|>|[-+*](?:\s|$)|\d+[.)]|~~~|```|\[|!|=+$|(?:[-_*]\s*){3,}$")
"""Markup at the start of a line, in a list or a paragraph: a heading, quotation, list, fence, rule."""


def neutral_title(text: str) -> str:
    """Return a text with its references broken, for places without Markdown such as titles: `<b>` and links stay as
    they are."""
    return _break_references(text, _REFERENCES)


def neutral_text(text: str) -> str:
    """Return a text of several lines with its references, links, images and HTML broken. Emphasis, lists and code stay,
    so a quotation has to hold it."""
    return _break_references(text, _MARKUP + _REFERENCES)


def quote_block(text: str) -> str:
    """Return somebody else's text as a neutral Markdown quotation: whatever it opens (a heading, a fence) ends with the
    quotation."""
    return "\n".join(f"> {line}" for line in neutral_text(text).splitlines())


def neutral_line(text: str, limit: int = 1000) -> str:
    """Return a text as one neutral line that can begin no heading, list or fence; at most `limit` characters of
    it."""
    joined = " ".join(_visible_text(text).split())  # joined before looking at how it begins
    neutralised = neutral_text(shorten(joined, limit))
    return _BREAK + neutralised if _BLOCK.match(neutralised) else neutralised


def code_span(text: str) -> str:
    """Return a name as a code span that it cannot end, to be copied as it is; empty for a blank one. A hidden marker in
    it is broken, references are not."""
    name = "".join(c for c in _visible_text(text).replace("\n", " ") if c != "`").replace("<!--", f"<{_BREAK}!--")
    return f"`{name}`" if name.strip() else ""


def neutral_span(text: str) -> str:
    """Return a name as a neutral code span, for forges look for references in code, too; it may hold zero-width spaces
    and is not for copying. Empty for a blank one."""
    name = neutral_text(" ".join(text.replace("`", "").split()))
    return f"`{name}`" if name.strip() else ""


def _break_references(text: str, replacements: _Replacements) -> str:
    """Return a text without invisible characters, in which a zero-width space breaks everything that one of these
    patterns matches."""
    text = _visible_text(text)
    for pattern, replacement in replacements:
        text = pattern.sub(replacement, text)
    return text.replace("\0", _BREAK)  # only now: a break must not make a word of what comes before it


def _visible_text(text: str) -> str:
    """Return a text without invisible characters, and with spaces for tabs: a tab at the beginning of a line makes it
    code."""
    return visible(text).replace("\t", " ")


Addresses = Mapping[str, str]
"""A page, as `[app] pages` names it → the address of its picture."""


_BRACKETS = str.maketrans("", "", "[]")
"""Brackets are removed from names: they would end the text of a link."""


def picture_files(screenshots: Screenshots | None, read_picture: Callable[[Screenshot], bytes]) -> dict[str, bytes]:
    """Return name → PNG of every page that has a picture: page-1.png and so on. `read_picture` returns a page's bytes,
    empty when they are lost; such a page is left out."""
    pictures = _pictures_by_file(screenshots)
    files = {name: read_picture(shot) for name, shot in pictures.items()}
    return {name: data for name, data in files.items() if data}


def picture_addresses(
    screenshots: Screenshots | None, links: Mapping[str, str], *, same_directory: bool = False
) -> Addresses:
    """Return page → address of its picture, for pages that have one; a page whose picture was not published is left
    out.

    links           name of a published file → its page on the forge
    same_directory  the pictures lie in the directory of the text that shows them, and their names are the addresses
    """
    if same_directory:
        return {shot.page: name for name, shot in _pictures_by_file(screenshots).items()}
    raw = {name: f"{url}?raw=true" for name, url in links.items() if is_web_address(url) and "?" not in url}
    return {shot.page: raw[name] for name, shot in _pictures_by_file(screenshots).items() if name in raw}


def render_gallery(screenshots: Screenshots | None, addresses: Addresses) -> str:
    """Render all pages in Markdown, each with its size and note and, where it has an address, its picture; below them
    the note about all of them. Empty when no screenshots were wanted."""
    if screenshots is None:
        return ""
    pieces = [_render_picture(shot, number, addresses) for number, shot in enumerate(screenshots.pictures, start=1)]
    if screenshots.note:
        all_missing = not any(shot.artifact for shot in screenshots.pictures)
        pieces.append(("No pictures: " if all_missing else "Note: ") + neutral_line(screenshots.note))
    return "\n\n".join(pieces)


def picture_links(issue: ReviewIssue, addresses: Addresses) -> str:
    """Return links to the pictures that an issue of a review names, to stand behind it; empty without any. Pages
    without a picture are left out."""
    pages = [page for page in dict.fromkeys(issue.screenshots) if page in addresses]
    links = [f"[{neutral_span(page.translate(_BRACKETS))}]({addresses[page]})" for page in pages]
    return f" (screenshots: {', '.join(links)})" if links else ""


def _render_picture(shot: Screenshot, number: int, addresses: Addresses) -> str:
    """Render one page in Markdown: its name, size and note, and below them the picture where it has an address."""
    note = f": {neutral_line(shot.note)}" if shot.note else ""
    size = f" ({shot.width} × {shot.height})" if shot.artifact else ""
    picture = f"\n\n![Screenshot {number}]({addresses[shot.page]})" if shot.page in addresses else ""
    return f"{neutral_span(shot.page) or f'page {number}'}{size}{note}{picture}"


def _pictures_by_file(screenshots: Screenshots | None) -> dict[str, Screenshot]:
    """Return the screenshots that have a picture by file name: the second page's is page-2.png."""
    pictures = screenshots.pictures if screenshots is not None else ()
    return {f"page-{number}.png": shot for number, shot in enumerate(pictures, start=1) if shot.artifact}
