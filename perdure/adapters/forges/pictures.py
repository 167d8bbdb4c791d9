"""Screenshots in Markdown: published beside plan and review, shown in the pull request and where reviews name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.adapters.forges.neutral import line, span, web_address
from perdure.models.report import ReviewIssue, Screenshot, Screenshots

Addresses = Mapping[str, str]
"""Page, as `[app] pages` names it → where its picture is."""


_BRACKETS = str.maketrans("", "", "[]")
"""They would end the text of a link."""


def picture_files(screenshots: Screenshots | None, read: Callable[[Screenshot], bytes]) -> dict[str, bytes]:
    """Name → PNG of every page that has one. `read` gives a page's, empty when it is lost."""
    named = _named(screenshots)
    found = {name: read(shot) for name, shot in named.items()}
    return {name: data for name, data in found.items() if data}


def picture_addresses(screenshots: Screenshots | None, links: Mapping[str, str], *, beside: bool = False) -> Addresses:
    """Return the address of each page's picture. `links`: name of a published file → its page on the forge.

    beside  the pictures lie in the same directory as the text that shows them
    """
    if beside:
        return {shot.page: name for name, shot in _named(screenshots).items()}
    raw = {name: f"{url}?raw=true" for name, url in links.items() if web_address(url) and "?" not in url}
    return {shot.page: raw[name] for name, shot in _named(screenshots).items() if name in raw}


def gallery(screenshots: Screenshots | None, addresses: Addresses) -> str:
    """All pages, each with what is said about it; empty when no screenshots were wanted."""
    if screenshots is None:
        return ""
    pieces = [_shown(shot, number, addresses) for number, shot in enumerate(screenshots.pictures, start=1)]
    if screenshots.note:
        none = not any(shot.artifact for shot in screenshots.pictures)
        pieces.append(("No pictures: " if none else "Note: ") + line(screenshots.note))
    return "\n\n".join(pieces)


def pictures_of(issue: ReviewIssue, addresses: Addresses) -> str:
    """Links to the pictures an issue names, to stand behind it; pages nobody took are left out."""
    known = [page for page in dict.fromkeys(issue.screenshots) if page in addresses]
    shown = [f"[{span(page.translate(_BRACKETS))}]({addresses[page]})" for page in known]
    return f" (screenshots: {', '.join(shown)})" if shown else ""


def _shown(shot: Screenshot, number: int, addresses: Addresses) -> str:
    said = f": {line(shot.note)}" if shot.note else ""
    size = f" ({shot.width} × {shot.height})" if shot.artifact else ""
    picture = f"\n\n![Screenshot {number}]({addresses[shot.page]})" if shot.page in addresses else ""
    return f"{span(shot.page) or f'page {number}'}{size}{said}{picture}"


def _named(screenshots: Screenshots | None) -> dict[str, Screenshot]:
    pictures = screenshots.pictures if screenshots is not None else ()
    return {f"page-{number}.png": shot for number, shot in enumerate(pictures, start=1) if shot.artifact}
