"""Screenshots in Markdown: published beside plan and review, shown in the pull request and where reviews name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.adapters.forges.neutral import is_web_address, neutral_line, neutral_span
from perdure.models.report import ReviewIssue, Screenshot, Screenshots

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
    """Return the address of each page's picture. `links`: name of a published file → its page on the forge.

    same_directory  the pictures lie in the directory of the text that shows them, and their names are the addresses
    """
    if same_directory:
        return {shot.page: name for name, shot in _pictures_by_file(screenshots).items()}
    raw = {name: f"{url}?raw=true" for name, url in links.items() if is_web_address(url) and "?" not in url}
    return {shot.page: raw[name] for name, shot in _pictures_by_file(screenshots).items() if name in raw}


def render_gallery(screenshots: Screenshots | None, addresses: Addresses) -> str:
    """Render all pages in Markdown, each with its picture, size and note; empty when no screenshots were wanted."""
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
