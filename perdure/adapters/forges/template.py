"""The repository's own pull request template: read from a commit by `activities.forge`, made harmless, and filled in
with the sections of `forges.body`.

It comes out as a maintainer would want it: the headings they know, in their order; below those that ask for something
Perdure knows, that instead of the instructions; checklists as they are, since nobody has ticked them; what Perdure does
not know unchanged, with a note that it was not filled in; and at the end what has no heading of its own.

The template is the repository's own text and may mention and link. It cannot hide what follows it: HTML and comments
are removed, and a fence that it leaves open is closed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile

from markdown_it import MarkdownIt

from perdure.adapters.git.repository import Repository, ask_about_objects

TEMPLATE_BYTES = 32 * 1024
"""The most bytes of a repository's pull request template; a longer one is no form to fill in, and is left out."""


NOT_FILLED_IN = "_Not filled in by Perdure._"

_NAME = re.compile(r"pull_request_template(\.md|\.markdown|\.txt)?", re.IGNORECASE)
_FORM = re.compile(r".+\.(md|markdown|txt)", re.IGNORECASE)

_HEADING_SECTIONS: tuple[tuple[str, tuple[str, ...] | None], ...] = (
    (r"type of|kind of|check ?list|breaking|change ?log|release|review|additional|other|risk|deploy|migrat|note", None),
    (r"screen ?shots?|screen ?recordings?|screen ?casts?", ("screenshots",)),
    (r"issues?|related|fix(es)?|closes?|resolves?|tickets?|linked|references?", ("issue",)),
    (r"tests?|tested|testing|verif\w+|validat\w+|qa|evidence", ("evidence", "checks")),
    (r"problem", ("problem",)),
    (r"solution|approach|implementation", ("solution", "tasks")),
    (r"why|motivation|context|background|rationale|reasons?|purpose", ("request",)),
    (r"what|summary|description|describe|overview|changes?|changed|proposed|about", ("problem", "solution", "tasks")),
)
"""A heading → the sections that answer it, by the first pattern that one of its words matches. None: it is not for
us."""

_TAGS = re.compile(
    r"</?(?:a|b|i|s|p|br|hr|em|h[1-6]|li|ol|ul|dl|dt|dd|td|th|tr|col|kbd|sub|sup|img|div|pre|del|ins|code|span|font|"
    r"table|thead|tbody|tfoot|small|strong|center|details|summary|picture|source|blockquote)\b[^<>]*>",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HTML = re.compile(r"<(?=[A-Za-z/!?])(?!(?:https?://|mailto:)[^\s<>]+>)")
_REFERENCE = re.compile(r"#(?=\d)")
_CLOSING_EXAMPLE = re.compile(r"(?i)\b(?:clos(?:e[sd]?)|fix(?:e[sd])?|resolve[sd]?)[\s:]+(?=https?://)")
"""Examples of how to close an issue, which would close it."""
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
_TASK = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]+\[[ xX]\][ \t]")


@dataclass(frozen=True)
class Section:
    """A part of a pull request's text. `key`: its name in _HEADING_SECTIONS; `fixed`: it is never cut."""

    key: str
    heading: str
    text: str
    fixed: bool = False


@dataclass(frozen=True)
class _TemplatePart:
    """A heading of the template with what stands below it, as lines. `level` 0, without a heading: what comes before
    the first one."""

    level: int
    title: str
    heading: str
    content: str
    checklist: str


def read_template(repository: Repository, commit: str) -> str | None:
    """Read the repository's default template as `commit` has it; None without one, or when the first one that is not
    empty is longer than TEMPLATE_BYTES.

    It is `pull_request_template.md` or `.txt` in any case, in `.github`, the root or `docs`, as GitHub looks for it. Of
    a directory PULL_REQUEST_TEMPLATE only a single file is taken, since several are for people to choose from. An
    organization's own `.github` repository is not looked at.
    """
    for directory in (".github/", "", "docs/"):
        names = _list_directory(repository, commit, directory)
        candidates = [name for name, kind in names if kind == "blob" and _NAME.fullmatch(name)]
        for name, kind in names:
            if kind == "tree" and name.lower() == "pull_request_template":
                inside = [f"{name}/{file}" for file, kind in _list_directory(repository, commit, f"{directory}{name}/")]
                candidates += [path for path in inside if _FORM.fullmatch(path)] if len(inside) == 1 else []
        for path in candidates:
            data = repository.read_file(commit, directory + path)
            if data and data.strip():
                return data.decode(errors="replace") if len(data) <= TEMPLATE_BYTES else None
    return None


