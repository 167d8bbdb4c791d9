"""GitHub as a forge: what deliveries do at one repository there, from the check of access before any money is spent to
the search for issues. How pull requests and single issues are handled is in `github.pulls` and `github.issues`.

No model output chooses host, repository, base or branch: the first two are from the origin's URL, the others come in a
Proposal, whose branches were fixed before the first model call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import requests
from github import Github, GithubException
from github.Repository import Repository

from perdure.adapters.forges.base import AccessReport, Proposal, ProposedPullRequest, PullRequestSnapshot
from perdure.adapters.forges.github.account import NEEDED_PERMISSIONS, Account, AppAccount, no_token_error
from perdure.adapters.forges.github.errors import accepted_permissions, missing_repo_scope, raise_forge_errors
from perdure.adapters.forges.github.issues import fetch_issue, write_status_comment
from perdure.adapters.forges.github.pulls import (
    count_open_pulls,
    issue_pull_requests,
    open_or_update_pull,
    pulls_of_branch,
    to_pull_request,
    to_pull_request_snapshot,
)
from perdure.adapters.forges.github.rules import check_rules
from perdure.adapters.forges.github.server import GitHubServer
from perdure.adapters.forges.github.transport import open_client
from perdure.models.delivery.result import PullRequest
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.models.issue import ForgeIssue, IssueQuery
from perdure.models.limits import FORGE_SILENCE_S


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
        """Fetch the repository over a connection of its own, and yield PyGithub's repository for the block. Errors of
        GitHub in the block are raised as ForgeRefused or ForgeUnavailable. The account's token is had first, for which
        an App may have to request a new one.

        write  raise ForgeRefused at once when there is no token
        """
        token = self.account.token(self.repository)
        if write and token is None:
            raise no_token_error(self.account.variable)
        with raise_forge_errors(self.web_url, self.account.variable), open_client(self.api, token) as github:
            yield self._fetch_repository(github)

    def _fetch_repository(self, github: Github) -> Repository:
        """Fetch the repository from GitHub, by its present name where it was renamed.

        Raises ForgeUnavailable when GitHub has ended the token early, which is then discarded, or its answer makes no
        sense; ForgeRefused where the repository does not exist or cannot be seen; else what PyGithub raises.
        """
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


class GitHub:
    """A repository on a server of GitHub; a HostedForge, safe to use from any thread. Without a token what is public
    can be read."""

    name = "GitHub"

    def __init__(
        self, server: GitHubServer, repository: str, account: Account, *, pushed_with_token: bool = True
    ) -> None:
        """Set up access without any request. `repository` is `owner/name`; `pushed_with_token`: git needs our account
        as well."""
        self._target = GitHubRepository(server.url, server.api_url, repository, account, pushed_with_token)

    @property
    def account(self) -> str:
        """Return `App 12` for a GitHub App, empty for a token or nobody."""
        account = self._target.account
        return f"App {account.id}" if isinstance(account, AppAccount) else ""

    @property
    def web_url(self) -> str:
        """Return the address of the repository's page, such as https://github.com/me/durations."""
        return self._target.web_url

    def find_open_pull(self, head: str) -> PullRequest | None:
        """Return the open pull request of a head branch, the oldest when there are several, or None."""
        with self._target.open_connection(write=False) as repository:
            return next((to_pull_request(pull) for pull in pulls_of_branch(repository, head, "open")), None)

    def pulls_of_branch(self, head: str, delivery: str) -> Sequence[PullRequestSnapshot]:
        """Return all pull requests of a head branch in whatever state, by number; those with the marker of `delivery`
        are `ours`."""
        with self._target.open_connection(write=False) as repository:
            return [to_pull_request_snapshot(pull, delivery) for pull in pulls_of_branch(repository, head, "all")]

    def count_open_pulls(self, except_delivery: str, limit: int) -> int:
        """Count the open pull requests that deliveries have made, without that of `except_delivery`, up to `limit`."""
        with self._target.open_connection(write=False) as repository:
            return count_open_pulls(repository, except_delivery, limit)

    def change_base(self, number: int, base: str) -> None:
        """Set the base branch of an open pull request. Does nothing when it is into that branch already, or no longer
        open.

        Raises ForgeRefused when GitHub refuses it, ForgeUnavailable when it does not answer.
        """
        with self._target.open_connection() as repository:
            pull = repository.get_pull(number)
            if pull.state == "open" and pull.base.ref != base:
                pull.edit(base=base)

    def reopen_pull(self, number: int) -> None:
        """Open a closed pull request again. Does nothing when it is open or was merged.

        Raises ForgeRefused when GitHub refuses it, ForgeUnavailable when it does not answer.
        """
        with self._target.open_connection() as repository:
            pull = repository.get_pull(number)
            if pull.state == "closed" and not pull.merged_at:
                pull.edit(state="open")

    def open_or_update_pull(self, proposal: Proposal) -> ProposedPullRequest:
        """Open the pull request, or update the one that this head branch has already; notes say when the repository was
        renamed, too."""
        with self._target.open_connection() as repository:
            result = open_or_update_pull(repository, proposal)
            return ProposedPullRequest(result.pull_request, (*self._target.rename_notes(repository), *result.notes))

    def check_access(self, base: str, branches: Sequence[str] = (), *, empty: bool = False) -> AccessReport:
        """Check that one of `branches` can be pushed and a pull request into `base` opened, without lasting effect.
        Raises ForgeRefused, which names what is missing, and ForgeUnavailable."""
        return check_access(self._target, base, branches, empty=empty)

    def fetch_issue(self, number: int) -> ForgeIssue:
        """Fetch an open issue with its newest comments. Raises InvalidRequest for one that cannot be worked on."""
        with self._target.open_connection(write=False) as repository:
            return fetch_issue(repository, number, self._login_name)

    def find_issues(self, query: IssueQuery, limit: int) -> Sequence[int]:
        """Return the numbers of the open issues that a query means, the oldest first. Raises ForgeRefused when there
        are more than `limit`."""
        with self._target.open_connection(write=False) as repository:
            return find_issues(repository, query, limit)

    def issue_pull_requests(self) -> Mapping[int, int]:
        """Return the open pull requests that a delivery or a backlog has made for issues here: issue number → pull
        request number."""
        with self._target.open_connection(write=False) as repository:
            return issue_pull_requests(repository)

    def write_status_comment(self, issue: int, delivery: str, text: str) -> str:
        """Create or edit the delivery's one comment on an issue so that it says `text`; return its address."""
        with self._target.open_connection() as repository:
            return write_status_comment(repository, issue, delivery, text, self._login_name)

    def _login_name(self) -> str:
        """Return the name of our account, empty without a token."""
        account = self._target.account
        return account.login_name(self._target.repository) if account.token(self._target.repository) else ""


