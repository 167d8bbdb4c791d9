"""GitHub as a forge.

No model output chooses host, repository, base or branch: the first two are the origin's URL, the others come in a
Proposal, whose branches were fixed before the first model call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import requests
from github import GithubException
from github.Repository import Repository

from perdure.adapters.forges.base import Access, Opened, Proposal, Pulled
from perdure.adapters.forges.github.access import Server
from perdure.adapters.forges.github.accounts import NEEDED, Account, AppAccount
from perdure.adapters.forges.github.errors import accepted, without_scope
from perdure.adapters.forges.github.issues import read_issue, tell
from perdure.adapters.forges.github.place import GitHubRepository
from perdure.adapters.forges.github.pulls import of_head, open_one, open_ours, proposed, published, pulled
from perdure.adapters.forges.github.rules import check_rules
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.models.issue import ForgeIssue, IssueQuery
from perdure.models.limits import FORGE_SILENCE_S
from perdure.models.result import PullRequest


class GitHub:
    """One repository there. A HostedForge; safe to use from any thread. Without a token what is public can be read."""

    name = "GitHub"

    def __init__(self, server: Server, repository: str, account: Account, *, pushed_with_token: bool = True) -> None:
        """`repository` is `owner/name`; `pushed_with_token`: whether git needs our account as well."""
        self._place = GitHubRepository(server.url, server.api, repository, account, pushed_with_token)

    @property
    def account(self) -> str:
        account = self._place.account
        return f"App {account.id}" if isinstance(account, AppAccount) else ""

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

    def open_ours(self, but: str, most: int) -> int:
        with self._place.opened(write=False) as repository:
            return open_ours(repository, but, most)

    def retarget(self, number: int, base: str) -> None:
        with self._place.opened() as repository:
            pull = repository.get_pull(number)
            if pull.state == "open" and pull.base.ref != base:
                pull.edit(base=base)

    def reopen(self, number: int) -> None:
        with self._place.opened() as repository:
            pull = repository.get_pull(number)
            if pull.state == "closed" and not pull.merged_at:
                pull.edit(state="open")

    def create(self, proposal: Proposal) -> Opened:
        with self._place.opened() as repository:
            opened = open_one(repository, proposal)
            return Opened(opened.pull_request, (*self._place.renamed(repository), *opened.notes))

    def check(self, base: str, branches: Sequence[str] = (), *, empty: bool = False) -> Access:
        return check_access(self._place, base, branches, empty=empty)

    def issue(self, number: int) -> ForgeIssue:
        with self._place.opened(write=False) as repository:
            return read_issue(repository, number, self._login)

    def issues(self, wanted: IssueQuery, most: int) -> Sequence[int]:
        with self._place.opened(write=False) as repository:
            return find_issues(repository, wanted, most)

    def proposed(self) -> Mapping[int, int]:
        with self._place.opened(write=False) as repository:
            return proposed(repository)

    def comment(self, issue: int, delivery: str, text: str) -> str:
        with self._place.opened() as repository:
            return tell(repository, issue, delivery, text, self._login)

    def _login(self) -> str:
        account = self._place.account
        return account.login(self._place.repository) if account.token(self._place.repository) else ""


PERMISSIONS = {"contents": "Contents: write", "pull_requests": "Pull requests: write"}
"""Rights that an App's installation needs, by GitHub's name of each."""


_FIRST = "push a first commit yourself: git commit --allow-empty -m first && git push -u origin HEAD"


def check_access(place: GitHubRepository, base: str, branches: Sequence[str] = (), *, empty: bool = False) -> Access:
    """Token, permissions, repository and base branch, and the rules for `branches`, of which one will be pushed, and
    for the base of an `empty` repository; ForgeRefused names the first thing that is missing."""
    with place.opened() as repository:
        _usable(place, repository)
        notes = [*place.renamed(repository)]
        installed = place.account.permissions(place.repository)
        if installed is not None:
            notes += _installed(place, installed)
        elif "x-oauth-scopes" in (headers := repository.raw_headers):
            if lacking := without_scope(headers, private=repository.private):
                raise _lacks(place, lacking)
            _role(place, repository)
        else:
            _try_out(place, repository, base, empty)
        notes += _base(place, repository, base, empty)
        notes += check_rules(repository, branches)
        if not repository.has_issues:
            notes.append(f"{repository.full_name} has its issues switched off")
        return Access(repository.full_name, tuple(notes))


def _usable(place: GitHubRepository, repository: Repository) -> None:
    if repository.archived:
        fix = "unarchive it, or deliver to another repository"
        raise ForgeRefused(f"{repository.full_name} is archived: nobody can change it", where=place.web, fix=fix)
    if repository.raw_data.get("disabled"):
        raise ForgeRefused(f"GitHub has disabled {repository.full_name}", where=place.web, fix="ask its owner")


def _role(place: GitHubRepository, repository: Repository) -> None:
    may = repository.raw_data.get("permissions") or {}
    if not may.get("push"):
        variable = place.account.variable
        raise ForgeRefused(
            f"the account of {variable} may not push to {repository.full_name}",
            where=place.web,
            fix="give the account the role Write there, or use the token of one that has it",
        )


def _installed(place: GitHubRepository, has: Mapping[str, str]) -> list[str]:
    for name, words in PERMISSIONS.items():
        if has.get(name) not in ("write", "admin"):
            raise _lacks(place, f"the permission {words}")
    if has.get("issues") not in ("write", "admin"):
        return ["the App lacks the permission Issues: write: issues are not told how their delivery stands"]
    return []


def _try_out(place: GitHubRepository, repository: Repository, base: str, empty: bool) -> None:
    """A fine-grained token does not say what it may do: it is asked for what cannot have an effect.

    git's hello before a push, which is not followed by one; and a pull request of the base branch into itself, which
    GitHub has never opened: permissions are looked at first, and answered with the one that is missing.
    """
    if place.pushed_with_token and not _may_push(place, repository):
        raise _lacks(place, "the permission Contents: write")
    try:
        repository.create_pull(base, base, title="May we?", body="")
    except GithubException as error:
        if error.status == 403 and (needed := accepted(error.headers or {})):
            raise _lacks(place, f"the permission {needed}") from None
        if error.status != 422 and not (empty and error.status == 409):  # "Git Repository is empty."
            raise


def _may_push(place: GitHubRepository, repository: Repository) -> bool:
    token = place.account.token(place.repository) or ""
    address = f"{place.server}/{repository.full_name}.git/info/refs?service=git-receive-pack"
    with requests.get(
        address, auth=("x-access-token", token), timeout=FORGE_SILENCE_S, stream=True, allow_redirects=False
    ) as hello:
        if hello.status_code == 429 or hello.status_code >= 500:
            raise ForgeUnavailable(f"GitHub is not well ({hello.status_code})", where=place.web)
        return hello.status_code == 200


def _base(place: GitHubRepository, repository: Repository, base: str, empty: bool) -> list[str]:
    try:
        branch = repository.get_branch(base)
    except GithubException as error:
        if error.status != 404:
            raise
        if empty:
            note = f"{repository.full_name} is empty: {base} begins with an empty commit, pushed before the branch"
            return [note, *check_rules(repository, [base], _FIRST)]
        raise ForgeRefused(f"{repository.full_name} has no branch {base}", where=place.web, fix="name one") from None
    return [f"{base} is protected: Perdure only proposes"] if branch.protected else []


def _lacks(place: GitHubRepository, what: str) -> ForgeRefused:
    variable = place.account.variable
    return ForgeRefused(f"the token lacks {what}", where=f"{variable}, for {place.web}", fix=f"add it: {NEEDED}")


PAGE = 100
"""The most that GitHub gives in one answer; of one search it gives ten of them."""


def find_issues(repository: Repository, wanted: IssueQuery, most: int) -> tuple[int, ...]:
    """Their numbers, the oldest first. ForgeRefused when there are more than `most`: part of what somebody means
    would be left out in silence."""
    words = wanted.value if wanted.kind == "search" else f'{wanted.kind}:"{wanted.value}"'
    query = f"repo:{repository.full_name} is:issue is:open {words}"
    here, found = repository.html_url.lower() + "/issues/", list[int]()
    for page in range(1, most // PAGE + 2):
        asked = {"q": query, "sort": "created", "order": "asc", "per_page": PAGE, "page": page}
        _, answer = repository.requester.requestJsonAndCheck("GET", "/search/issues", parameters=asked)
        if answer["incomplete_results"]:
            raise ForgeUnavailable("GitHub's search did not come to its end", where=repository.html_url)
        if answer["total_count"] > most:
            what = f"{answer['total_count']:,} open issues are meant, at most {most:,} fit into one backlog"
            raise ForgeRefused(what, where=query, fix="name fewer: a narrower label, milestone or search")
        # A search may name another repository, or what is closed, in its own words.
        found += [
            one["number"]
            for one in answer["items"]
            if one["html_url"].lower().startswith(here) and one["state"] == "open" and not one["locked"]
        ]
        if len(answer["items"]) < PAGE:
            break
    return tuple(dict.fromkeys(found))
