"""The issue that a delivery is about, as it goes into its terms: fetched once, cut to size, never fetched again."""

from __future__ import annotations

from perdure.adapters.forges.base import Forge, HostedForge
from perdure.models.errors import InvalidRequest
from perdure.models.forges import issue_sources
from perdure.models.issue import ForgeIssue, IssueComment, IssueName
from perdure.text import one_line

ISSUE_BYTES = 64 * 1024
"""Of an issue's text and comments together, as much as a request may have: some 20,000 tokens in every step."""

ISSUE_COMMENT_BYTES = 16 * 1024
"""Of one comment: a pasted log must not push out what people said."""

ISSUE_TITLE_CHARS = 300
"""Of an issue's title, which goes into history: GitHub allows 256, others more."""


_COMMENT_OVERHEAD = 100
"""Bytes that are counted for author and time of a comment."""

_NAME_CHARS = 100
_LABELS = 100
_REMARK_CHARS = 200


def fetch_issue(forge: Forge | None, issue_name: int | str, url: str) -> ForgeIssue:
    """Fetch the open issue of the repository at `url` from its forge, bounded in size.

    Raises InvalidRequest where the issue is of another repository or this one has no issues, ForgeRefused,
    ForgeUnavailable.
    """
    name = IssueName.parse(issue_name)
    if not name.may_belong_to(url):
        raise InvalidRequest(
            f"issue: {name.repository}/issues/{name.number} is not an issue of this repository",
            where=url,
            fix="name an issue of the repository, or the issue's repository",
        )
    if not isinstance(forge, HostedForge):
        raise InvalidRequest(
            "issue: this repository has no issues Perdure can read",
            where=url,
            fix=f"put its text into `request`; issues are read on {issue_sources()}",
        )
    return bound_issue(forge.fetch_issue(name.number))


def bound_issue(issue: ForgeIssue) -> ForgeIssue:
    """Return the issue with at most ISSUE_BYTES of text and comments, and a short title, author and labels.

    Long texts lose their middle; then the oldest comments are left out, and a remark by nobody says how many. A short
    first comment by nobody is such a remark of the forge, and stays.
    """
    text = _cut_middle(issue.text, ISSUE_BYTES)
    remaining = ISSUE_BYTES - len(text.encode())
    first = issue.comments[:1]
    remarks = [candidate for candidate in first if not candidate.author and len(candidate.text) <= _REMARK_CHARS]
    comments = [_bound_comment(candidate) for candidate in issue.comments[len(remarks) :]]
    kept: list[IssueComment] = []
    for comment in reversed(comments):
        remaining -= len(comment.text.encode()) + _COMMENT_OVERHEAD
        if remaining < 0:
            break
        kept.insert(0, comment)
    if dropped := len(comments) - len(kept):
        omission = f"{dropped} older comment{'s are' if dropped > 1 else ' is'} left out here: the issue is long"
        remarks.append(IssueComment(author="", text=omission))
    return issue.model_copy(
        update={
            "title": one_line(_without_surrogates(issue.title), ISSUE_TITLE_CHARS),
            "text": text,
            "author": one_line(_without_surrogates(issue.author), _NAME_CHARS),
            "labels": tuple(one_line(_without_surrogates(label), _NAME_CHARS) for label in issue.labels[:_LABELS]),
            "comments": (*remarks, *kept),
        }
    )


def _bound_comment(comment: IssueComment) -> IssueComment:
    """Return a comment of at most ISSUE_COMMENT_BYTES, its author on one line."""
    author = one_line(_without_surrogates(comment.author), _NAME_CHARS)
    return comment.model_copy(update={"author": author, "text": _cut_middle(comment.text, ISSUE_COMMENT_BYTES)})


def _cut_middle(text: str, limit: int) -> str:
    """Return the text with at most `limit` bytes: a third from its beginning, the rest from its end, between them a
    line that says how much is left out."""
    encoded = _without_surrogates(text).encode()
    if len(encoded) <= limit:
        return encoded.decode()
    gap = f"\n[… {len(encoded) - limit} bytes left out …]\n"
    kept_bytes = limit - len(gap.encode())
    head, tail = encoded[: kept_bytes // 3], encoded[len(encoded) - (kept_bytes - kept_bytes // 3) :]
    return head.decode(errors="ignore") + gap + tail.decode(errors="ignore")


def _without_surrogates(text: str) -> str:
    """Return the text with `?` for halves of characters (lone surrogates, which JSON can carry and UTF-8 cannot)."""
    return text.encode(errors="replace").decode()
