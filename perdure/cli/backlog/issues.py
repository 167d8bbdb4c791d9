"""Open issues of a repository, as the items of a backlog."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.models.backlog import ITEMS_MOST
from perdure.models.errors import BadInput, ForgeRefused, ForgeUnavailable
from perdure.models.issue import IssueQuery

if TYPE_CHECKING:
    from perdure.adapters.forges.base import HostedForge


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


def open_issues(forge: HostedForge, wanted: IssueQuery) -> tuple[int, ...]:
    """Their numbers, the oldest first. BadInput when there are none, or too many."""
    try:
        found = forge.issues(wanted, ITEMS_MOST)
    except (ForgeRefused, ForgeUnavailable) as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error
    if not found:
        fix = f"look at {forge.web}/issues"
        raise BadInput(f"no open issue has {wanted.kind} {wanted.words!r}", where="--issues", fix=fix)
    return tuple(found)
