"""The open issues that a label, a milestone or a search means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.models.issue import IssueQuery

if TYPE_CHECKING:
    from github.Repository import Repository

PAGE = 100
"""The most that GitHub gives in one answer; of one search it gives ten of them."""


def find_issues(repository: Repository, wanted: IssueQuery, most: int) -> tuple[int, ...]:
    """Their numbers, the oldest first. ForgeRefused when there are more than `most`: part of what somebody means
    would be left out in silence."""
    words = wanted.words if wanted.kind == "search" else f'{wanted.kind}:"{wanted.words}"'
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
