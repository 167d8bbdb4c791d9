"""The issue that a delivery is about, as it goes into its terms: read once, cut to size, never read again."""

from __future__ import annotations

from perdure.adapters.forges.base import Forge, HostedForge
from perdure.models.errors import InvalidRequest
from perdure.models.forges import readable_issues
from perdure.models.issue import Issue, IssueComment, IssueName
from perdure.text import one_line

ISSUE_BYTES = 64 * 1024
"""Of an issue's text and comments together, as much as a request may have: some 20,000 tokens in every step."""

ISSUE_COMMENT_BYTES = 16 * 1024
"""Of one comment: a pasted log must not push out what people said."""

ISSUE_TITLE_CHARS = 300
"""Of an issue's title, which goes into history: GitHub allows 256, others more."""


_AROUND = 100
"""Bytes for author and time of a comment."""

_NAME_CHARS = 100
_LABELS = 100
_WORD_CHARS = 200


def read_issue(forge: Forge | None, named: int | str, url: str) -> Issue:
    """The open issue of the repository at `url`, bounded. Raises InvalidRequest, ForgeRefused, ForgeUnavailable."""
    name = IssueName.parse(named)
    if not name.belongs_to(url):
        raise InvalidRequest(
            f"issue: {name.repository}/issues/{name.number} is not an issue of this repository",
            where=url,
            fix="name an issue of the repository, or the issue's repository",
        )
    if not isinstance(forge, HostedForge):
        raise InvalidRequest(
            "issue: this repository has no issues Perdure can read",
            where=url,
            fix=f"put its text into `request`; issues are read on {readable_issues()}",
        )
    return bounded(forge.issue(name.number))


def bounded(issue: Issue) -> Issue:
    """At most 64 KiB of text and comments: long ones lose their middle, then the oldest comments go, with a word.

    A short first comment by nobody is such a word already, the forge's, and stays.
    """
    text = _cut(issue.text, ISSUE_BYTES)
    left = ISSUE_BYTES - len(text.encode())
    first = issue.comments[:1]
    words = [c for c in first if not c.author and len(c.text) <= _WORD_CHARS]
    said = [_short(c) for c in issue.comments[len(words) :]]
    kept: list[IssueComment] = []
    for comment in reversed(said):
        left -= len(comment.text.encode()) + _AROUND
        if left < 0:
            break
        kept.insert(0, comment)
    if dropped := len(said) - len(kept):
        count = f"{dropped} older comment{'s are' if dropped > 1 else ' is'} left out here: the issue is long"
        words.append(IssueComment(author="", text=count))
    return issue.model_copy(
        update={
            "title": one_line(_whole(issue.title), ISSUE_TITLE_CHARS),
            "text": text,
            "author": one_line(_whole(issue.author), _NAME_CHARS),
            "labels": tuple(one_line(_whole(label), _NAME_CHARS) for label in issue.labels[:_LABELS]),
            "comments": (*words, *kept),
        }
    )


def _short(comment: IssueComment) -> IssueComment:
    author = one_line(_whole(comment.author), _NAME_CHARS)
    return comment.model_copy(update={"author": author, "text": _cut(comment.text, ISSUE_COMMENT_BYTES)})


def _cut(text: str, limit: int) -> str:
    """At most `limit` bytes: a third from the beginning, the rest from the end, the gap named."""
    packed = _whole(text).encode()
    if len(packed) <= limit:
        return packed.decode()
    gap = f"\n[… {len(packed) - limit} bytes left out …]\n"
    room = limit - len(gap.encode())
    head, tail = packed[: room // 3], packed[len(packed) - (room - room // 3) :]
    return head.decode(errors="ignore") + gap + tail.decode(errors="ignore")


def _whole(text: str) -> str:
    """Without halves of characters (lone surrogates, which JSON can carry and UTF-8 cannot)."""
    return text.encode(errors="replace").decode()
