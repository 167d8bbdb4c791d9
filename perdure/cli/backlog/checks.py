"""Checks of a backlog's request before anything is started for it: against its repository, against the open issues of
its forge, and against a backlog that has its id already. Used by `perdure backlog start`, and for issues by `add` and
`edit`; what is wrong within the request itself is found in `perdure.models`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.adapters.forges.select import Forges
from perdure.adapters.git.command import Git
from perdure.adapters.git.publish import conflicting_branch
from perdure.adapters.git.target import resolve_repository
from perdure.adapters.repository.config import load_repository_config
from perdure.cli.commands.options import option_name
from perdure.cli.request.issue import hosted_forge
from perdure.cli.request.validation import CheckedRequest, check_gates
from perdure.client.backlog import Backlog, list_known_issues
from perdure.models.backlog.request import ITEMS_MOST, BacklogRequest
from perdure.models.errors import BadInput, ForgeRefused, ForgeUnavailable, InvalidRequest
from perdure.models.forges import issue_sources
from perdure.models.issue import IssueQuery, parse_repository_address
from perdure.models.phases import Phase
from perdure.models.rules.backlog import ignored_fields
from perdure.text import format_money, one_line, shell_word

if TYPE_CHECKING:
    from perdure.adapters.forges.base import HostedForge


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

    The rules are those of perdure.adapters.git.publish.is_branch_name.
    """
    if branch == "HEAD" or branch.startswith(("-", "refs/")) or not branch.isprintable():
        return False
    git = Git(cwd=Path(tempfile.gettempdir()))
    return git.execute("check-ref-format", f"refs/heads/{branch}", ok=(0, 1)).returncode == 0


def check_config(request: BacklogRequest) -> None:
    """Raise InvalidRequest, as `config: why`, where the request's settings are not a valid perdure.toml."""
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
    return hosted_forge(Forges.from_environment(dict(env)), url) is not None or (
        parse_repository_address(url) is not None and elsewhere
    )


def _check_gates(request: BacklogRequest, checked: CheckedRequest) -> None:
    """Raise InvalidRequest, as `gates: why`, for a gate of a phase that the settings do not select.

    `perdure backlog start` has no --phases: the repository's settings decide.
    """
    phases = tuple(Phase) if (config := checked.repository_config) is None else config.delivery.phases
    try:
        check_gates(request.gates, phases, push=False)
    except BadInput as error:
        fix = f"select it in [delivery] phases ({checked.file}), or leave the gate out"
        raise InvalidRequest(f"gates: {error.what}", fix=fix) from None


def find_issue_forge(text: str, repository: str, env: Mapping[str, str]) -> tuple[HostedForge, IssueQuery]:
    """Return (the repository's forge, the parsed query of `--issues`).

    Raises BadInput when the text is no query for issues, the repository cannot be found, or it has no forge whose
    issues can be read. Blocks on git and the network.
    """
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
    """Ask the forge for the open issues of a query; return (their numbers, the oldest first; pull requests by issue).

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


def ignored_settings_line(existing: BacklogRequest, resubmitted: BacklogRequest) -> str:
    """Return one line that names the settings in which the resubmitted request differs from the existing one.

    `parallel 8 (it has 2), config did not count`: the backlog keeps what it was started with. Empty: nothing differs.
    """
    parts = []
    for field in ignored_fields(existing, resubmitted):
        values = f" {_field_text(field, resubmitted)} (it has {_field_text(field, existing)})"
        name = option_name(field).removeprefix("--").removeprefix("no-")
        parts.append(name + (values if field != "config" else ""))
    return f"{', '.join(parts)} did not count" if parts else ""


def missing_issues_line(id: str, issues: Sequence[int], *, running: bool, repo: str = "") -> str:
    """Return one line that names open issues which the backlog does not have, and the command that adds them.

    Where the backlog has ended it is the command that delivers them by themselves. `repo`: the repository as it was
    typed. Empty: no issue is missing.
    """
    if not issues:
        return ""
    numbers = " ".join(map(str, issues))
    issue_argument = numbers if len(issues) == 1 else "$issue"
    command = f"perdure backlog add {shell_word(id)} --issue {issue_argument}"
    if not running:
        repo_option = f" --repo {shell_word(repo)}" if repo else ""
        command = f"perdure deliver --issue {issue_argument}{repo_option}{' --detach' if len(issues) > 1 else ''}"
    ended_note = "" if running else ", and it has ended"
    if len(issues) == 1:
        return f"issue {numbers} has come since{ended_note}: {command}"
    return (
        f"issues {', '.join(map(str, issues))} have come since{ended_note}: for issue in {numbers}; do {command}; done"
    )


def _field_text(name: str, request: BacklogRequest) -> str:
    """Return a field of the request as text for a person, at most 60 characters: `none`, `yes`, `$5.00`,
    `plan+pull_request`."""
    value: Any = getattr(request, name)
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return one_line("+".join(value), 60)
    return format_money(value) if name == "budget_usd" else one_line(str(value), 60)
