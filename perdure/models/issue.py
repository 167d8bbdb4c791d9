"""An issue of a forge, as a request: what strangers wrote, kept as data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.models.base import Recorded
from perdure.models.forges import FORGES

_URL = re.compile(
    r"(?P<repository>https?://[^/\s]+/[^/\s]+/[^/\s]+)/issues/(?P<number>[1-9][0-9]{0,9})(?:[/?#].*)?", re.IGNORECASE
)
_NUMBER = re.compile(r"#?(?P<number>[1-9][0-9]{0,9})")
_MENTION = re.compile(r"(?<![\w#/&])#([1-9][0-9]{0,9})(?![\w#]|-\w)")
_ADDRESS = re.compile(
    r"(?:(?P<scheme>https?|ssh|git)://)?(?:[^/@\s]*@)?(?P<host>[\w.-]+|\[[\w.:]+\])(?P<port>:[0-9]+)?(?P<path>[:/].+)"
)
_SHORT = re.compile(r"[\w.-]+/[\w.-]+")


class IssueComment(Recorded):
    """A person's words below an issue. `author` is a login name, `written` RFC 3339 in UTC."""

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
    """A person's name for an issue: `12`, `#12`, or its page's address, which names the repository as well."""

    number: int
    repository: str | None = None

    @classmethod
    def parse(cls, text: int | str) -> IssueName:
        """ValueError, in words, when it is no issue's name."""
        found = _NUMBER.fullmatch(str(text).strip()) or _URL.fullmatch(str(text).strip())
        if found is None:
            raise ValueError(f"{str(text)[:200]!r} names no issue: write 12, #12 or https://…/issues/12")
        return cls(int(found["number"]), found.groupdict().get("repository"))

    def belongs_to(self, repository: str) -> bool:
        """True where this can be an issue of that repository: always for a number, and where only a path is known."""
        mine, theirs = (address(name) if name else None for name in (self.repository, repository))
        if mine is None or theirs is None:
            return True
        return mine[1] == theirs[1] and (mine[0] == theirs[0] or not theirs[0])


@dataclass(frozen=True)
class IssueQuery:
    """Open issues that somebody means: all with a `label`, of a `milestone`, or found by a `search` in the forge's own
    words. `kind`: one of these three."""

    kind: str
    words: str

    @classmethod
    def parse(cls, text: str) -> IssueQuery:
        """`label:bug`, `milestone:1.0`, `search:"is slow"`. ValueError, in words, for anything else."""
        kind, colon, words = text.strip().partition(":")
        words = words.strip()
        if len(words) > 1 and words[0] == words[-1] and words[0] in "\"'":
            words = words[1:-1].strip()
        if not colon or kind not in ("label", "milestone", "search"):
            raise ValueError(f'{text[:100]!r} names no issues: write label:bug, milestone:1.0 or search:"…"')
        if not words or (kind != "search" and '"' in words) or len(words) > 200:
            raise ValueError(f"{text[:100]!r} names no {kind}")
        return cls(kind, words)


def mentioned(text: str) -> tuple[int, ...]:
    """The issues a text names as `#12`, each once, in order; `other/repo#12`, `&#39;` and `#12ab` are none."""
    return tuple(dict.fromkeys(int(number) for number in _MENTION.findall(text)))


def address(repository: str) -> tuple[str, str] | None:
    """Server and `owner/name` in lower case, the same for https, ssh and scp-like addresses; None for a local path.

    The server is empty for a bare `owner/name`. Ports do not count: of one server, https and ssh have different ones.
    """
    repository = repository.strip()
    if repository.startswith((".", "/", "~", "file:")):
        return None
    if _SHORT.fullmatch(repository):
        return "", _name(repository)
    found = _ADDRESS.fullmatch(repository)
    if found is None or (not found["scheme"] and found["path"][0] != ":"):
        return None
    host = found["host"].lower()
    host = next((host_of for forge in FORGES for ssh, host_of in forge.ssh if ssh == host), host)
    return host, _name(found["path"])


def same_repository(one: str, other: str) -> bool:
    """True where two addresses name one repository, as far as their words tell."""
    known = address(one), address(other)
    if None in known:
        return one.rstrip("/").removesuffix(".git") == other.rstrip("/").removesuffix(".git")
    return known[0] == known[1]


def _name(path: str) -> str:
    return path.strip(":/").lower().removesuffix(".git")