PERMISSIONS = {"contents": "Contents: write", "pull_requests": "Pull requests: write"}
"""The permissions that an App's installation needs: GitHub's name of each → as people read it."""


_PUSH_FIRST_COMMIT = "push a first commit yourself: git commit --allow-empty -m first && git push -u origin HEAD"


def check_access(
    target: GitHubRepository, base: str, branches: Sequence[str] = (), *, empty: bool = False
) -> AccessReport:
    """Check before any money is spent that a delivery can push and open a pull request here; return the repository's
    present name and notes. Nothing is changed there.

    Looked at are the token and its permissions, the repository, its base branch, and the rules for `branches`, of which
    one will be pushed. Where `empty` is True, the repository has no branch yet, and the rules for `base` count as well.
    Raises ForgeRefused, which names the first thing that is missing; ForgeUnavailable when GitHub does not answer.
    """
    with target.open_connection() as repository:
        _check_usable(target, repository)
        notes = [*target.rename_notes(repository)]
        permissions = target.account.permissions(target.repository)
        if permissions is not None:
            notes += _check_installation(target, permissions)
        elif "x-oauth-scopes" in (headers := repository.raw_headers):
            if missing_scope := missing_repo_scope(headers, private=repository.private):
                raise _missing_permission_error(target, missing_scope)
            _check_role(target, repository)
        else:
            _try_permissions(target, repository, base, empty)
        notes += _check_base(target, repository, base, empty)
        notes += check_rules(repository, branches)
        if not repository.has_issues:
            notes.append(f"{repository.full_name} has its issues switched off")
        return AccessReport(repository.full_name, tuple(notes))


def _check_usable(target: GitHubRepository, repository: Repository) -> None:
    """Raise ForgeRefused when the repository is archived, or disabled by GitHub."""
    if repository.archived:
        fix = "unarchive it, or deliver to another repository"
        raise ForgeRefused(f"{repository.full_name} is archived: nobody can change it", where=target.web_url, fix=fix)
    if repository.raw_data.get("disabled"):
        raise ForgeRefused(f"GitHub has disabled {repository.full_name}", where=target.web_url, fix="ask its owner")


def _check_role(target: GitHubRepository, repository: Repository) -> None:
    """Raise ForgeRefused when the token's account may not push to the repository."""
    rights = repository.raw_data.get("permissions") or {}
    if not rights.get("push"):
        variable = target.account.variable
        raise ForgeRefused(
            f"the account of {variable} may not push to {repository.full_name}",
            where=target.web_url,
            fix="give the account the role Write there, or use the token of one that has it",
        )


def _check_installation(target: GitHubRepository, permissions: Mapping[str, str]) -> list[str]:
    """Raise ForgeRefused when an App's installation lacks a permission that a delivery needs. Return a list with one
    note when it lacks the one for issues, which a delivery can do without; else an empty list."""
    for name, label in PERMISSIONS.items():
        if permissions.get(name) not in ("write", "admin"):
            raise _missing_permission_error(target, f"the permission {label}")
    if permissions.get("issues") not in ("write", "admin"):
        return ["the App lacks the permission Issues: write: issues are not told how their delivery stands"]
    return []


