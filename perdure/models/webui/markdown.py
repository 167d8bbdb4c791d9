"""Text that other people or a model wrote, put into Markdown that the Web UI renders, so that it stays plain text.

Its renderer joins three dialects (tables, formulas between dollar signs, definition lists, addresses made links, quotes
and fractions made pretty), and accepts raw HTML: whatever could begin any of that is escaped. It leaves code alone, so
code is where JSON stands that people copy: not in a table, where a bar in it would end the cell.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote, urlsplit

from perdure.text import one_line, visible

_MARKUP = re.compile(r"[\\`*_{}\[\]()#+!:|&<>~^$]|^[-.]|(?<=[-.\d])[-.]|[-.](?=[-.])")
_BACKTICK = "\\u0060"
"""A backtick in JSON; the character itself would end the code."""
_FRACTION = re.compile(r"(?<=\d)/(?=\d)")


def escape_line(text: str, limit: int) -> str:
    """Return a text on one line without markup, at most `limit` characters and "…" where there were more; safe in a
    table, too."""
    line = one_line(text, len(text))
    safe = _FRACTION.sub("&#47;", _MARKUP.sub(lambda match: "\\" + match[0], line[:limit]))
    return safe + ("…" if len(line) > limit else "")


def code_span(name: str, limit: int = 300) -> str:
    """Return a name as a code span that it cannot end: Git allows a backtick in a branch."""
    cleaned = re.sub(r"[`|\n\t]", "", visible(name)).strip()
    return f"`{cleaned[:limit]}{'…' if len(cleaned) > limit else ''}`" if cleaned else "``"


def page_link(page: str, kind: str, id: str) -> list[str]:
    """Return the line that links to a delivery or backlog on Perdure's page; no line where no page is known.

    kind  `deliveries` or `backlogs`
    """
    if not page or any(mark in page for mark in " ()<>[]`|\\") or not page.startswith(("http://", "https://")):
        return []
    suffix = " (on its host alone)" if urlsplit(page).hostname in ("127.0.0.1", "localhost", "::1") else ""
    return [f"- [on the page]({page}/{kind}/{quote(id, safe='')}){suffix}"]


def copyable_lines(json_text: str) -> list[str]:
    """Return JSON as a paragraph of code, in Markdown lines: it wraps where it is narrow, and three clicks select
    it."""
    return ["", f"`{json_text.replace('`', _BACKTICK)}`", ""]


def compact_json(value: dict[str, object]) -> str:
    """Return JSON on one line, readable in any language; all non-ASCII is escaped where a character could not be seen
    or would mislead."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