def _list_directory(repository: Repository, commit: str, directory: str) -> list[tuple[str, str]]:
    """List the entries of a directory at `commit` as (name, blob or tree); symbolic links are left out. Empty when
    there is no such directory."""
    objects = [f"{commit}:{directory.rstrip('/')}"]
    listed = ask_about_objects(repository.git, "ls-tree", "-z", "--end-of-options", objects=objects, missing_ok=True)
    lines = [os.fsdecode(line).partition("\t") for line in (listed or b"").split(b"\0")[:-1]]
    return [(name, facts.split()[1]) for facts, _, name in lines if not facts.startswith("120000")]


def clean_template(template: str) -> str:
    """Return the template without front matter, comments and HTML, with plain line ends, every fence closed, and issue
    numbers and examples of closing keywords broken by a zero-width space."""
    text = template.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    text = re.sub(r"\A---\n.*?\n---[ \t]*(?:\n|\Z)", "", text, flags=re.DOTALL)  # front matter
    lines, position, pieces = text.split("\n"), 0, list[str]()
    for begin, end in [*_code_block_ranges(text), (len(lines), len(lines))]:
        pieces += [_remove_tags("\n".join(lines[position:begin])), "\n".join(lines[begin:end])]
        position = end
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(piece for piece in pieces if piece.strip())).strip("\n")
    for harmful, replacement in ((_HTML, "<\u200b"), (_REFERENCE, "#\u200b"), (_CLOSING_EXAMPLE, "\\g<0>\u200b")):
        text = harmful.sub(replacement, text)
    return text + _closing_fence(text)


def _remove_tags(text: str) -> str:
    """Remove comments and HTML tags from a text that holds no code block; code spans stay as they are."""
    spans: list[str] = []

    def save_span(match: re.Match[str]) -> str:
        spans.append(match[0])
        return "\0"

    text = _TAGS.sub("", _CODE_SPAN.sub(save_span, _COMMENT.sub("", text)))
    return re.sub("\0", lambda _: spans.pop(0), text)


@cache
def _block_parser() -> MarkdownIt:
    """Return the parser of paragraphs, headings, lists and code, made once. It leaves the text of their lines unparsed:
    nothing here looks at it, and parsing takes the square of a line's length."""
    return MarkdownIt("commonmark").disable("inline")


def _code_block_ranges(text: str) -> list[tuple[int, int]]:
    """Return the ranges of lines [begin, end) that are fences or indented code."""
    tokens = _block_parser().parse(text)
    return [(token.map[0], token.map[1]) for token in tokens if token.type in ("fence", "code_block") and token.map]


def _closing_fence(text: str) -> str:
    """Return the line that closes a fence left open at the end of the text, with a newline before it; empty when none
    is open."""
    last = _block_parser().parse(f"{text}\n\nx")[-1]
    return f"\n{last.markup}" if last.type == "fence" else ""


def render_sections(sections: Sequence[Section], level: int = 3) -> str:
    """Render sections one after the other, each below its own heading of this level; those without a heading as text
    alone."""
    return "\n\n".join(
        (f"{'#' * level} {section.heading}\n\n" if section.heading else "") + section.text for section in sections
    )


