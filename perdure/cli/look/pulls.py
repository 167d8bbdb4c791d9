"""`perdure pulls`: the pull requests of a local forge, and how to take one; of another, where they are."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure import secrets
from perdure.cli.ids import Json
from perdure.cli.request.repository import origin_of
from perdure.cli.screen import Screen
from perdure.cli.table import columns
from perdure.cli.words import short
from perdure.models.errors import BadInput
from perdure.text import one_line, visible

if TYPE_CHECKING:
    from perdure.adapters.forges.base import Forge
    from perdure.adapters.forges.local import LocalForge


def pulls(
    number: Annotated[
        int | None, typer.Argument(metavar="N", min=1, help="Only this one, with the exact git command to take it.")
    ] = None,
    repo: Annotated[
        str, typer.Option("--repo", metavar="PATH|URL", help="A path with an origin means that origin.")
    ] = ".",
    json: Json = False,
) -> None:
    """Pull requests of a repository that is a directory; with a number one of them, and how to take it."""
    screen = Screen(json=json)
    if number is None:
        _all(screen, repo)
    else:
        _one(screen, repo, number)


def _all(screen: Screen, repo: str) -> None:
    found = _forge(repo, "pulls").list()
    if screen.json:
        screen.data([pull.model_dump() | {"state": state} for pull, state in found])
    elif found:
        rows = [(f"#{pull.number}", state + (", draft" if pull.draft else ""), pull.title) for pull, state in found]
        screen.lines(columns(rows, screen.room))
    else:
        screen.line("no pull request yet")


def _one(screen: Screen, repo: str, number: int) -> None:
    found = _forge(repo, f"pull/{number}").show(number)
    if screen.json:
        screen.data(asdict(found) | {"pull": found.pull.model_dump()})
        return
    draft = ", draft" if found.pull.draft else ""
    screen.lines(
        [
            f"#{number}  {one_line(found.pull.title)}  ({found.state}{draft})",
            f"  {one_line(found.pull.head)} at {short(found.head_sha)} → {one_line(found.pull.base)}",
            f"  take it  {visible(found.take)}",
            "",
            *visible(found.body).rstrip().splitlines(),
        ]
    )


def _forge(repo: str, page: str) -> LocalForge:
    """`page`: what is asked for, as a hosted forge calls it. BadInput where pull requests have a web page of their own.

    A forge that can be told by the origin's address is not asked whether we may see it.
    """
    from perdure.adapters.forges.base import HostedForge
    from perdure.adapters.forges.local import LocalForge
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.door import redact
    from perdure.adapters.git.source import resolve

    forges, path = Forges.from_environment(secrets.environment()), Path(os.path.expanduser(repo))
    named = repo if "://" in repo or repo.startswith(("/", ".", "~")) else f"{forges.home_server()}/{repo}"
    known = [_origin(path) or ""] if path.exists() else [repo, named]
    forge: Forge | None = next((f for f in map(forges.forge, known) if isinstance(f, HostedForge)), None)
    url = ""
    if forge is None:
        url = resolve(repo, Path.cwd(), forges).url
        forge = forges.forge(url)
    if isinstance(forge, HostedForge):
        where = f"{forge.web}/{page}"
        raise BadInput(f"the pull requests of this repository are on {forge.name}", where=where, fix="open that page")
    if not isinstance(forge, LocalForge):
        what = "the pull requests of this repository are not kept in a directory"
        raise BadInput(what, where=redact(url), fix="look at them where the repository lives")
    return forge


def _origin(path: Path) -> str | None:
    """The origin of a working tree; a bare repository is where people push to, and is meant itself."""
    from perdure.adapters.git.door import GitError
    from perdure.adapters.git.visit import find

    place = path if path.is_dir() else path.parent
    try:
        root = find(place).root
    except GitError:
        return None
    return origin_of(root) if root is not None else None
