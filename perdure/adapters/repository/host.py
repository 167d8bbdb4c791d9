"""The settings of this host's owner: the user file, `PERDURE_*` variables, and the file of shared budgets, read and
merged, for the worker, activities and the command line; and which shared budgets a delivery counts against. A
repository's own settings are in `repository.config`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platformdirs import user_config_path
from pydantic import ValidationError

from perdure.adapters.repository.keys import describe_problem, key_names, load_toml, parse_toml_model
from perdure.adapters.system.bounded import read_text, unreadable_reason
from perdure.models.base import UserInputModel
from perdure.models.budget.treasury import Budgets, matching_budgets
from perdure.models.config.host import HostConfig
from perdure.models.config.repository import Limits, StepsSettings
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.turn import Contract
from perdure.models.errors import BadInput
from perdure.models.forges import FORGES
from perdure.models.limits import CONFIG_BYTES
from perdure.text import nearest

VARIABLES: Mapping[str, str] = {
    "PERDURE_SANDBOX": "sandbox",
    "PERDURE_PORTS_BACKEND": "ports.backend",
    "PERDURE_PORTS_FRONTEND": "ports.frontend",
    "PERDURE_SLOTS": "slots",
    "PERDURE_ENVIRONMENTS_GB": "environments.gigabytes",
    "PERDURE_BUDGET_USD": "limits.budget_usd",
    "PERDURE_TOKENS": "limits.tokens",
    "PERDURE_TIME": "limits.time",
    "PERDURE_TEST_FIXES": "limits.test_fixes",
    "PERDURE_REVIEW_FIXES": "limits.review_fixes",
    "PERDURE_TURNS_PER_STEP": "limits.turns_per_step",
    "PERDURE_AGENT": "steps.*.agent",
    "PERDURE_MODEL": "steps.*.model",
    "PERDURE_MODEL_AT_ONCE": "model.at_once",
    "PERDURE_PAGE_ADDRESS": "page.address",
    "PERDURE_LOCAL_REPOSITORIES": "local_repositories",
    "PERDURE_SETUP_HOSTS": "setup_hosts",
}
"""Environment variable → setting; `*` stands for every step."""

OTHER_VARIABLES = (
    "PERDURE_HOME",
    "PERDURE_FORKS_FD",
    "PERDURE_SECRETS_FD",
    "PERDURE_REPORT",
    "PERDURE_REPORTS",
    "PERDURE_CRASH_AT",
    "PERDURE_DEBUG",
    "PERDURE_MODEL_SILENCE_S",
    "PERDURE_AGENT_IDLE_S",
    "PERDURE_MODEL_WINDOW",
    "PERDURE_MODEL_SCHEMA",
    "PERDURE_SQLITE_SYNCHRONOUS",
    "PERDURE_UI_URL",
    "PERDURE_PUBLISHER_QUEUE",
    "PERDURE_WORKER_ROLE",
    "PERDURE_TREASURY",
    "PERDURE_WEBHOOK_URL",
    "PERDURE_WEBHOOK_SECRET",
    *(name for forge in FORGES for name in (*forge.variables, *forge.secret_variables) if name.startswith("PERDURE_")),
)
"""Variables that mean something but are no settings: where things are, where tests crash, how much is logged."""


def user_file() -> Path:
    """Return the path of the host owner's settings: `~/.config/perdure/config.toml` on Linux."""
    return user_config_path("perdure") / "config.toml"


def user_file_name() -> str:
    """Return the path of the user file as people write it, with `~`."""
    path, home = user_file(), Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def load_host_config(env: Mapping[str, str], path: Path | None = None) -> HostConfig:
    """Return this host's settings, from defaults, user file, file of shared budgets and variables, the strongest last.

    A user file that is missing sets nothing. `limits` are the most any delivery on this host may use. Those the owner
    did not set have their default as value and are not in `model_fields_set`; of these only budget_usd and time are
    limits at all (the others have a range). Raises BadInput that names the line or the variable which is not valid, or
    the file that cannot be read.
    """
    path = path or user_file()
    try:
        text = read_text(path, CONFIG_BYTES)
    except FileNotFoundError:
        text = ""
    except (OSError, ValueError) as error:
        what = f"the user file cannot be read: {unreadable_reason(error)}"
        raise BadInput(what, where=str(path), fix="correct or remove it") from None
    parse_toml_model(text, str(path), HostConfig)
    try:
        host = HostConfig.model_validate(
            merge_tables({**load_toml(text, str(path)), **load_budget_file(env)}, variable_settings(env))
        )
    except ValidationError as error:  # each source is right alone; only port ranges are compared with each other
        where = f"{path} and PERDURE_PORTS_BACKEND, PERDURE_PORTS_FRONTEND"
        raise BadInput(
            describe_problem(error.errors()[0]), where=where, fix="choose ranges that do not overlap"
        ) from None
    if "limits" not in host.model_fields_set:
        return host
    unset = Limits.model_fields.keys() - host.limits.model_fields_set
    values = {
        name: getattr(HostConfig().limits if name in unset else host.limits, name) for name in Limits.model_fields
    }
    return host.model_copy(
        update={"limits": Limits.model_construct(_fields_set=host.limits.model_fields_set, **values)}
    )


