"""`perdure config`: which settings count here, and where each comes from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure import secrets
from perdure.cli.ids import Json
from perdure.cli.request.repository import CONFIG_FILE, find_local_repository, read_file_at_commit
from perdure.cli.screen import Screen
from perdure.cli.table import align_columns

if TYPE_CHECKING:
    from perdure.adapters.git.target import TargetRepository
    from perdure.adapters.repository.config import EffectiveConfig
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
    effective_settings = _read_effective(repo, base, file)
    values = dict(sorted(_flatten_settings(effective_settings.config.model_dump(mode="json", by_alias=True))))
    if json:
        screen.print_json(
            {
                name: {"value": value, "origin": effective_settings.origins.get(name, "default")} if origin else value
                for name, value in values.items()
            }
        )
        return
    rows = [
        (name, _format_value(value), *([effective_settings.origins.get(name, "default")] if origin else []))
        for name, value in values.items()
    ]
    screen.print_lines(align_columns(rows, screen.table_width))


def _read_effective(repo: str, base: str | None, file: Path | None) -> EffectiveConfig:
    """Read the settings of the repository `repo` on branch `base`, with those of `--config`, and return what counts.

    Setup and test commands that are not set are detected, where there is a checkout. Asks the remote; raises BadInput.
    """
    from perdure.adapters.forges.select import Forges
    from perdure.adapters.git.target import resolve_repository
    from perdure.adapters.repository.config import fill_in_detected, load_repository_config
    from perdure.adapters.repository.detect import detect_commands
    from perdure.cli.request.repository import read_config

    option_settings = load_repository_config(read_config(file), str(file)) if file else None
    target = resolve_repository(repo, Path.cwd(), Forges.from_environment(secrets.environment()))
    effective_settings = read_base_settings(target, base, option_settings)
    return (
        fill_in_detected(effective_settings, detect_commands(target.checkout))
        if target.checkout is not None
        else effective_settings
    )


def read_base_settings(
    target: TargetRepository, base: str | None = None, overrides: RepositoryConfig | None = None
) -> EffectiveConfig:
    """Return the settings that count for a delivery from the base branch.

    The branch's perdure.toml is read where its commit is on this machine; nothing is fetched. `overrides`: the settings
    of `--config`. Raises BadInput.
    """
    from perdure.adapters.repository.config import load_repository_config, merge_config
    from perdure.adapters.repository.host import load_host_config

    host = load_host_config(os.environ)
    name, sha = target.base_branch(base)
    local_repository = find_local_repository(target, sha)
    text = read_file_at_commit(local_repository, sha) if local_repository is not None else None
    where = f"{CONFIG_FILE} on {name}"
    base_settings = load_repository_config(text, where) if text is not None else None
    return merge_config(host=host, env=os.environ, repository=base_settings, repository_name=where, config=overrides)


def _flatten_settings(table: dict[str, object], prefix: str = "") -> list[tuple[str, object]]:
    """Convert nested tables to pairs of dotted name and value, such as `limits.budget_usd`."""
    leaves: list[tuple[str, object]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            leaves += _flatten_settings(value, f"{prefix}{name}.")
        else:
            leaves.append((f"{prefix}{name}", value))
    return leaves


def _format_value(value: object) -> str:
    """Return a setting's value as text: test commands as `name: command; …`, everything else as JSON."""
    import json

    if (
        isinstance(value, list)
        and value
        and all(isinstance(command, dict) and "command" in command for command in value)
    ):
        return "; ".join(f"{command['name']}: {command['command']}" for command in value)
    return json.dumps(value, ensure_ascii=False)