def fill_template(form: str, sections: Sequence[Section]) -> str:
    """Return a cleaned template (`clean_template`) with each section below the first heading that asks for it, in place
    of the instructions there. Checklists stay; sections that no heading asks for follow at the end."""
    remaining = {section.key: section for section in sections}
    pieces: list[str] = []
    parts = list(_parse_parts(form))
    for index, part in enumerate(parts):
        pieces += [
            part.heading,
            *_fill_part(part, _nested_parts(part, parts[index + 1 :]), remaining, {s.key for s in sections}),
        ]
    unplaced = list(remaining.values())
    if unplaced and not unplaced[0].heading:  # else it would stand below the template's last heading
        unplaced[0] = replace(unplaced[0], heading=unplaced[0].key.capitalize())
    levels = [part.level for part in parts if part.level]
    pieces.append(render_sections(unplaced, max(2, min(levels, default=3))))
    return "\n\n".join(piece.strip("\n") for piece in pieces if piece.strip())


def _nested_parts(part: _TemplatePart, following: Sequence[_TemplatePart]) -> list[_TemplatePart]:
    """Return the parts that stand below a heading as its sub-headings: those that follow it until a heading of its
    level or above."""
    return list(takewhile(lambda other: other.level > part.level, following)) if part.level else []


def _fill_part(
    part: _TemplatePart, nested: Sequence[_TemplatePart], remaining: dict[str, Section], all_keys: Container[str]
) -> list[str]:
    """Return the texts that stand below a heading of the template, and remove the sections used from `remaining`.
    Sections that a heading in `nested` asks for are left to it. `all_keys`: of all sections, used ones too.

    A part that asks for nothing that Perdure knows keeps its text, with a note that it was not filled in unless it has
    a checklist, sub-headings or no heading. One that asks for something gets the sections that answer it, else only its
    checklist where it has sub-headings, `None.` for issues and screenshots, `See above.` where an answer was used
    before, or that note; its own checklist stays, any other text of it goes.
    """
    keys = _section_keys(part.title) if part.level else None
    if keys is None:
        needs_no_note = part.checklist or nested or not part.level
        return [part.content, *([] if needs_no_note else [NOT_FILLED_IN])]
    nested_keys = {key for other in nested for key in _section_keys(other.title) or ()}
    answers = [remaining.pop(key) for key in keys if key in remaining and key not in nested_keys]
    if len(answers) == 1 and not part.checklist:
        return [answers[0].text]
    if answers:  # with headings, so that it and the list above it stay two
        return [part.checklist, render_sections(answers, min(part.level + 1, 6))]
    if nested:
        return [part.checklist]
    if keys in (("issue",), ("screenshots",)):
        return ["None.", part.checklist]
    return ["See above." if any(key in all_keys for key in keys) else NOT_FILLED_IN, part.checklist]


def _section_keys(title: str) -> tuple[str, ...] | None:
    """Return the keys of the sections that answer a heading, by its words; None when it asks for nothing that Perdure
    knows."""
    text = " ".join(re.findall(r"\w+", title.lower().replace("_", " ")))
    return next((keys for pattern, keys in _HEADING_SECTIONS if re.search(rf"\b(?:{pattern})\b", text)), None)


def _parse_parts(form: str) -> Iterator[_TemplatePart]:
    """Split a template into its headings, each with the lines below it, and yield them in order; first what comes
    before any heading."""
    lines, tokens = form.split("\n"), _block_parser().parse(form)
    headings = [
        (token.map[0], token.map[1], int(token.tag[1]), tokens[index + 1].content)
        for index, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map
    ]
    lists = [t.map for t in tokens if t.type in ("bullet_list_open", "ordered_list_open") and t.level == 0 and t.map]
    starts = [(0, 0, 0, ""), *headings]
    for (begin, content_start, level, title), following in zip(
        starts, [*starts[1:], (len(lines), 0, 0, "")], strict=True
    ):
        end = following[0]
        checklists = [
            lines[a:b] for a, b in lists if content_start <= a < end and any(_TASK.match(line) for line in lines[a:b])
        ]
        checklist = "\n\n".join("\n".join(checklist_lines).strip("\n") for checklist_lines in checklists)
        yield _TemplatePart(
            level,
            title,
            "\n".join(lines[begin:content_start]),
            "\n".join(lines[content_start:end]).strip("\n"),
            checklist,
        )
