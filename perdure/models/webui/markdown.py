"""Words that other people or a model wrote, put into Markdown that the Web UI renders, so that they stay words.

Its renderer joins three dialects (tables, formulas between dollar signs, definition lists, addresses made links, quotes
and fractions made pretty), and takes raw HTML: whatever could begin any of that is escaped. Code it leaves alone, so
that is where JSON stands that people copy: not in a table, where a bar in it would end the cell.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote, urlsplit

from perdure.text import one_line, visible

_MARKUP = re.compile(r"[\\`*_{}\[\]()#+!:|&<>~^$]|^[-.]|(?<=[-.\d])[-.]|[-.](?=[-.])")
_BACKTICK = "\\u0060"
"""In JSON; the character itself would end the code."""
_FRACTION = re.compile(r"(?<=\d)/(?=\d)")


def cell(text: str, limit: int) -> str:
    """One line of at most `limit` characters as they are, and "…" where there were more; no markup, also in a table."""
    line = one_line(text, len(text))
    safe = _FRACTION.sub("&#47;", _MARKUP.sub(lambda found: "\\" + found[0], line[:limit]))
    return safe + ("…" if len(line) > limit else "")


def code(name: str, limit: int = 300) -> str:
    """A name as a code span, one it cannot end: Git allows a backtick in a branch."""
    kept = re.sub(r"[`|\n\t]", "", visible(name)).strip()
    return f"`{kept[:limit]}{'…' if len(kept) > limit else ''}`" if kept else "``"


def on_page(page: str, kind: str, id: str) -> list[str]:
    """The line that leads to a delivery or backlog on Perdure's page; none where no page is known."""
    if not page or any(mark in page for mark in " ()<>[]`|\\") or not page.startswith(("http://", "https://")):
        return []
    alone = " (on its host alone)" if urlsplit(page).hostname in ("127.0.0.1", "localhost", "::1") else ""
    return [f"- [on the page]({page}/{kind}/{quote(id, safe='')}){alone}"]


def copied(said: str) -> list[str]:
    """JSON as a paragraph of its own, in Markdown lines: wrapped where it is narrow, and selected by three clicks."""
    return ["", f"`{said.replace('`', _BACKTICK)}`", ""]


def compact(value: dict[str, object]) -> str:
    """JSON on one line, readable in any language; what could not be seen or would mislead is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
