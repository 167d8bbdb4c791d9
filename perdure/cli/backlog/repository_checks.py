"""Checks of a backlog's request against its repository, before anything is started for it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.forges import issue_sources
from perdure.models.issue import parse_repository_address
from perdure.models.phases import Phase

if TYPE_CHECKING:
    from perdure.cli.request.validation import CheckedRequest
    from perdure.models.backlog import BacklogRequest


def check_against_repository(checked: CheckedRequest, request: BacklogRequest, env: Mapping[str, str]) -> None:
    """Raise InvalidRequest, as `field: why`, for a request that does not fit its repository.

    Refuses an integration branch that nobody can land on, issues that nobody can read, and gates of phases that are not
    selected. Blocks on git. The worker checks again: much may change until then.
    """
    if request.branch is not None:
        _check_branch(request.branch, checked)
    issue_fields = ["issues"] if request.issues is not None else []
    issue_fields += [f"items.{index}.issue" for index, item in enumerate(request.items) if item.issue is not None]
    if issue_fields and not can_read_issues(checked.target.url, env, elsewhere=checked.elsewhere):
        raise unreadable_issues_error(issue_fields[0])
    _check_gates(request, checked)


def unreadable_issues_error(field: str) -> InvalidRequest:
    """Return the error for a field that names issues of a repository where nobody can read any."""
    what = f"{field}: this repository has no issues that Perdure can read"
    return InvalidRequest(what, fix=f"say in the request what is wanted; issues are read on {issue_sources()}")


def _check_branch(branch: str, checked: CheckedRequest) -> None:
    """Raise InvalidRequest unless the integration branch has a valid name, is neither base nor default branch, and can
    exist beside the remote's branches."""
    from perdure.adapters.git.branch import conflicting_branch

    fix = "name another one, or leave it out for one of the backlog's own"
    if not _is_branch_name(branch):
        raise InvalidRequest(f"branch: {branch!r} cannot be a branch's name", fix=fix)
    heads = checked.target.heads
    if branch in (checked.base, heads.default):
        kind = "base" if branch == checked.base else "default"
        raise InvalidRequest(f"branch: {branch} is the {kind} branch: nobody lands there", fix=fix)
    if other := conflicting_branch(heads.branches, branch):
        what = f"branch: the remote has a branch {other}, so that {branch} cannot exist beside it"
        raise InvalidRequest(what, fix=fix)


def _is_branch_name(branch: str) -> bool:
    """Return whether git accepts the name for a branch, by `git check-ref-format`; no repository is needed for that.

    The rules are those of perdure.adapters.git.branch.is_branch_name.
    """
    from perdure.adapters.git.command import Git

    if branch == "HEAD" or branch.startswith(("-", "refs/")) or not branch.isprintable():
        return False
    git = Git(cwd=Path(tempfile.gettempdir()))
    return git.execute("check-ref-format", f"refs/heads/{branch}", ok=(0, 1)).returncode == 0


def check_config(request: BacklogRequest) -> None:
    """Raise InvalidRequest, as `config: why`, where the request's settings are not a valid perdure.toml."""
    from perdure.adapters.repository.config import load_repository_config

    if request.config is None:
        return
    try:
        load_repository_config(request.config, "config")
    except BadInput as error:
        location = f" ({error.where})" if error.where not in ("", "config") else ""
        raise InvalidRequest(f"config: {error.what}{location}", fix=error.fix) from None


def can_read_issues(url: str, env: Mapping[str, str], *, elsewhere: bool) -> bool:
    """Return whether issues of the repository at `url` can be read, here or by the workers.

    `elsewhere`: the workers are on other hosts and have settings of their own; then every repository on a server
    counts, since only they may know its forge.
    """
    from perdure.adapters.forges.select import Forges
    from perdure.cli.request.issue import hosted_forge

    return hosted_forge(Forges.from_environment(dict(env)), url) is not None or (
        parse_repository_address(url) is not None and elsewhere
    )


def _check_gates(request: BacklogRequest, checked: CheckedRequest) -> None:
    """Raise InvalidRequest, as `gates: why`, for a gate of a phase that the settings do not select.

    `perdure backlog start` has no --phases: the repository's settings decide.
    """
    from perdure.cli.request.validation import check_gates

    phases = tuple(Phase) if (config := checked.repository_config) is None else config.delivery.phases
    try:
        check_gates(request.gates, phases, push=False)
    except BadInput as error:
        fix = f"select it in [delivery] phases ({checked.file}), or leave the gate out"
        raise InvalidRequest(f"gates: {error.what}", fix=fix) from None
