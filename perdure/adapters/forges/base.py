"""The interfaces of a forge (a repository where pull requests are opened and issues are read) and of a server with our
account there, and the facts that they exchange. `forges.local` and `forges.github` implement them; `forges.select`
chooses. Activities, the command line and `repository.terms` know forges by these alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from perdure.adapters.git.credentials import Credential
from perdure.models.delivery.result import PullRequest
from perdure.models.issue import ForgeIssue, IssueQuery


@dataclass(frozen=True)
class Proposal:
    """A pull request to be opened: `head` and `base` are branch names on the forge, `head_sha` the commit that `head`
    points at.

    draft_reason why it has to be a draft; empty where a setting alone asks for one: then it is opened as an ordinary
                 one where the forge has no drafts
    body         ends with a hidden marker that names the delivery: a pull request that carries it is ours to edit
    attachments  files, name → content, that the body shows; a forge without an artifact branch keeps them beside it
    shares_body  where this head has an open pull request of another delivery, what that one wrote in the text stays,
                 beside this text (body.merge_part)
    body_end     the last lines of `body`, which stay when it is cut there
    """

    delivery: str
    title: str
    body: str
    head: str
    head_sha: str
    base: str
    draft: bool = False
    draft_reason: str = ""
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    attachments: Mapping[str, bytes] = field(default_factory=dict)
    shares_body: bool = False
    body_end: str = ""


@dataclass(frozen=True)
class ProposedPullRequest:
    """The one pull request of a head branch, opened or brought up to date. `notes`: what a person should know, one
    sentence each (labels or reviewers that were not taken, a repository that was renamed, a pull request that somebody
    has closed)."""

    pull_request: PullRequest
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PullRequestSnapshot:
    """A pull request as it is now.

    state     open, merged or closed
    head_sha  the commit it proposes, empty when the forge does not say
    ours      it is the delivery's that was named
    base      the branch it is to be merged into
    """

    number: int
    state: str
    head_sha: str
    ours: bool
    base: str = ""


@dataclass(frozen=True)
class AccessReport:
    """The facts that a look at the forge before any money is spent has shown: the repository's name as the forge has it
    now, and notes for a person."""

    repository: str
    notes: tuple[str, ...] = field(default=())


class Forge(Protocol):
    """A repository at a forge. Its methods block: call them from a thread. Errors: ForgeRefused (final),
    ForgeUnavailable (try again)."""

    def find_open_pull(self, head: str) -> PullRequest | None:
        """Return the open pull request of a head branch, the oldest when there are several, or None."""
        ...

    def pulls_of_branch(self, head: str, delivery: str) -> Sequence[PullRequestSnapshot]:
        """Return all pull requests of a head branch in whatever state, by number; `delivery` decides which of them are
        `ours`."""
        ...

    def count_open_pulls(self, except_delivery: str, limit: int) -> int:
        """Count the open pull requests that deliveries have made, without that of `except_delivery`; stop counting at
        `limit`."""
        ...

    def change_base(self, number: int, base: str) -> None:
        """Set the base branch of an open pull request; its commits and text stay as they are."""
        ...

    def reopen_pull(self, number: int) -> None:
        """Open a pull request again that was closed and not merged; its branches have to exist. Raises ForgeRefused
        where that is not allowed."""
        ...

    def open_or_update_pull(self, proposal: Proposal) -> ProposedPullRequest:
        """Open the pull request; where one for the same head is open already, update and return that one instead."""
        ...


@runtime_checkable
class HostedForge(Forge, Protocol):
    """A forge with issues and accounts, with the rules and errors of Forge.

    name     as people call it, such as GitHub
    account  who we are to it, such as `App 12`, where that is more than a token; else empty
    """

    name: str

    @property
    def account(self) -> str: ...

    @property
    def web_url(self) -> str:
        """Return the address of the repository's page, such as https://github.com/me/durations."""
        ...

    def check_access(self, base: str, branches: Sequence[str] = (), *, empty: bool = False) -> AccessReport:
        """Check that a branch can be pushed and a pull request into `base` opened. Raises ForgeRefused, which names
        what is missing.

        `branches`: the names of which one will be pushed, as far as they are known; `empty`: the repository has no
        branch, and `base` will be pushed as well where that is still so.
        """
        ...

    def fetch_issue(self, number: int) -> ForgeIssue:
        """Fetch an open issue with its comments. Raises InvalidRequest for one that is closed, locked or a pull
        request."""
        ...

    def find_issues(self, query: IssueQuery, limit: int) -> Sequence[int]:
        """Return the numbers of the open issues that a query means, the oldest first. Raises ForgeRefused when there
        are more than `limit`."""
        ...

    def issue_pull_requests(self) -> Mapping[int, int]:
        """Return the open pull requests that a delivery or a backlog has made for issues here: issue number → pull
        request number."""
        ...

    def write_status_comment(self, issue: int, delivery: str, text: str) -> str:
        """Create or edit the delivery's one comment on an issue, found by its hidden marker, so that it says `text`.
        Returns its address."""
        ...


class ForgeSite(Protocol):
    """A server of a forge with our account there. `url`: scheme, host and port; `secrets`: values that nobody may
    see."""

    @property
    def url(self) -> str: ...

    @property
    def secrets(self) -> tuple[str, ...]: ...

    def forge(self, url: str) -> HostedForge | None:
        """Return the repository of an origin's URL, as this account sees it; None for a URL that is not on this
        server."""
        ...

    def credential(self, url: str) -> Credential | None:
        """Return what git shows for an http(s) URL of a repository on this server, None for any other URL or without a
        token. Raises ForgeRefused, ForgeUnavailable when a token cannot be had."""
        ...
