"""One repository on one server of GitHub, as one account sees it: what every operation starts from.

The first request finds the repository: a renamed one by GitHub's own redirect, and everything after that goes to where
it is now. (PyGithub drops the query of a redirected request: a list filtered by head would come unfiltered.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from github import Github, GithubException
from github.Repository import Repository

from perdure.adapters.forges.github.accounts import Account, no_token_error
from perdure.adapters.forges.github.errors import missing_repo_scope, raise_forge_errors
from perdure.adapters.forges.github.transport import open_client
from perdure.models.errors import ForgeRefused, ForgeUnavailable


@dataclass(frozen=True)
class GitHubRepository:
    """A repository and our account for it.

    server             the server's web address
    api                the address of its API
    repository         `owner/name` as the origin's URL has it
    pushed_with_token  git shows our token there as well (over ssh it does not)
    """

    server: str
    api: str
    repository: str
    account: Account
    pushed_with_token: bool = True

    @property
    def web_url(self) -> str:
        """Return the address of the repository's page."""
        return f"{self.server}/{self.repository}"

    @contextmanager
    def open_connection(self, *, write: bool = True) -> Iterator[Repository]:
        """Open one connection for the block and yield PyGithub's repository. Errors of GitHub in the block are raised
        as ForgeRefused or ForgeUnavailable.

        `write`: raise ForgeRefused at once when there is no token.
        """
        token = self.account.token(self.repository)
        if write and token is None:
            raise no_token_error(self.account.variable)
        with raise_forge_errors(self.web_url, self.account.variable), open_client(self.api, token) as github:
            yield self._fetch_repository(github)

    def _fetch_repository(self, github: Github) -> Repository:
        """Fetch the repository from GitHub, by its present name where it was renamed. Discards a token that GitHub has
        ended early and raises ForgeUnavailable then; raises ForgeRefused where the repository cannot be seen."""
        try:
            repository = github.get_repo(self.repository)
        except GithubException as error:
            if error.status == 401 and self.account.discard_token(self.repository):
                raise ForgeUnavailable(
                    "GitHub has ended our token early: a new one is asked for", where=self.web_url
                ) from None
            if error.status == 404:
                raise self._not_found_error(error.headers or {}) from None
            raise
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository.full_name):
            raise ForgeUnavailable("GitHub's answer cannot be understood", where=self.web_url)
        return repository

    def _not_found_error(self, headers: Mapping[str, str]) -> ForgeRefused:
        """Return the error for a repository that does not exist or that the token cannot see; it names the missing
        scope where the headers show one."""
        what, variable = f"there is no repository {self.repository}, or the token cannot see it", self.account.variable
        if missing_scope := missing_repo_scope(headers, private=True):
            return ForgeRefused(
                f"{what}: it lacks {missing_scope}", where=self.web_url, fix=f"give {variable} {missing_scope}"
            )
        fix = f"check the address; a private repository needs {variable} of an account that may see it"
        return ForgeRefused(what, where=self.web_url, fix=fix)

    def rename_notes(self, repository: Repository) -> tuple[str, ...]:
        """Return a note when the repository is called something else now, else nothing."""
        if repository.full_name.lower() == self.repository.lower():
            return ()
        return (f"the repository {self.repository} is called {repository.full_name} now",)
