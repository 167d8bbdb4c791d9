"""The mistakes in a backlog that its repository shows: found before anything is started for it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.forges import readable_issues
from perdure.models.issue import address
from perdure.models.phases import Phase

if TYPE_CHECKING:
    from perdure.cli.request.validation import Taken
    from perdure.models.backlog import BacklogRequest


def check_with(taken: Taken, request: BacklogRequest, env: Mapping[str, str]) -> None:
    """InvalidRequest, as `field: why`, for an integration branch that nobody could land on, and issues where nobody can
    read any. Blocks on git. The worker looks again: much may change until then."""
    if request.branch is not None:
        _check_branch(request.branch, taken)
    asking = ["issues"] if request.issues is not None else []
    asking += [f"items.{at}.issue" for at, item in enumerate(request.items) if item.issue is not None]
    if asking and not reads_issues(taken.target.url, env, elsewhere=taken.elsewhere):
        raise no_issues(asking[0])
    _check_gates(request, taken)


def no_issues(field: str) -> InvalidRequest:
    """The refusal of a field that names issues where nobody can read any."""
    what = f"{field}: this repository has no issues that Perdure can read"
    return InvalidRequest(what, fix=f"say in the request what is wanted; issues are read on {readable_issues()}")


def _check_branch(branch: str, taken: Taken) -> None:
    from perdure.adapters.git.branch import in_the_way

    fix = "name another one, or leave it out for one of the backlog's own"
    if not _is_name(branch):
        raise InvalidRequest(f"branch: {branch!r} cannot be a branch's name", fix=fix)
    heads = taken.target.heads
    if branch in (taken.base, heads.default):
        kind = "base" if branch == taken.base else "default"
        raise InvalidRequest(f"branch: {branch} is the {kind} branch: nobody lands there", fix=fix)
    if other := in_the_way(heads.branches, branch):
        what = f"branch: the remote has a branch {other}, so that {branch} cannot exist beside it"
        raise InvalidRequest(what, fix=fix)


def _is_name(branch: str) -> bool:
    """As perdure.adapters.git.branch.is_branch_name, without a repository: none is needed for it."""
    from perdure.adapters.git.door import Git

    if branch == "HEAD" or branch.startswith(("-", "refs/")) or not branch.isprintable():
        return False
    git = Git(cwd=Path(tempfile.gettempdir()))
    return git.run("check-ref-format", f"refs/heads/{branch}", ok=(0, 1)).returncode == 0


def check_config(request: BacklogRequest) -> None:
    """InvalidRequest, as `config: why`, for settings that are none."""
    from perdure.adapters.repository.config import load_repository_config

    if request.config is None:
        return
    try:
        load_repository_config(request.config, "config")
    except BadInput as error:
        at = f" ({error.where})" if error.where not in ("", "config") else ""
        raise InvalidRequest(f"config: {error.what}{at}", fix=error.fix) from None


def reads_issues(url: str, env: Mapping[str, str], *, elsewhere: bool) -> bool:
    """True also where only the workers may know its forge, which are `elsewhere`: they have settings of their own."""
    from perdure.adapters.forges.select import Forges
    from perdure.cli.request.issue import hosted

    return hosted(Forges.from_environment(dict(env)), url) is not None or (address(url) is not None and elsewhere)


def _check_gates(request: BacklogRequest, taken: Taken) -> None:
    """InvalidRequest, as `gates: why`: `start` has no --phases, they are what the settings say."""
    from perdure.cli.request.validation import check_gates

    phases = tuple(Phase) if (config := taken.repository_config) is None else config.delivery.phases
    try:
        check_gates(request.gates, phases, push=False)
    except BadInput as error:
        fix = f"select it in [delivery] phases ({taken.file}), or leave the gate out"
        raise InvalidRequest(f"gates: {error.what}", fix=fix) from None
