"""The settings of a repository: its `perdure.toml`, parsed, and merged with all other sources into the settings of a
delivery; the text of a first one, made of what was detected; and its notes to agents (AGENTS.md). Used by activities
and the command line. Settings of the host's owner are in `repository.host`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.adapters.git.command import Git
from perdure.adapters.git.repository import read_file
from perdure.adapters.repository import keys
from perdure.adapters.repository.detect.commands import DetectedCommands
from perdure.adapters.repository.host import (
    expand_setting,
    merge_tables,
    nested_table,
    user_file_name,
    variable_origins,
    variable_settings,
)
from perdure.adapters.system.bounded import decode_text, read_beginning, unreadable_reason
from perdure.models.config.host import HostConfig
from perdure.models.config.repository import CONFIG_FILE, Limits, RepositoryConfig, TestCommand
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.turn import Note
from perdure.models.duration import parse_duration
from perdure.models.errors import BadInput
from perdure.models.limits import CONFIG_BYTES, DEFAULTS
from perdure.text import cut_bytes, format_money, format_tokens, shell_word

DEFAULT = "default"
LOWERED = " (lowered to the host's limit)"

_HOST_ONLY = {("sandbox",), ("slots",), ("commands",), ("ports", "backend"), ("ports", "frontend")}


@dataclass(frozen=True)
class EffectiveConfig:
    """The configuration that counts, and for every dotted name (`limits.budget_usd`) where it came from."""

    config: RepositoryConfig
    origins: dict[str, str]


def load_repository_config(text: str, where: str) -> RepositoryConfig:
    """Parse the text of a `perdure.toml` and return its settings; `where` names it in errors.

    Raises BadInput at `perdure.toml:14 [[test]] "unit" timeout` with what is wrong, the nearest name or the allowed
    range; also for settings that only the host's owner may make, and for two test commands of one name.
    """
    data = keys.load_toml(text, where)
    for loc in _HOST_ONLY:
        table: Any = data
        for part in loc:
            table = table.get(part) if isinstance(table, dict) else None
        if table is not None:
            raise BadInput(
                f"{'.'.join(loc)} is for the host's owner to decide, a repository cannot set it",
                where=keys.locate_key(text, where, loc, data),
                fix=f"remove it here; the owner sets it in {user_file_name()}",
            )
    config = keys.parse_toml_model(text, where, RepositoryConfig)
    for name, times in Counter(test.name for test in config.test or ()).items():
        if times > 1:
            last_index = max(index for index, test in enumerate(config.test or ()) if test.name == name)
            raise BadInput(
                f"{times} test commands are called {name!r}",
                where=keys.locate_key(text, where, ("test", last_index), data),
                fix="give each its own name",
            )
    return config


def decode_config(content: bytes | None, names: Sequence[str], place: str) -> str | None:
    """Return the text of a `perdure.toml`; None where there is none.

    content  the file's bytes; None: there is no such file, or it cannot be read
    names    of the files beside it, asked only then: another case of its name is a mistake that nobody would notice
    place    where it lies, for errors

    Raises BadInput where its name has capitals, it is there and cannot be read, or its bytes are no text.
    """
    if content is None:
        if CONFIG_FILE in names:
            fix = "make it a regular file; in a partial clone: git fetch --refetch --no-filter"
            raise BadInput(f"{CONFIG_FILE} is there and cannot be read as a file", where=place, fix=fix)
        if misnamed := next((name for name in names if name.casefold() == CONFIG_FILE), ""):
            fix = f"git mv {shell_word(misnamed)} {CONFIG_FILE}"
            raise BadInput(f"{misnamed} is not read: the name is {CONFIG_FILE}", where=place, fix=fix)
        return None
    try:
        return decode_text(content, CONFIG_BYTES)
    except ValueError as error:
        what = f"{CONFIG_FILE} cannot be read: {unreadable_reason(error)}"
        raise BadInput(what, where=place, fix="save it as UTF-8 text") from None


def read_committed_config(git: Git, commit: str) -> str | None:
    """Return the text of perdure.toml as a commit has it; None when it has none.

    Raises BadInput where it is no text, longer than CONFIG_BYTES, or named in capitals.
    """
    content = read_file(git, commit, CONFIG_FILE, CONFIG_BYTES)
    names = (
        git.execute("ls-tree", "-z", "--name-only", "--end-of-options", commit, ok=(0, 128)).names
        if content is None
        else []
    )
    return decode_config(content, names, f"{CONFIG_FILE} at {commit[:8]}")


def merge_config(
    *,
    host: HostConfig,
    env: Mapping[str, str],
    repository: RepositoryConfig | None = None,
    repository_name: str = "perdure.toml on main",
    config: RepositoryConfig | None = None,
    request: DeliveryRequest | None = None,
    flags: Mapping[str, Any] | None = None,
) -> EffectiveConfig:
    """Merge all sources into the configuration that counts, and record where each setting came from.

    The strongest comes last: defaults, user file, perdure.toml of the base branch, `--config` (which is used *instead
    of* that file), `PERDURE_*`, request, flags. Of the user file and the variables only `limits` and `steps` count
    here. Labels and gates of a request are added to the configured ones. Limits above the host's are lowered to them in
    the end, which their origin says.

    host     from load_host_config with the same `env`: its limits are the most anybody gets, whatever was set to more
    config   the configuration sent with the request
    request  its other fields that are settings
    flags    dotted name → value, for a command line that shows what would count

    Raises BadInput for a variable whose value is not valid, ValidationError where the merged settings are not.
    """
    file_config, file_name = (config, "--config") if config is not None else (repository, repository_name)
    requested_settings = _request_settings(request)
    layers: list[tuple[str | Mapping[str, str], dict[str, Any]]] = [
        (user_file_name(), _written_settings(host, {"limits", "steps"})),
        (file_name, _written_settings(file_config) if file_config is not None else {}),
        (
            variable_origins(env),
            {
                name: table_of_variables
                for name, table_of_variables in variable_settings(env).items()
                if name in ("limits", "steps")
            },
        ),
        ("request", requested_settings),
    ]
    for dotted, value in (flags or {}).items():
        layers.append(("flag", nested_table(dotted, value)))

    merged = RepositoryConfig(version=1).model_dump(mode="json", by_alias=True)
    origins = dict.fromkeys(_dotted_names(merged), DEFAULT)
    for origin, layer in layers:
        merged = merge_tables(merged, layer)
        for dotted in _dotted_names(layer):
            origins[dotted] = origin if isinstance(origin, str) else origin.get(dotted, DEFAULT)
    for (table, setting), additions in _request_additions(request).items():
        merged[table][setting] = list(dict.fromkeys([*merged[table][setting], *additions]))
        origins[f"{table}.{setting}"] += " and request"
    config = RepositoryConfig.model_validate(merged)
    return EffectiveConfig(config.model_copy(update={"limits": _lower_limits(config.limits, origins, host)}), origins)


def fill_in_detected(effective: EffectiveConfig, detected: DetectedCommands) -> EffectiveConfig:
    """Return the configuration with the detected setup commands where nobody wrote any, and likewise the test commands;
    their origin is then `detected`. An empty list that somebody wrote stays."""
    config, origins = effective.config, dict(effective.origins)
    if config.setup.commands is None:
        setup = config.setup.model_copy(update={"commands": detected.setup})
        config = config.model_copy(update={"setup": setup})
        origins["setup.commands"] = "detected"
    if config.test is None:
        config = config.model_copy(update={"test": detected.tests})
        origins["test"] = "detected"
    return EffectiveConfig(config, origins)


def _request_settings(request: DeliveryRequest | None) -> dict[str, Any]:
    """Return the settings that a request makes (phases, limits, agent, model …), as nested tables; empty without a
    request."""
    if request is None:
        return {}
    values = {
        "delivery.phases": list(request.phases) if request.phases is not None else None,
        "delivery.questions": request.questions,
        "delivery.attempts": request.attempts,
        "delivery.after_red": request.after_red,
        "limits.budget_usd": request.budget_usd,
        "limits.tokens": request.tokens,
        **dict.fromkeys(expand_setting("steps.*.agent"), request.agent),
        **dict.fromkeys(expand_setting("steps.*.model"), request.model),
    }
    settings: dict[str, Any] = {}
    for dotted, value in values.items():
        if value is not None:
            settings = merge_tables(settings, nested_table(dotted, value))
    return settings


def _request_additions(request: DeliveryRequest | None) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return what a request adds to configured lists, by (table, key): labels, and gates. Empty where it adds nothing.

    It cannot remove any: a person who configured a gate is not overruled by whoever submits.
    """
    if request is None:
        return {}
    additions = {("ship", "labels"): request.labels, ("gates", "before"): request.gates}
    return {setting: names for setting, names in additions.items() if names}


