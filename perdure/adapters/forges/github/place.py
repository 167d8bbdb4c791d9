"""One repository on one GitHub, as one account sees it: what every operation starts from.

The first request resolves the repository: a renamed one is found by GitHub's own redirect, and everything after that
goes to where it is now. (PyGithub drops the query of a redirected request: a list filtered by head would come
unfiltered.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from github import Github, GithubException
from github.Repository import Repository

from perdure.adapters.forges.github.accounts import Account, no_token
from perdure.adapters.forges.github.errors import speaking, without_scope
from perdure.adapters.forges.github.wire import connect
from perdure.models.errors import ForgeRefused, ForgeUnavailable


@dataclass(frozen=True)
class GitHubRepository:
    """`server` is its web address, `api` its API's, `repository` `owner/name` as the origin says it.

    `pushed_with_token`: whether git shows our token there as well (over ssh it does not).
    """

    server: str
    api: str
    repository: str
    account: Account
    pushed_with_token: bool = True

    @property
    def web(self) -> str:
        """The page of the repository."""
        return f"{self.server}/{self.repository}"

    @contextmanager
    def opened(self, *, write: bool = True) -> Iterator[Repository]:
        """The repository, with one connection for the block; GitHub's errors leave it as ForgeRefused or
        ForgeUnavailable. `write`: refuse at once when we are nobody."""
        token = self.account.token(self.repository)
        if write and token is None:
            raise no_token(self.account.variable)
        with speaking(self.web, self.account.variable), connect(self.api, token) as github:
            yield self._resolved(github)

    def _resolved(self, github: Github) -> Repository:
        try:
            repository = github.get_repo(self.repository)
        except GithubException as error:
            if error.status == 401 and self.account.renew(self.repository):
                raise ForgeUnavailable(
                    "GitHub has ended our token early: a new one is asked for", where=self.web
                ) from None
            if error.status == 404:
                raise self._unseen(error.headers or {}) from None
            raise
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository.full_name):
            raise ForgeUnavailable("GitHub's answer cannot be understood", where=self.web)
        return repository

    def _unseen(self, headers: Mapping[str, str]) -> ForgeRefused:
        what, variable = f"there is no repository {self.repository}, or the token cannot see it", self.account.variable
        if lacking := without_scope(headers, private=True):
            return ForgeRefused(f"{what}: it lacks {lacking}", where=self.web, fix=f"give {variable} {lacking}")
        fix = f"check the address; a private repository needs {variable} of an account that may see it"
        return ForgeRefused(what, where=self.web, fix=fix)

    def renamed(self, repository: Repository) -> tuple[str, ...]:
        """A note when it is called something else now."""
        if repository.full_name.lower() == self.repository.lower():
            return ()
        return (f"the repository {self.repository} is called {repository.full_name} now",)
