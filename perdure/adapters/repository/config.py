"""Configuration: the repository's file read, and every source merged into what a delivery runs with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.adapters.repository import keys
from perdure.adapters.repository.detect import Detected
from perdure.adapters.repository.host import expand, merge, nested, user_file_name, variable_origins, variables
from perdure.models.amounts import seconds
from perdure.models.config import Limits, RepositoryConfig
from perdure.models.errors import BadInput
from perdure.models.host_config import HostConfig
from perdure.models.request import DeliveryRequest

DEFAULT = "default"
LOWERED = " (lowered to the host's limit)"

_HOST_ONLY = {("sandbox",), ("slots",), ("commands",), ("ports", "backend"), ("ports", "frontend")}


@dataclass(frozen=True)
class Effective:
    """The configuration that counts, and for every dotted name (`limits.budget_usd`) where it came from."""

    config: RepositoryConfig
    origins: dict[str, str]


def load_repository_config(text: str, where: str) -> RepositoryConfig:
    """Read a `perdure.toml`; `where` names it in errors.

    BadInput: `perdure.toml:14 [[test]] "unit" timeout` with what is wrong, the nearest name or the allowed range.
    """
    data = keys.load(text, where)
    for loc in _HOST_ONLY:
        table: Any = data
        for part in loc:
            table = table.get(part) if isinstance(table, dict) else None
        if table is not None:
            raise BadInput(
                f"{'.'.join(loc)} is for the host's owner to decide, a repository cannot set it",
                where=keys.place(text, where, loc, data),
                fix=f"remove it here; the owner sets it in {user_file_name()}",
            )
    config = keys.parse(text, where, RepositoryConfig)
    for name, times in Counter(test.name for test in config.test or ()).items():
        if times > 1:
            last = max(number for number, test in enumerate(config.test or ()) if test.name == name)
            raise BadInput(
                f"{times} test commands are called {name!r}",
                where=keys.place(text, where, ("test", last), data),
                fix="give each its own name",
            )
    return config


def effective(
    *,
    host: HostConfig,
    env: Mapping[str, str],
    repository: RepositoryConfig | None = None,
    repository_name: str = "perdure.toml on main",
    config: RepositoryConfig | None = None,
    request: DeliveryRequest | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Effective:
    """Merge all sources, the strongest last: defaults, user file, perdure.toml of the base branch, `--config`
    (which is used *instead of* that file), `PERDURE_*`, request, flags.

    host      from load_host_config with the same `env`: its limits are the most anybody gets, whatever asked for more
    config    what came with the request; request  its other fields that are settings
    flags     dotted name → value, for a command line that shows what would count
    """
    written, name = (config, "--config") if config is not None else (repository, repository_name)
    asked = _asked(request)
    layers: list[tuple[str | Mapping[str, str], dict[str, Any]]] = [
        (user_file_name(), _written(host, {"limits", "steps"})),
        (name, _written(written) if written is not None else {}),
        (variable_origins(env), {k: v for k, v in variables(env).items() if k in ("limits", "steps")}),
        ("request", asked),
    ]
    for dotted, value in (flags or {}).items():
        layers.append(("flag", nested(dotted, value)))

    merged = RepositoryConfig(version=1).model_dump(mode="json", by_alias=True)
    origins = dict.fromkeys(_leaves(merged), DEFAULT)
    for origin, layer in layers:
        merged = merge(merged, layer)
        for dotted in _leaves(layer):
            origins[dotted] = origin if isinstance(origin, str) else origin.get(dotted, DEFAULT)
    for (table, key), more in _added(request).items():
        merged[table][key] = list(dict.fromkeys([*merged[table][key], *more]))
        origins[f"{table}.{key}"] += " and request"
    config = RepositoryConfig.model_validate(merged)
    return Effective(config.model_copy(update={"limits": _clipped(config.limits, origins, host)}), origins)


def with_detected(effective: Effective, detected: Detected) -> Effective:
    """Setup and test commands nobody wrote down, filled in with the detected ones."""
    config, origins = effective.config, dict(effective.origins)
    if config.setup.commands is None:
        setup = config.setup.model_copy(update={"commands": detected.setup})
        config = config.model_copy(update={"setup": setup})
        origins["setup.commands"] = "detected"
    if config.test is None:
        config = config.model_copy(update={"test": detected.tests})
        origins["test"] = "detected"
    return Effective(config, origins)


def _asked(request: DeliveryRequest | None) -> dict[str, Any]:
    """A request's settings, as tables."""
    if request is None:
        return {}
    said = {
        "delivery.phases": list(request.phases) if request.phases is not None else None,
        "delivery.questions": request.questions,
        "delivery.attempts": request.attempts,
        "delivery.after_red": request.after_red,
        "limits.budget_usd": request.budget_usd,
        "limits.tokens": request.tokens,
        **dict.fromkeys(expand("steps.*.agent"), request.agent),
        **dict.fromkeys(expand("steps.*.model"), request.model),
    }
    asked: dict[str, Any] = {}
    for dotted, value in said.items():
        if value is not None:
            asked = merge(asked, nested(dotted, value))
    return asked


def _added(request: DeliveryRequest | None) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return what a request adds to the configured: a person who set a gate is not overruled by who submits."""
    if request is None:
        return {}
    more = {("ship", "labels"): request.labels, ("gates", "before"): request.gates}
    return {where: names for where, names in more.items() if names}


def _written(model: RepositoryConfig | HostConfig, only: set[str] | None = None) -> dict[str, Any]:
    """Return what a person actually wrote in a file, as tables."""
    written = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {name: value for name, value in written.items() if name != "version" and (only is None or name in only)}


def _leaves(table: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def _clipped(limits: Limits, origins: dict[str, str], host: HostConfig) -> Limits:
    """Budget and time always have a host's limit, the others where the owner set one."""
    lowered: dict[str, Any] = {}
    for name in host.limits.model_fields_set | {"budget_usd", "time"}:
        asked, highest = getattr(limits, name), getattr(host.limits, name)
        if highest is not None and _over(name, asked, highest):
            lowered[name] = highest
            origins[f"limits.{name}"] += LOWERED
    return limits.model_copy(update=lowered)


def _over(name: str, asked: Any, highest: Any) -> bool:
    """True where a limit is higher than the host's; without one it is higher than any."""
    if asked is None:
        return True
    return seconds(asked) > seconds(highest) if name == "time" else bool(asked > highest)
