"""HTML of the twin's pages: one stylesheet, Markdown without HTML of its own, no scripts."""

from __future__ import annotations

import re
from functools import cache
from html import escape

from markdown_it import MarkdownIt

__all__ = ["POLICY", "escape", "label", "markdown", "state", "whole"]

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Nothing that somebody writes into an issue can load or run anything."""

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8881; --plus: #1a7f37; --minus: #cf222e; --link: #0969da }
@media (prefers-color-scheme: dark) { :root { --plus: #3fb950; --minus: #f85149; --link: #4493f8 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere }
a { color: var(--link) }
nav { border-bottom: 1px solid var(--line); padding-bottom: .5rem }
h1 { font-size: 1.6rem; line-height: 1.25 } h1 small { font-weight: 400; opacity: .65 }
h2 { font-size: 1.15rem } ul { padding-left: 1.25rem }
article { border: 1px solid var(--line); border-radius: 6px; margin: 1rem 0; padding: 0 1rem }
article header { background: var(--soft); border-bottom: 1px solid var(--line); margin: 0 -1rem; padding: .4rem 1rem }
time { opacity: .65 } code, pre { font: .875em/1.45 ui-monospace, monospace }
pre { background: var(--soft); border-radius: 6px; overflow-x: auto; padding: .75rem }
code { background: var(--soft); border-radius: 4px; padding: .1em .3em } pre code { background: none; padding: 0 }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: left }
.state { border-radius: 2em; color: #fff; font-weight: 600; padding: .15rem .7rem }
.open { background: #1a7f37 } .closed { background: #cf222e }
.merged { background: #8250df } .draft { background: #59636e }
.label { border: 1px solid var(--line); border-radius: 2em; font-size: .8rem; margin-left: .3rem; padding: .1rem .5rem }
.plus { color: var(--plus) } .minus { color: var(--minus) } .hunk, .file { opacity: .65 }
"""
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"(?ms)^(```+|~~~+)[^\n]*\n.*?^\1[ \t]*$")
_NUMBER = re.compile(r"(?<![\w&/#])#(\d+)\b(?![^<]*</(?:a|code|pre)>)")


def whole(title: str, content: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>{content}</main></body></html>"
    )


def state(word: str, kind: str) -> str:
    return f'<span class="state {kind}">{word}</span>'


def label(name: str) -> str:
    return f'<span class="label">{escape(name)}</span>'


def markdown(text: str, repository: str) -> str:
    """What somebody has written, as GitHub shows it: comments hidden, `#12` a link; HTML stays text."""
    rendered = _markdown().render(_without_comments(text))
    return _NUMBER.sub(rf'<a href="/{repository}/issues/\1">#\1</a>', rendered)


def _without_comments(text: str) -> str:
    """Comments inside code are code."""
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_COMMENT.sub("", text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _COMMENT.sub("", text[end:])])


@cache
def _markdown() -> MarkdownIt:
    """HTML stays text, and addresses that run something are no links."""
    return MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