def variable_settings(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in `PERDURE_*` variables as nested tables; an empty variable counts as not set.

    Raises BadInput that names the variable whose value is not valid.
    """
    settings: dict[str, Any] = {}
    for variable, setting in VARIABLES.items():
        if text := env.get(variable, "").strip():
            for dotted in expand_setting(setting):
                settings = merge_tables(settings, _parse_variable(variable, dotted, text))
    return settings


def variable_origins(env: Mapping[str, str]) -> dict[str, str]:
    """Return by dotted setting the `PERDURE_*` variable that sets it."""
    return {
        dotted: variable
        for variable, setting in VARIABLES.items()
        if env.get(variable, "").strip()
        for dotted in expand_setting(setting)
    }


def unknown_variables(env: Mapping[str, str]) -> list[str]:
    """Return one line for each `PERDURE_*` variable that means nothing: `PERDURE_SANBOX (did you mean
    PERDURE_SANDBOX?)`."""
    known = [*VARIABLES, *OTHER_VARIABLES]
    return [name + nearest(name, known) for name in sorted(env) if name.startswith("PERDURE_") and name not in known]


def expand_setting(setting: str) -> list[str]:
    """Return the dotted names that a setting stands for: for `steps.*.model` one for each step, else itself."""
    return [setting.replace("*", step) for step in key_names(StepsSettings)] if "*" in setting else [setting]


def nested_table(dotted: str, value: Any) -> dict[str, Any]:
    """Return nested tables with one value: `limits.time` and 5 make `{"limits": {"time": 5}}`."""
    for part in reversed(dotted.split(".")):
        value = {part: value}
    return dict(value)


def merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return two nested tables merged key by key; everything else, lists included, is replaced by what is in
    `above`."""
    merged = dict(below)
    for name, value in above.items():
        old_value = merged.get(name)
        merged[name] = (
            merge_tables(old_value, value) if isinstance(old_value, dict) and isinstance(value, dict) else value
        )
    return merged


def _parse_variable(variable: str, dotted: str, text: str) -> dict[str, Any]:
    """Return the text of a variable as nested tables, with ranges and lists split. Raises BadInput where it is not
    valid as that setting."""
    value: Any = text
    if dotted.startswith("ports."):
        value = _range_ends(text)
    elif dotted == "local_repositories":
        value = [path for path in text.split(os.pathsep) if path]
    elif dotted == "setup_hosts":
        value = text.replace(",", " ").split()
    table = nested_table(dotted, value)
    try:
        HostConfig.model_validate(table)
    except ValidationError as error:
        problems = [p for p in error.errors() if p["loc"] != ("ports",)]  # ranges are compared by load_host_config
        if problems:
            raise BadInput(
                f"{variable}={text}: {describe_problem(problems[0])}",
                where=f"environment variable {variable}",
                fix=_variable_fix(variable),
            ) from None
    return table


def _range_ends(text: str) -> list[str]:
    """Return both ends of `9100-9114` as texts; one number is a range of one."""
    first, _, last = text.partition("-")
    return [first.strip(), (last or first).strip()]


def _variable_fix(variable: str) -> str:
    """Return what a person can do about a variable whose value is not valid, with an example."""
    examples = {
        "PERDURE_SANDBOX": "full, reduced or off",
        "PERDURE_PORTS_BACKEND": "9100-9114",
        "PERDURE_PORTS_FRONTEND": "9200-9214",
        "PERDURE_ENVIRONMENTS_GB": "10, or 0 to keep none",
        "PERDURE_BUDGET_USD": "5.00",
        "PERDURE_TIME": "2h",
        "PERDURE_AGENT": "an agent's name, as perdure agents lists them",
        "PERDURE_MODEL": "a model's name",
    }
    return f"set it to {examples.get(variable, 'a whole number')}, or unset it"


BUDGETS_VARIABLE = "PERDURE_TREASURY"


class BudgetFile(UserInputModel):
    """The file of shared budgets: only `[[treasury]]`, so that the same file can lie on every host."""

    treasury: Budgets = ()


def load_budget_file(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables of the file that PERDURE_TREASURY names, whose budgets replace those of the user file; empty
    where the variable names none.

    Raises BadInput with file, line and key where the file is missing, cannot be read or is not valid.
    """
    if not (name := env.get(BUDGETS_VARIABLE, "").strip()):
        return {}
    try:
        text = read_text(Path(os.path.expanduser(name)), CONFIG_BYTES)
    except (OSError, ValueError) as error:
        what = f"the file of budgets cannot be read: {unreadable_reason(error)}"
        raise BadInput(what, where=f"{BUDGETS_VARIABLE}={name}", fix="correct it, or unset the variable") from None
    parse_toml_model(text, name, BudgetFile)
    return load_toml(text, name)


def shared_budgets(host: HostConfig, contract: Contract, request: DeliveryRequest) -> dict[str, float]:
    """Return the budgets of a day that a delivery shares with others, by rule its dollars a day.

    They are chosen by its repository, and by the labels of the request and its issue.
    """
    return matching_budgets(host.treasury, contract.repository, delivery_labels(contract, request))


def delivery_labels(contract: Contract, request: DeliveryRequest) -> tuple[str, ...]:
    """Return the labels of the request and of its issue, each once."""
    return tuple(dict.fromkeys((*request.labels, *(contract.issue.labels if contract.issue else ()))))
