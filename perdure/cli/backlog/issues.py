"""Open issues as items of a backlog: asked for at the forge, without those that are built already."""

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


def asked_forge(text: str, repository: str, env: Mapping[str, str]) -> tuple[HostedForge, IssueQuery]:
    """The forge to ask, and for which issues. BadInput when these words name none, or there is no forge."""
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.source import resolve
    from perdure.cli.request.issue import hosted

    try:
        wanted = IssueQuery.parse(text)
    except ValueError as error:
        raise BadInput(str(error), where="--issues", fix="--issues label:bug") from None
    forges = Forges.from_environment(dict(env))  # of a copy: the worker that is started inherits the tokens
    target = resolve(repository, Path.cwd(), forges)
    forge = hosted(forges, target.url)
    if forge is None:
        fix = "name items in a file; issues are read on GitHub (another server of it: PERDURE_GITHUB_URL)"
        raise BadInput("this repository has no issues that Perdure can read", where=target.url, fix=fix)
    return forge, wanted


def open_issues(forge: HostedForge, wanted: IssueQuery) -> tuple[tuple[int, ...], Mapping[int, int]]:
    """Their numbers, the oldest first, and of those that have an open pull request of ours its number. BadInput when
    there are none, or too many."""
    try:
        found = forge.issues(wanted, ITEMS_MOST)
        built = forge.proposed() if found else {}
    except (ForgeRefused, ForgeUnavailable) as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error
    if not found:
        fix = f"look at {forge.web}/issues"
        raise BadInput(f"no open issue has {wanted.kind} {wanted.words!r}", where="--issues", fix=fix)
    return tuple(found), {number: built[number] for number in found if number in built}


async def unbuilt(
    backlog: Backlog, request: BacklogRequest, built: Mapping[int, int]
) -> tuple[BacklogRequest, list[str]]:
    """The request without issues that are built already and wait to be merged, unless the backlog of that id has them,
    and a line for each. BadInput when nothing is left."""
    from perdure.client.backlog_submit import given_issues

    given = await given_issues(backlog) if built else frozenset[int]()
    left_out = {number: pull for number, pull in built.items() if number not in given}
    items = tuple(item for item in request.items if item.issue_number not in left_out)
    lines = [f"#{number} is left out: #{pull} is open for it" for number, pull in sorted(left_out.items())]
    if lines and not items:
        raise BadInput(
            f"every open issue there is built already: {', '.join(lines[:5])}{', …' if len(lines) > 5 else ''}",
            where="--issues",
            fix="merge what is open, or close it to have it built again",
        )
    return request.model_copy(update={"items": items}), lines
