"""`perdure config`: which settings count here, and where each comes from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure import secrets
from perdure.cli.ids import Json
from perdure.cli.request.repository import NAME, file_at, place_of
from perdure.cli.screen import Screen
from perdure.cli.table import columns

if TYPE_CHECKING:
    from perdure.adapters.git.source import Target
    from perdure.adapters.repository.config import Effective
    from perdure.models.config import RepositoryConfig


def config(
    origin: Annotated[bool, typer.Option("--origin", help="Say where each setting comes from.")] = False,
    repo: Annotated[str, typer.Option("--repo", metavar="PATH|URL", help="Whose settings.")] = ".",
    base: Annotated[str | None, typer.Option("--base", metavar="BRANCH", help="Whose perdure.toml counts.")] = None,
    file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A perdure.toml to use instead.")
    ] = None,
    json: Json = False,
) -> None:
    """The settings a delivery of this repository would run with.

    Flags beat the request, that beats PERDURE_* variables, --config, perdure.toml of the base branch, the user's
    file and the defaults. A repository's file can lower this host's limits, never raise them.
    """
    screen = Screen(json=json)
    counts = _counts(repo, base, file)
    values = dict(sorted(_leaves(counts.config.model_dump(mode="json", by_alias=True))))
    if json:
        screen.data(
            {
                name: {"value": value, "origin": counts.origins.get(name, "default")} if origin else value
                for name, value in values.items()
            }
        )
        return
    rows = [
        (name, _written(value), *([counts.origins.get(name, "default")] if origin else []))
        for name, value in values.items()
    ]
    screen.lines(columns(rows, screen.room))


def _counts(repo: str, base: str | None, file: Path | None) -> Effective:
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.source import resolve
    from perdure.adapters.repository.config import load_repository_config, with_detected
    from perdure.adapters.repository.detect import detect
    from perdure.cli.request.repository import read_config

    given = load_repository_config(read_config(file), str(file)) if file else None
    target = resolve(repo, Path.cwd(), Forges.from_environment(secrets.environment()))
    counts = settings_of(target, base, given)
    return with_detected(counts, detect(target.checkout)) if target.checkout is not None else counts


def settings_of(target: Target, base: str | None = None, given: RepositoryConfig | None = None) -> Effective:
    """The settings on the base branch, as far as it is known here without fetching. Raises BadInput."""
    from perdure.adapters.repository.config import effective, load_repository_config
    from perdure.adapters.repository.host import load_host_config

    host = load_host_config(os.environ)
    name, sha = target.base(base)
    place = place_of(target, sha)
    text = file_at(place, sha) if place is not None else None
    where = f"{NAME} on {name}"
    written = load_repository_config(text, where) if text is not None else None
    return effective(host=host, env=os.environ, repository=written, repository_name=where, config=given)


def _leaves(table: dict[str, object], above: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            found += _leaves(value, f"{above}{name}.")
        else:
            found.append((f"{above}{name}", value))
    return found


def _written(value: object) -> str:
    import json

    if isinstance(value, list) and value and all(isinstance(one, dict) and "command" in one for one in value):
        return "; ".join(f"{one['name']}: {one['command']}" for one in value)
    return json.dumps(value, ensure_ascii=False)