def _try_permissions(target: GitHubRepository, repository: Repository, base: str, empty: bool) -> None:
    """Raise ForgeRefused when a fine-grained token lacks a permission. GitHub does not tell what such a token may do,
    so two requests are sent that cannot have an effect.

    These are git's first request of a push, which is not followed by one, and is sent only where git shows the token,
    too; and a pull request of the base branch into itself, which GitHub never opens: it looks at permissions first, and
    answers with the one that is missing. Raises ForgeUnavailable when GitHub is not well; other errors of PyGithub go
    through.
    """
    if target.pushed_with_token and not _may_push(target, repository):
        raise _missing_permission_error(target, "the permission Contents: write")
    try:
        repository.create_pull(base, base, title="May we?", body="")
    except GithubException as error:
        if error.status == 403 and (missing := accepted_permissions(error.headers or {})):
            raise _missing_permission_error(target, f"the permission {missing}") from None
        if error.status != 422 and not (empty and error.status == 409):  # "Git Repository is empty."
            raise


def _may_push(target: GitHubRepository, repository: Repository) -> bool:
    """Return whether GitHub accepts git's first request of a push to the repository with our token; nothing is pushed.
    Raises ForgeUnavailable when GitHub is not well or limits requests."""
    token = target.account.token(target.repository) or ""
    address = f"{target.server}/{repository.full_name}.git/info/refs?service=git-receive-pack"
    with requests.get(
        address, auth=("x-access-token", token), timeout=FORGE_SILENCE_S, stream=True, allow_redirects=False
    ) as response:
        if response.status_code == 429 or response.status_code >= 500:
            raise ForgeUnavailable(f"GitHub is not well ({response.status_code})", where=target.web_url)
        return response.status_code == 200


def _check_base(target: GitHubRepository, repository: Repository, base: str, empty: bool) -> list[str]:
    """Check that the base branch exists, and return notes: that it is protected, or that it will be begun with an empty
    commit.

    Raises ForgeRefused when it is missing. In a repository without branches (`empty`) it may be missing; ForgeRefused
    is raised there when a rule would refuse its first push.
    """
    try:
        branch = repository.get_branch(base)
    except GithubException as error:
        if error.status != 404:
            raise
        if empty:
            note = f"{repository.full_name} is empty: {base} begins with an empty commit, pushed before the branch"
            return [note, *check_rules(repository, [base], _PUSH_FIRST_COMMIT)]
        raise ForgeRefused(
            f"{repository.full_name} has no branch {base}", where=target.web_url, fix="name one"
        ) from None
    return [f"{base} is protected: Perdure only proposes"] if branch.protected else []


def _missing_permission_error(target: GitHubRepository, what: str) -> ForgeRefused:
    """Return the error for a token that lacks `what`, with what it needs in all."""
    variable = target.account.variable
    return ForgeRefused(
        f"the token lacks {what}", where=f"{variable}, for {target.web_url}", fix=f"add it: {NEEDED_PERMISSIONS}"
    )


PAGE_SIZE = 100
"""The most results that GitHub gives in one answer; of one search it gives ten such pages."""


def find_issues(repository: Repository, issue_query: IssueQuery, limit: int) -> tuple[int, ...]:
    """Search the repository's open issues and return the numbers of those that a query means, the oldest first, without
    locked ones.

    Raises ForgeRefused when there are more than `limit`, for part of what somebody means would be left out in silence;
    ForgeUnavailable when GitHub's search was incomplete; else what PyGithub raises.
    """
    filters = issue_query.value if issue_query.kind == "search" else f'{issue_query.kind}:"{issue_query.value}"'
    query = f"repo:{repository.full_name} is:issue is:open {filters}"
    url_start, numbers = repository.html_url.lower() + "/issues/", list[int]()
    for page in range(1, limit // PAGE_SIZE + 2):
        parameters = {"q": query, "sort": "created", "order": "asc", "per_page": PAGE_SIZE, "page": page}
        _, answer = repository.requester.requestJsonAndCheck("GET", "/search/issues", parameters=parameters)
        if answer["incomplete_results"]:
            raise ForgeUnavailable("GitHub's search did not come to its end", where=repository.html_url)
        if answer["total_count"] > limit:
            what = f"{answer['total_count']:,} open issues are meant, at most {limit:,} fit into one backlog"
            raise ForgeRefused(what, where=query, fix="name fewer: a narrower label, milestone or search")
        # The text of a search may name another repository, or closed issues.
        numbers += [
            item["number"]
            for item in answer["items"]
            if item["html_url"].lower().startswith(url_start) and item["state"] == "open" and not item["locked"]
        ]
        if len(answer["items"]) < PAGE_SIZE:
            break
    return tuple(dict.fromkeys(numbers))
