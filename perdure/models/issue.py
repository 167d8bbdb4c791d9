"""An issue of a forge, as a request: what strangers wrote, kept as data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.models.base import Recorded

_URL = re.compile(r"(?P<repository>https?://[^/\s]+/[^/\s]+/[^/\s]+)/issues/(?P<number>[1-9]\d*)(?:[/?#].*)?")
_NUMBER = re.compile(r"#?(?P<number>[1-9]\d{0,9})")


class IssueComment(Recorded):
    """What somebody said below an issue. `author` is a login name, `written` RFC 3339 in UTC."""

    author: str
    text: str
    written: str = ""


class Issue(Recorded):
    """An open issue. `url` is its web page, `labels` are names, oldest comment first."""

    number: int
    title: str
    url: str
    text: str = ""
    author: str = ""
    labels: tuple[str, ...] = ()
    comments: tuple[IssueComment, ...] = ()


@dataclass(frozen=True)
class IssueName:
    """How a person names an issue: `12`, `#12`, or its page's address, which names the repository as well."""

    number: int
    repository: str | None = None

    @classmethod
    def parse(cls, text: int | str) -> IssueName:
        """ValueError, in words, when it is no issue's name."""
        found = _NUMBER.fullmatch(str(text).strip()) or _URL.fullmatch(str(text).strip())
        if found is None:
            raise ValueError(f"{str(text)[:200]!r} names no issue: write 12, #12 or https://…/issues/12")
        return cls(int(found["number"]), found.groupdict().get("repository"))
