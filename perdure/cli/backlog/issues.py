"""Open issues as items of a backlog: listed by the forge, without those that have an open pull request already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.models.backlog import ITEMS_MOST, BacklogRequest
from perdure.models.errors import BadInput, ForgeRefused, ForgeUnavailable
from perdure.models.issue import IssueQuery

if TYPE_CHECKING:
    from perdure.adapters.forges.base import HostedForge
    from perdure.client.backlog import Backlog


def find_issue_forge(text: str, repository: str, env: Mapping[str, str]) -> tuple[HostedForge, IssueQuery]:
    """Return the repository's forge and the parsed `--issues`.

    Raises BadInput where the text is no query for issues, or the repository has no forge whose issues can be read.
    Blocks on git and the network.
    """
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.target import resolve_repository
    from perdure.cli.request.issue import hosted_forge

    try:
        query = IssueQuery.parse(text)
    except ValueError as error:
        raise BadInput(str(error), where="--issues", fix="--issues label:bug") from None
    forges = Forges.from_environment(
        dict(env)
    )  # a copy: this removes the tokens from it, and a worker that is started has to inherit them
    target = resolve_repository(repository, Path.cwd(), forges)
    forge = hosted_forge(forges, target.url)
    if forge is None:
        fix = "name items in a file; issues are read on GitHub (another server of it: PERDURE_GITHUB_URL)"
        raise BadInput("this repository has no issues that Perdure can read", where=target.url, fix=fix)
    return forge, query


def list_open_issues(forge: HostedForge, query: IssueQuery) -> tuple[tuple[int, ...], Mapping[int, int]]:
    """Ask the forge for the open issues of the query: their numbers, the oldest first.

    The second value has, by issue, the number of an open pull request that Perdure made for it. Raises BadInput when no
    issue is open, too many are, or the forge refuses or does not answer.
    """
    try:
        numbers = forge.find_issues(query, ITEMS_MOST)
        all_pulls = forge.issue_pull_requests() if numbers else {}
    except (ForgeRefused, ForgeUnavailable) as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error
    if not numbers:
        fix = f"look at {forge.web_url}/issues"
        raise BadInput(f"no open issue has {query.kind} {query.value!r}", where="--issues", fix=fix)
    return tuple(numbers), {number: all_pulls[number] for number in numbers if number in all_pulls}


async def without_proposed_issues(
    backlog: Backlog, request: BacklogRequest, pulls_by_issue: Mapping[int, int]
) -> tuple[BacklogRequest, list[str]]:
    """Return the request without issues that have an open pull request already, and a line for each that is left out.

    An issue stays where the backlog of that id has it already. Raises BadInput when no item remains.
    """
    from perdure.client.backlog_submit import list_known_issues

    known_issues = await list_known_issues(backlog) if pulls_by_issue else frozenset[int]()
    excluded = {number: pull for number, pull in pulls_by_issue.items() if number not in known_issues}
    items = tuple(item for item in request.items if item.issue_number not in excluded)
    lines = [f"#{number} is left out: #{pull} is open for it" for number, pull in sorted(excluded.items())]
    if lines and not items:
        raise BadInput(
            f"every open issue there is built already: {', '.join(lines[:5])}{', …' if len(lines) > 5 else ''}",
            where="--issues",
            fix="merge what is open, or close it to have it built again",
        )
    return request.model_copy(update={"items": items}), lines
