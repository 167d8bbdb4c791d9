"""An issue of a forge as a delivery's request: what strangers wrote, kept as data. Also how people name issues and
select them (`IssueName`, `IssueQuery`), and whether two addresses mean one repository."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.models.base import HistoryModel
from perdure.models.forges import FORGES
from perdure.text import shorten

_URL = re.compile(
    r"(?P<repository>https?://[^/\s]+/[^/\s]+/[^/\s]+)/issues/(?P<number>[1-9][0-9]{0,9})(?:[/?#].*)?", re.IGNORECASE
)
_NUMBER = re.compile(r"#?(?P<number>[1-9][0-9]{0,9})")
_MENTION = re.compile(r"(?<![\w#/&])#([1-9][0-9]{0,9})(?![\w#]|-\w)")
_ADDRESS = re.compile(
    r"(?:(?P<scheme>https?|ssh|git)://)?(?:[^/@\s]*@)?(?P<host>[\w.-]+|\[[\w.:]+\])(?P<port>:[0-9]+)?(?P<path>[:/].+)"
)
_SHORT = re.compile(r"[\w.-]+/[\w.-]+")


class IssueComment(HistoryModel):
    """A person's comment below an issue. `author` is a login name, `written_at` RFC 3339 in UTC."""

    author: str
    text: str
    written_at: str = ""


class ForgeIssue(HistoryModel):
    """An open issue of a forge. `url` is its web page, `labels` are names, `comments` the oldest first."""

    number: int
    title: str
    url: str
    text: str = ""
    author: str = ""
    labels: tuple[str, ...] = ()
    comments: tuple[IssueComment, ...] = ()


class ReadIssueInput(HistoryModel):
    """Ask for an open issue: `issue` is `12`, `#12` or its page's address, `repository` where it is an issue of."""

    repository: str
    issue: str


@dataclass(frozen=True)
class IssueName:
    """A person's name for an issue: `12`, `#12`, or its page's address, which names the repository as well."""

    number: int
    repository: str | None = None

    @classmethod
    def parse(cls, text: str) -> IssueName:
        """Return the issue that a text names: `12`, `#12` or its page's address; only the address gives a repository.
        Raises ValueError, with a message for people, for any other text."""
        match = _NUMBER.fullmatch(text.strip()) or _URL.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{shorten(text, 200)!r} names no issue: write 12, #12 or https://…/issues/12")
        return cls(int(match["number"]), match.groupdict().get("repository"))

    def may_belong_to(self, repository: str) -> bool:
        """Return True when this can be an issue of that repository: the two addresses name the same one, or nothing is
        known to the contrary, for a bare number or when either is a local path.

        When only `owner/name` is known of the repository, its server does not count.
        """
        own, other = (parse_repository_address(name) if name else None for name in (self.repository, repository))
        if own is None or other is None:
            return True
        return own[1] == other[1] and (own[0] == other[0] or not other[0])


@dataclass(frozen=True)
class IssueQuery:
    """A selector of open issues: all with a `label`, of a `milestone`, or that a `search` in the forge's own syntax
    finds.

    kind   `label`, `milestone` or `search`; value: the label, the milestone or the search text
    """

    kind: str
    value: str

    @classmethod
    def parse(cls, text: str) -> IssueQuery:
        """Return the selector for `label:bug`, `milestone:1.0` or `search:"is slow"`; quotation marks around the value
        are removed. Raises ValueError, with a message for people, for any other text, an empty value, one of more than
        200 characters, or a label or milestone with a quotation mark inside."""
        kind, colon, value = text.strip().partition(":")
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1].strip()
        if not colon or kind not in ("label", "milestone", "search"):
            raise ValueError(f'{shorten(text, 100)!r} names no issues: write label:bug, milestone:1.0 or search:"…"')
        if not value or (kind != "search" and '"' in value) or len(value) > 200:
            raise ValueError(f"{shorten(text, 100)!r} names no {kind}")
        return cls(kind, value)


def mentioned_issues(text: str) -> tuple[int, ...]:
    """Return the issues a text names as `#12`, each once, in order; `other/repo#12`, `&#39;` and `#12ab` are none."""
    return tuple(dict.fromkeys(int(number) for number in _MENTION.findall(text)))


def parse_repository_address(repository: str) -> tuple[str, str] | None:
    """Return server and `owner/name` in lower case, the same for https, ssh and scp-like addresses; None for a local
    path or a text that is no address.

    The server is empty for a bare `owner/name`. Ports do not count: of one server, https and ssh have different ones.
    """
    repository = repository.strip()
    if repository.startswith((".", "/", "~", "file:")):
        return None
    if _SHORT.fullmatch(repository):
        return "", _normalised_name(repository)
    match = _ADDRESS.fullmatch(repository)
    if match is None or (not match["scheme"] and match["path"][0] != ":"):
        return None
    host = match["host"].lower()
    host = next((host_of for forge in FORGES for ssh, host_of in forge.ssh_hosts if ssh == host), host)
    return host, _normalised_name(match["path"])


def is_same_repository(first: str, second: str) -> bool:
    """Return True when two addresses name one repository, as far as their text tells: the same server and name in any
    spelling. When either is a local path, they are compared as text, without `/` and `.git` at the end."""
    addresses = parse_repository_address(first), parse_repository_address(second)
    if None in addresses:
        return first.rstrip("/").removesuffix(".git") == second.rstrip("/").removesuffix(".git")
    return addresses[0] == addresses[1]


def _normalised_name(path: str) -> str:
    """Return the path of a repository on its server in lower case, without slashes around it and without `.git`."""
    return path.strip(":/").lower().removesuffix(".git")