def _written_settings(model: RepositoryConfig | HostConfig, only: set[str] | None = None) -> dict[str, Any]:
    """Return what a person actually wrote in a file, as nested tables; `only`: of these top-level tables."""
    written = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {name: value for name, value in written.items() if name != "version" and (only is None or name in only)}


def _dotted_names(table: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the dotted name of every value in nested tables; `above` stands before each."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _dotted_names(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def _lower_limits(limits: Limits, origins: dict[str, str], host: HostConfig) -> Limits:
    """Return the limits, those that are above the host's lowered to it; append LOWERED to the origins of these in
    `origins`.

    The host has a limit of budget and time always, of the others where its owner set one.
    """
    lowered: dict[str, Any] = {}
    for name in host.limits.model_fields_set | {"budget_usd", "time"}:
        wanted, highest = getattr(limits, name), getattr(host.limits, name)
        if highest is not None and _is_above_limit(name, wanted, highest):
            lowered[name] = highest
            origins[f"limits.{name}"] += LOWERED
    return limits.model_copy(update=lowered)


def lowered_budget(request: DeliveryRequest, host: HostConfig) -> str:
    """Return in words that a request wants more dollars or tokens than this host lets a delivery have, and gets its
    limit; empty: it did not."""
    wanted: tuple[tuple[Any, Any, Callable[[Any], str]], ...] = (
        (request.budget_usd, host.limits.budget_usd, format_money),
        (request.tokens, host.limits.tokens, format_tokens),
    )
    texts = [
        f"{show(most)} instead of {show(requested)}"
        for requested, most, show in wanted
        if requested and most and requested > most
    ]
    return f"{', '.join(texts)}: the most on this host ([limits] of its user file)" if texts else ""


def _is_above_limit(name: str, wanted: Any, highest: Any) -> bool:
    """Return whether a limit is higher than the host's; None, no limit, is higher than any."""
    if wanted is None:
        return True
    return parse_duration(wanted) > parse_duration(highest) if name == "time" else bool(wanted > highest)


def render_config(detected: DetectedCommands, side: Sequence[str] = ()) -> str:
    """Return the text of a commented perdure.toml with these commands and, where there are any, these patterns of
    `[tests] side`; loading it gives the same ones. Nothing is written."""
    setup = "".join(f"    {_toml_string(command)},\n" for command in detected.setup)
    commands = f"commands = [\n{setup}]" if setup else "commands = []"
    tests = "\n".join(_render_test(test) for test in detected.tests) or _NO_TESTS
    if side:
        tests += f"\n[tests]\n# Outside of where tests are looked for.\nside = {json.dumps(side, ensure_ascii=False)}\n"
    return f"""\
# How Perdure works on this repository. It is read from the base branch, so commit it.
version = 1

[setup]
# Run with network, once for each workspace, before any model is asked.
{commands}
# Ignored files to take from your checkout (local repositories only):
# copy = [".env.test"]
timeout = "10m"

# The verdict is the exit code; all commands run, the required ones decide.
{tests}
[limits]
# What one delivery may use; the host's own limits hold in any case.
test_fixes = {DEFAULTS.test_fixes}        # attempts to repair red tests, 0 to 10
review_fixes = {DEFAULTS.review_fixes}      # rounds of repairs after review, 0 to 10
time = "{DEFAULTS.time}"
budget_usd = {DEFAULTS.budget_usd:.2f}

# [delivery]
# phases = ["plan", "build", "test", "review", "ship"]
# on_failure = "none"     # "draft" opens a draft pull request for red tests or blockers, with the report
#
# [steps.implement]
# model = "…"             # another model for one step: classify, plan, implement, fix_tests, review, fix_review
"""


_NO_TESTS = """\
# No test command was found. Without one, pull requests are drafts that say so.
# [[test]]
# command = "…"
# directory = "…"         # where it runs, when not at the top
"""


def _render_test(test: TestCommand) -> str:
    """Return a test command as a `[[test]]` table."""
    directory = f"directory = {_toml_string(test.directory)}\n" if test.directory else ""
    report = 'report = "exit"\n' if test.report == "exit" else ""
    writes = f"writes = {json.dumps(test.writes, ensure_ascii=False)}\n" if test.writes else ""
    return f"""\
[[test]]
name = {_toml_string(test.name)}
command = {_toml_string(test.command)}
{directory}{report}{writes}timeout = {_toml_string(test.timeout)}
"""


def _toml_string(text: str) -> str:
    """Return a text as a TOML basic string; JSON's is one, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


NOTE_BYTES = 32 * 1024
"""Of one AGENTS.md: a longer one costs more in every turn than it helps."""


def read_notes(tree: Path, names: Sequence[str]) -> tuple[Note, ...]:
    """Read the named files of a tree, in this order, each at most NOTE_BYTES and cut visibly beyond that.

    Left out is what is missing, empty, no regular file, outside the tree (by `..` or a symbolic link) or git's own, and
    a second name for the same file.
    """
    root = tree.resolve()
    notes: list[Note] = []
    paths_seen: set[Path] = set()
    for name in names:
        try:
            path = (root / name).resolve()
        except (OSError, RuntimeError):  # a loop of links
            continue
        inside = path.is_relative_to(root) and ".git" not in path.relative_to(root).parts
        if not inside or path in paths_seen or not path.is_file():
            continue
        paths_seen.add(path)
        text = read_beginning(path, NOTE_BYTES + 1)
        if len(text.encode()) > NOTE_BYTES:
            text = cut_bytes(text, NOTE_BYTES) + f"\n… cut at {NOTE_BYTES // 1024} KiB\n"
        if text.strip():
            notes.append(Note(path=name, text=text))
    return tuple(notes)
