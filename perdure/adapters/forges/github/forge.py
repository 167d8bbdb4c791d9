"""GitHub as a forge.

No model output chooses host, repository, base or branch: the first two are the origin's URL, the others come in a
Proposal, whose branches were fixed before the first model call.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.adapters.forges.base import Access, Opened, Proposal, Pulled
from perdure.adapters.forges.github.access import Server
from perdure.adapters.forges.github.accounts import Account
from perdure.adapters.forges.github.check import check_access
from perdure.adapters.forges.github.issues import read_issue, tell
from perdure.adapters.forges.github.place import GitHubRepository
from perdure.adapters.forges.github.pulls import of_head, open_one, published, pulled
from perdure.models.issue import Issue
from perdure.models.result import PullRequest


class GitHub:
    """One repository there. A HostedForge; safe to use from any thread. Without a token what is public can be read."""

    name = "GitHub"

    def __init__(self, server: Server, repository: str, account: Account, *, pushed_with_token: bool = True) -> None:
        """`repository` is `owner/name`; `pushed_with_token`: whether git needs our account as well."""
        self._place = GitHubRepository(server.url, server.api, repository, account, pushed_with_token)

    @property
    def web(self) -> str:
        """The page of the repository, such as https://github.com/me/durations."""
        return self._place.web

    def find(self, head: str) -> PullRequest | None:
        with self._place.opened(write=False) as repository:
            return next((published(pull) for pull in of_head(repository, head, "open")), None)

    def of_branch(self, head: str, delivery: str) -> Sequence[Pulled]:
        with self._place.opened(write=False) as repository:
            return [pulled(pull, delivery) for pull in of_head(repository, head, "all")]

    def create(self, proposal: Proposal) -> Opened:
        with self._place.opened() as repository:
            opened = open_one(repository, proposal)
            return Opened(opened.pull_request, (*self._place.renamed(repository), *opened.notes))

    def check(self, base: str, branches: Sequence[str] = (), *, empty: bool = False) -> Access:
        return check_access(self._place, base, branches, empty=empty)

    def issue(self, number: int) -> Issue:
        with self._place.opened(write=False) as repository:
            return read_issue(repository, number, self._login)

    def comment(self, issue: int, delivery: str, text: str) -> str:
        with self._place.opened() as repository:
            return tell(repository, issue, delivery, text, self._login)

    def _login(self) -> str:
        account = self._place.account
        return account.login(self._place.repository) if account.token(self._place.repository) else ""
