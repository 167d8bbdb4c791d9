"""The interfaces behind which pull requests are opened and issues are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from perdure.adapters.git.credentials import Credential
from perdure.models.issue import ForgeIssue, IssueQuery
from perdure.models.result import PullRequest


@dataclass(frozen=True)
class Proposal:
    """A pull request to be: `head` and `base` are branch names on the forge, `head_sha` what `head` points at.

    `body` ends with a hidden marker that names the delivery: what carries it is ours to edit. `beside`: files, name →
    content, that the body shows and a forge without an artifact branch keeps beside it. `shares`: an open one of this
    head that is another's of ours keeps what that one wrote, beside this text (parts.beside_others). `end`: the last
    lines of `body`, which stay when it is cut there.
    """

    delivery: str
    title: str
    body: str
    head: str
    head_sha: str
    base: str
    draft: bool = False
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    beside: Mapping[str, bytes] = field(default_factory=dict)
    shares: bool = False
    end: str = ""


@dataclass(frozen=True)
class Opened:
    """The one pull request of a head branch. `notes`: what a person should know, one sentence each (labels or
    reviewers that were not taken, a repository that was renamed, a pull request that somebody has closed)."""

    pull_request: PullRequest
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pulled:
    """A pull request as it is now. `state`: open, merged or closed; `head_sha`: the commit it proposes, empty when the
    forge does not say; `ours`: it is the delivery's; `base`: the branch it is into."""

    number: int
    state: str
    head_sha: str
    ours: bool
    base: str = ""


@dataclass(frozen=True)
class Access:
    """A look before any money is spent: the repository as the forge calls it now, and words for a person."""

    repository: str
    notes: tuple[str, ...] = field(default=())


class Forge(Protocol):
    """Sync: called from a thread. Errors: ForgeRefused (final), ForgeUnavailable (try again)."""

    def find(self, head: str) -> PullRequest | None:
        """The open pull request of a head branch, the oldest when there are several."""
        ...

    def of_branch(self, head: str, delivery: str) -> Sequence[Pulled]:
        """All pull requests of a head branch in whatever state, by number; `delivery` decides which are ours."""
        ...

    def open_ours(self, but: str, most: int) -> int:
        """Open pull requests that deliveries have made, that of `but` apart; no more than `most` are counted."""
        ...

    def retarget(self, number: int, base: str) -> None:
        """Make an open pull request one into another branch, with all that is in it as it is."""
        ...

    def reopen(self, number: int) -> None:
        """Open one again that was closed, not merged; its branches have to be there. ForgeRefused where it may not."""
        ...

    def create(self, proposal: Proposal) -> Opened:
        """Open one; finding one for the same head first means returning (and updating) that one instead."""
        ...


@runtime_checkable
class HostedForge(Forge, Protocol):
    """A forge with issues and accounts. The same rules, the same errors. `name`: as people call it, such as GitHub;
    `account`: who we are to it, such as `App 12`, where that is more than a token."""

    name: str

    @property
    def account(self) -> str: ...

    @property
    def web(self) -> str:
        """The page of the repository, such as https://github.com/me/durations."""
        ...

    def check(self, base: str, branches: Sequence[str] = (), *, empty: bool = False) -> Access:
        """Look if a branch can be pushed and a pull request into `base` opened. ForgeRefused names what is missing.

        `branches`: the names of which one will be pushed, as far as they are known; `empty`: the repository has no
        branch, and `base` will be pushed as well where that is still so.
        """
        ...

    def issue(self, number: int) -> ForgeIssue:
        """An open issue with its comments. InvalidRequest for one that is closed, locked or a pull request."""
        ...

    def issues(self, wanted: IssueQuery, most: int) -> Sequence[int]:
        """The numbers of the open issues that are meant, the oldest first; ForgeRefused when there are more."""
        ...

    def proposed(self) -> Mapping[int, int]:
        """Issues for which a delivery or a backlog has an open pull request here: its number, by the issue's."""
        ...

    def comment(self, issue: int, delivery: str, text: str) -> str:
        """Make the delivery's one comment on an issue say `text`, found by its hidden marker; return its address."""
        ...


class ForgeSite(Protocol):
    """A server of a forge with our account there. `url`: scheme, host and port; `secrets`: what nobody may see."""

    @property
    def url(self) -> str: ...

    @property
    def secrets(self) -> tuple[str, ...]: ...

    def forge(self, url: str) -> HostedForge | None:
        """The repository of an origin, as this account sees it; None for a URL that is none of this server."""
        ...

    def credential(self, url: str) -> Credential | None:
        """For an http(s) URL of a repository here. ForgeRefused, ForgeUnavailable when a token cannot be had."""
        ...
