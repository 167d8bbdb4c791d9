"""The repository's own pull request template, filled in.

What a maintainer would want: the headings they know, in their order; below those that ask for something Perdure knows,
that instead of the instructions; checklists as they are, since nobody has ticked them; what Perdure does not know left
as it is, with a word that it was not filled in; and what found no place of its own at the end.

The template is the repository's own text and may mention and link. It cannot hide what follows it: HTML and comments
are taken out, and a fence that it leaves open is closed.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile

from markdown_it import MarkdownIt

from perdure.adapters.git.repository import Repository

TEMPLATE_BYTES = 32 * 1024
"""Of a repository's pull request template; a longer one is no form to fill in, and is left out."""


NOT_FILLED_IN = "_Not filled in by Perdure._"

_NAME = re.compile(r"pull_request_template(\.md|\.markdown|\.txt)?", re.IGNORECASE)
_FORM = re.compile(r".+\.(md|markdown|txt)", re.IGNORECASE)

_ASKS: tuple[tuple[str, tuple[str, ...] | None], ...] = (
    (r"type of|kind of|check ?list|breaking|change ?log|release|review|additional|other|risk|deploy|migrat|note", None),
    (r"screen ?shots?|screen ?recordings?|screen ?casts?", ("screenshots",)),
    (r"issues?|related|fix(es)?|closes?|resolves?|tickets?|linked|references?", ("issue",)),
    (r"tests?|tested|testing|verif\w+|validat\w+|qa|evidence", ("evidence", "checks")),
    (r"problem", ("problem",)),
    (r"solution|approach|implementation", ("solution", "tasks")),
    (r"why|motivation|context|background|rationale|reasons?|purpose", ("request",)),
    (r"what|summary|description|describe|overview|changes?|changed|proposed|about", ("problem", "solution", "tasks")),
)
"""Words of a heading → the sections that answer, by the first pattern that one of its words fits. None: it is not
for us."""

_TAGS = re.compile(
    r"</?(?:a|b|i|s|p|br|hr|em|h[1-6]|li|ol|ul|dl|dt|dd|td|th|tr|col|kbd|sub|sup|img|div|pre|del|ins|code|span|font|"
    r"table|thead|tbody|tfoot|small|strong|center|details|summary|picture|source|blockquote)\b[^<>]*>",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HTML = re.compile(r"<(?=[A-Za-z/!?])(?!(?:https?://|mailto:)[^\s<>]+>)")
_REFERENCE = re.compile(r"#(?=\d)")
_CLOSES = re.compile(r"(?i)\b(?:clos(?:e[sd]?)|fix(?:e[sd])?|resolve[sd]?)[\s:]+(?=https?://)")
"""Examples of how to close an issue, which would close it."""
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
_TASK = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]+\[[ xX]\][ \t]")


@dataclass(frozen=True)
class Section:
    """One part of what a pull request says. `key` is what `_ASKS` calls it, `fixed` one that is never cut."""

    key: str
    heading: str
    text: str
    fixed: bool = False


@dataclass(frozen=True)
class _Part:
    """A heading of the template (level 0: what comes before the first) with what it holds, as lines."""

    level: int
    title: str
    heading: str
    content: str
    checklist: str


def read_template(repository: Repository, commit: str) -> str | None:
    """The default template as `commit` has it, at GitHub's places; None without one, or when it is too long.

    `pull_request_template.md` or `.txt` in any case, in `.github`, the root or `docs`; of a directory
    PULL_REQUEST_TEMPLATE only a single file, since several are for people to choose from. An organization's own
    `.github` repository is not looked at.
    """
    for place in (".github/", "", "docs/"):
        names = _files(repository, commit, place)
        found = [name for name, kind in names if kind == "blob" and _NAME.fullmatch(name)]
        for name, kind in names:
            if kind == "tree" and name.lower() == "pull_request_template":
                inside = [f"{name}/{file}" for file, kind in _files(repository, commit, f"{place}{name}/")]
                found += [path for path in inside if _FORM.fullmatch(path)] if len(inside) == 1 else []
        for path in found:
            data = repository.read_file(commit, place + path)
            if data and data.strip():
                return data.decode(errors="replace") if len(data) <= TEMPLATE_BYTES else None
    return None


def _files(repository: Repository, commit: str, place: str) -> list[tuple[str, str]]:
    """(name, blob or tree) in one directory; a link is neither."""
    listed = repository.git.execute("ls-tree", "-z", "--end-of-options", f"{commit}:{place.rstrip('/')}", ok=(0, 128))
    lines = [line.partition("\t") for line in (listed.names if listed.returncode == 0 else [])]
    return [(name, facts.split()[1]) for facts, _, name in lines if not facts.startswith("120000")]


