"""`perdure pulls`: the pull requests of a local forge and the command that takes one; for another forge, its
address."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from perdure import secrets
from perdure.adapters.forges.base import Forge, HostedForge
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.forges.select import Forges
from perdure.adapters.git.command import GitError, redact
from perdure.adapters.git.foreign_repository import find_repository
from perdure.adapters.git.target import resolve_repository
from perdure.cli.request.repository import origin_url
from perdure.cli.screen import Screen
from perdure.models.errors import BadInput
from perdure.render.formatting import align_columns
from perdure.text import one_line, short_sha, visible


def pulls(number: int | None, repo: str, json: bool) -> None:
    """Print the pull requests of a local forge, a repository that is a directory; with `number` one of them, and how to
    take it.

    Raises BadInput when they have a web page of their own, which it names, or are not kept in a directory; ForgeRefused
    when there is no such number.
    """
    screen = Screen(json=json)
    if number is None:
        _print_all(screen, repo)
    else:
        _print_one_pull(screen, repo, number)


def _print_all(screen: Screen, repo: str) -> None:
    """Print all pull requests of a local forge as a table, or as JSON.

    Raises BadInput when the repository has no local forge, with the web page of its pull requests when they have one.
    """
    entries = _find_local_forge(repo, "pulls").list_pulls()
    if screen.json:
        screen.print_json([pull.model_dump() | {"state": state} for pull, state in entries])
    elif entries:
        rows = [(f"#{pull.number}", state + (", draft" if pull.draft else ""), pull.title) for pull, state in entries]
        screen.print_lines(align_columns(rows, screen.table_width))
    else:
        screen.print_line("no pull request yet")


def _print_one_pull(screen: Screen, repo: str, number: int) -> None:
    """Print one pull request of a local forge: title, state, branches, the git command that takes it, its text; or as
    JSON.

    Raises BadInput when the repository has no local forge, and ForgeRefused when there is no such number.
    """
    details = _find_local_forge(repo, f"pull/{number}").pull_details(number)
    if screen.json:
        screen.print_json(asdict(details) | {"pull": details.pull.model_dump()})
        return
    draft = ", draft" if details.pull.draft else ""
    screen.print_lines(
        [
            f"#{number}  {one_line(details.pull.title)}  ({details.state}{draft})",
            f"  {one_line(details.pull.head)} at {short_sha(details.head_sha)} → {one_line(details.pull.base)}",
            f"  take it  {visible(details.take)}",
            "",
            *visible(details.body).rstrip().splitlines(),
        ]
    )


def _find_local_forge(repo: str, page: str) -> LocalForge:
    """Find the local forge of a repository. `page`: the page that a hosted forge has for what is asked, such as
    `pulls`.

    Raises BadInput where the pull requests have a web page of their own, which it names, or are not kept in a
    directory. A forge that the origin's address reveals is not asked whether we may see the repository.
    """
    forges, path = Forges.from_environment(secrets.environment()), Path(os.path.expanduser(repo))
    address = repo if "://" in repo or repo.startswith(("/", ".", "~")) else f"{forges.home_server()}/{repo}"
    candidates = [_find_origin(path) or ""] if path.exists() else [repo, address]
    forge: Forge | None = next((f for f in map(forges.forge, candidates) if isinstance(f, HostedForge)), None)
    url = ""
    if forge is None:
        url = resolve_repository(repo, Path.cwd(), forges).url
        forge = forges.forge(url)
    if isinstance(forge, HostedForge):
        page_url = f"{forge.web_url}/{page}"
        raise BadInput(
            f"the pull requests of this repository are on {forge.name}", where=page_url, fix="open that page"
        )
    if not isinstance(forge, LocalForge):
        what = "the pull requests of this repository are not kept in a directory"
        raise BadInput(what, where=redact(url), fix="look at them where the repository lives")
    return forge


def _find_origin(path: Path) -> str | None:
    """Return the address of the origin of the working tree that `path` is in; None when it has none, or there is no
    repository.

    None for a bare repository, too: people push to it, so that it is itself the one that is meant, not its origin.
    """
    folder = path if path.is_dir() else path.parent
    try:
        root = find_repository(folder).root
    except GitError:
        return None
    return origin_url(root) if root is not None else None
