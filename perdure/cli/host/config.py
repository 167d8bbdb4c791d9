"""`perdure config`: the settings that a delivery of this repository would run with, and where each comes from. `perdure
doctor` reads those of a base branch here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from perdure import secrets
from perdure.adapters.forges.select import Forges
from perdure.adapters.git.target import TargetRepository, resolve_repository
from perdure.adapters.repository.config import EffectiveConfig, fill_in_detected, load_repository_config, merge_config
from perdure.adapters.repository.detect import detect_commands
from perdure.adapters.repository.host import load_host_config
from perdure.cli.request.repository import find_local_repository, read_config, read_file_at_commit
from perdure.cli.screen import Screen
from perdure.models.config.repository import CONFIG_FILE
from perdure.render.formatting import align_columns

if TYPE_CHECKING:
    from perdure.models.config.repository import RepositoryConfig


def config(origin: bool, repo: str, base: str | None, file: Path | None, json: bool) -> None:
    """Print the settings that a delivery of this repository would run with, as a table or JSON; with `origin` where
    each comes from.

    Asks the repository's remote. Raises BadInput when a setting is wrong, or the repository or branch cannot be found.
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
    """Return the settings of the repository `repo` on branch `base`, with those of `--config`, and where each comes
    from.

    Setup and test commands that are not set are detected when there is a checkout. Asks the remote. Raises BadInput
    when a setting is wrong, or the repository or branch cannot be found.
    """
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
    """Return the settings that count for a delivery from the base branch, and where each comes from.

    Merges the host's settings, the branch's perdure.toml and PERDURE_* variables of this process. That file is read
    when its commit is on this machine, else left out; nothing is fetched. `overrides`, the settings of `--config`,
    count instead of that file. Raises BadInput when a setting is wrong or there is no such branch.
    """
    host = load_host_config(os.environ)
    name, sha = target.base_branch(base, field="--base")
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
    if (
        isinstance(value, list)
        and value
        and all(isinstance(command, dict) and "command" in command for command in value)
    ):
        return "; ".join(f"{command['name']}: {command['command']}" for command in value)
    return json.dumps(value, ensure_ascii=False)