def clean(template: str) -> str:
    """Without comments and HTML, with one kind of line ending, every fence closed, closing no issue."""
    text = template.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    text = re.sub(r"\A---\n.*?\n---[ \t]*(?:\n|\Z)", "", text, flags=re.DOTALL)  # front matter
    lines, done, pieces = text.split("\n"), 0, list[str]()
    for begin, end in [*_code_blocks(text), (len(lines), len(lines))]:
        pieces += [_without_tags("\n".join(lines[done:begin])), "\n".join(lines[begin:end])]
        done = end
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(piece for piece in pieces if piece.strip())).strip("\n")
    for harmful, broken in ((_HTML, "<\u200b"), (_REFERENCE, "#\u200b"), (_CLOSES, "\\g<0>\u200b")):
        text = harmful.sub(broken, text)
    return text + _closing_fence(text)


def _without_tags(text: str) -> str:
    spans: list[str] = []

    def keep(found: re.Match[str]) -> str:
        spans.append(found[0])
        return "\0"

    text = _TAGS.sub("", _CODE_SPAN.sub(keep, _COMMENT.sub("", text)))
    return re.sub("\0", lambda _: spans.pop(0), text)


@cache
def _blocks() -> MarkdownIt:
    """Reads paragraphs, headings, lists and code, and leaves what stands in their lines as it is: nothing here looks at
    it, and reading it takes the square of a line's length."""
    return MarkdownIt("commonmark").disable("inline")


def _code_blocks(text: str) -> list[tuple[int, int]]:
    """Lines [begin, end) of fences and indented code."""
    tokens = _blocks().parse(text)
    return [(token.map[0], token.map[1]) for token in tokens if token.type in ("fence", "code_block") and token.map]


def _closing_fence(text: str) -> str:
    """Return what ends a fence that swallows what comes after the text."""
    last = _blocks().parse(f"{text}\n\nx")[-1]
    return f"\n{last.markup}" if last.type == "fence" else ""


def laid_out(sections: Sequence[Section], level: int = 3) -> str:
    """Sections one after the other, each below its own heading."""
    return "\n\n".join(
        (f"{'#' * level} {section.heading}\n\n" if section.heading else "") + section.text for section in sections
    )


def arranged(form: str, sections: Sequence[Section]) -> str:
    """The sections below the headings of a template that `clean` has seen; what found no heading follows."""
    left = {section.key: section for section in sections}
    pieces: list[str] = []
    parts = list(_parts(form))
    for at, part in enumerate(parts):
        pieces += [part.heading, *_filled(part, _within(part, parts[at + 1 :]), left, {s.key for s in sections})]
    rest = list(left.values())
    if rest and not rest[0].heading:  # else it would stand below the template's last heading
        rest[0] = replace(rest[0], heading=rest[0].key.capitalize())
    levels = [part.level for part in parts if part.level]
    pieces.append(laid_out(rest, max(2, min(levels, default=3))))
    return "\n\n".join(piece.strip("\n") for piece in pieces if piece.strip())


def _within(part: _Part, following: Sequence[_Part]) -> list[_Part]:
    return list(takewhile(lambda other: other.level > part.level, following)) if part.level else []


def _filled(part: _Part, within: Sequence[_Part], left: dict[str, Section], ours: Container[str]) -> list[str]:
    """Write what stands below a heading; what is used leaves `left`. The headings `within` it take what they ask."""
    asked = _asked(part.title) if part.level else None
    if asked is None:
        known = part.checklist or within or not part.level
        return [part.content, *([] if known else [NOT_FILLED_IN])]
    theirs = {key for other in within for key in _asked(other.title) or ()}
    answers = [left.pop(key) for key in asked if key in left and key not in theirs]
    if len(answers) == 1 and not part.checklist:
        return [answers[0].text]
    if answers:  # with headings, so that it and the list above it stay two
        return [part.checklist, laid_out(answers, min(part.level + 1, 6))]
    if within:
        return [part.checklist]
    if asked in (("issue",), ("screenshots",)):
        return ["None.", part.checklist]
    return ["See above." if any(key in ours for key in asked) else NOT_FILLED_IN, part.checklist]


def _asked(title: str) -> tuple[str, ...] | None:
    words = " ".join(re.findall(r"\w+", title.lower().replace("_", " ")))
    return next((keys for pattern, keys in _ASKS if re.search(rf"\b(?:{pattern})\b", words)), None)


def _parts(form: str) -> Iterator[_Part]:
    lines, tokens = form.split("\n"), _blocks().parse(form)
    headings = [
        (token.map[0], token.map[1], int(token.tag[1]), tokens[at + 1].content)
        for at, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map
    ]
    lists = [t.map for t in tokens if t.type in ("bullet_list_open", "ordered_list_open") and t.level == 0 and t.map]
    starts = [(0, 0, 0, ""), *headings]
    for (begin, text, level, title), nextly in zip(starts, [*starts[1:], (len(lines), 0, 0, "")], strict=True):
        end = nextly[0]
        ticks = [lines[a:b] for a, b in lists if text <= a < end and any(_TASK.match(line) for line in lines[a:b])]
        checklist = "\n\n".join("\n".join(found).strip("\n") for found in ticks)
        yield _Part(level, title, "\n".join(lines[begin:text]), "\n".join(lines[text:end]).strip("\n"), checklist)
