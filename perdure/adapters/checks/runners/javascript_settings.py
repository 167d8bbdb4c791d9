"""The test side that settings of jest and vitest name, as far as they are written out: nothing is executed."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Any

from perdure.adapters.checks.findings.globs import expand_alternatives, path_regex, search_regexes
from perdure.adapters.checks.runners.base import ConfiguredTestSide, translate_patterns
from perdure.adapters.checks.runners.command_trace import CommandDirectory
from perdure.adapters.system.bounded import parse_json
from perdure.models.limits import SIDE_READ_FILES

_STRING = r"""(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'|`[^`\n]{0,300}`)"""
_JEST_FILES = (
    *("setupFiles", "setupFilesAfterEnv", "globalSetup", "globalTeardown", "testEnvironment", "runner", "testRunner"),
    *("testSequencer", "reporters", "resolver", "snapshotResolver", "snapshotSerializers", "preset", "transform"),
    *("testResultsProcessor", "moduleNameMapper", "dependencyExtractor"),
)
_VITEST_FILES = ("setupFiles", "globalSetup", "environment", "runner", "reporters", "snapshotSerializers", "sequencer")
_OTHERS = ("coverage", "optimizeDeps", "ssr", "build", "typecheck", "benchmark")
"""Blocks of a vite configuration that have an `include` of their own."""


def jest_test_side(commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
    """Return the test side that jest's settings name: `jest` in package.json, `jest.config.*`, and the files behind
    `--config`.

    `testRegex` counts only as far as it can be matched in bounded time.
    """
    side, in_package = ConfiguredTestSide(), _parse_object(directory.text("package.json")).get("jest")
    configs = [("", in_package if isinstance(in_package, dict) else {})]
    for path in [
        *_find_configs(directory, r"jest\.config\.(?:json|[cm]?[jt]s)"),
        *_chosen_configs(commands, directory),
    ]:
        text, keys = directory.text(path), ("testMatch", "testRegex", "roots", *_JEST_FILES)
        configs.append((path, _parse_object(text) if path.endswith("json") else _literals_by_key(text, keys)))
    for path, config in configs:
        for settings in [config, *(p for p in config.get("projects", ()) if isinstance(p, dict))]:
            side += _jest_config_side(settings, path, directory)
    return side


def _chosen_configs(commands: Sequence[list[str]], directory: CommandDirectory) -> list[str]:
    """Return the existing settings files that commands name with `--config` or `-c`, at most SIDE_READ_FILES."""
    pairs = [(word, following) for argv in commands for word, following in itertools.pairwise([*argv, ""])]
    candidates = [
        following if word in ("--config", "-c") else word.partition("--config=")[2] for word, following in pairs
    ]
    return [path for path in map(_relative_path, candidates) if path in directory.paths][:SIDE_READ_FILES]


def _jest_config_side(settings: dict[str, Any], path: str, directory: CommandDirectory) -> ConfiguredTestSide:
    """Return the test side that one configuration of jest names: its patterns, its roots, and files that it loads.

    path  the settings' own file; empty for package.json
    """
    roots = [root for root in map(_relative_path, _all_strings(settings.get("roots"))) if root not in ("", ".")]
    side = _pattern_side(map(_relative_path, _all_strings(settings.get("testMatch"))), roots)
    side += translate_patterns(map(_javascript_regex, _all_strings(settings.get("testRegex"))), search_regexes)
    return side + _existing_files(
        (word for key in _JEST_FILES for word in _all_strings(settings.get(key))), path, directory
    )


def vitest_test_side(commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
    """Return the test side that vitest's settings name: files named `vitest.config.*`, `vite.config.*` and the like,
    and those behind `--config`."""
    side = ConfiguredTestSide()
    usual_paths = _find_configs(directory, r"(?:vitest|vite)\.(?:config|workspace|projects)\.[cm]?[jt]s")
    for path in [*usual_paths, *_chosen_configs(commands, directory)]:
        text = _without_other_blocks(directory.text(path))
        settings = _literals_by_key(text, ("include", "dir", *_VITEST_FILES))
        roots = [root for root in map(_relative_path, _all_strings(settings.get("dir"))) if root not in ("", ".")]
        side += _pattern_side(map(_relative_path, _all_strings(settings.get("include"))), roots)
        side += _existing_files(
            (word for key in _VITEST_FILES for word in _all_strings(settings.get(key))), path, directory
        )
    return side


def _pattern_side(patterns: Iterable[str], roots: list[str]) -> ConfiguredTestSide:
    """Return the test side of these glob patterns, each below one of `roots` where there are any; those that begin with
    `!` are left out."""
    lookahead = f"(?={'|'.join(re.escape(root) + '/' for root in roots)})" if roots else ""
    positive = [pattern for pattern in patterns if not pattern.startswith("!")]
    return translate_patterns(
        positive, lambda pattern: [lookahead + path_regex(alternative) for alternative in expand_alternatives(pattern)]
    )


def _javascript_regex(pattern: str) -> str:
    """Return a regular expression as JavaScript has it, from one written as a string or between slashes."""
    in_slashes = re.fullmatch(r"/(.+)/", pattern)
    return in_slashes[1].replace("\\/", "/") if in_slashes else pattern.replace("\\\\", "\\")


def _existing_files(names: Iterable[str], settings_path: str, directory: CommandDirectory) -> ConfiguredTestSide:
    """Return the test side of those names that are files here, with an ending or without, at the top or beside the
    settings."""
    endings = ("", ".js", ".ts", ".cjs", ".mjs", "/index.js", "/index.ts", "/jest-preset.js", "/jest-preset.json")
    parents = {"", settings_path.rpartition("/")[0]}
    stems = {posixpath.normpath(posixpath.join(top, _relative_path(word))) for word in names for top in parents}
    files = {path for place in stems for end in endings if (path := place + end) in directory.paths}
    return ConfiguredTestSide(files=tuple(sorted(files)))


def _find_configs(directory: CommandDirectory, pattern: str) -> list[str]:
    """Return the settings files at the top whose names match the pattern, sorted, at most SIDE_READ_FILES."""
    return sorted(path for path in directory.paths if "/" not in path and re.fullmatch(pattern, path))[:SIDE_READ_FILES]


def _relative_path(word: str) -> str:
    """Return a path of the settings relative to the root: without `<rootDir>`, a slash or `./` at its beginning."""
    return word.removeprefix("<rootDir>").lstrip("/").removeprefix("./")


def _all_strings(value: object) -> list[str]:
    """Return all strings in a value, however deep: `[["jest-junit", {}], "./reporter.js"]`, `{"^.+$":
    "./transform.js"}`."""
    pending, strings = [value], list[str]()
    while pending:
        item = pending.pop(0)
        if isinstance(item, str):
            strings.append(item)
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, dict):
            pending += item.values()
    return strings


def _parse_object(text: str) -> dict[str, Any]:
    """Parse a text as a JSON object; empty where it is none."""
    try:
        value = parse_json(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _literals_by_key(text: str, keys: Iterable[str]) -> dict[str, list[str]]:
    """Return the strings that stand behind each of these keys in a source: one, or those of a list or object without
    another in it.

    A regular expression between slashes counts as a string, slashes included.
    """
    literals = dict[str, list[str]]()
    key_pattern = "|".join(keys)
    collection = rf"""[\[{{](?:{_STRING}|[^\]}}'"`]){{0,1000}}+"""
    assignment = rf"""\b({key_pattern})["']?\s{{0,80}}:\s{{0,80}}({_STRING}|/[^/\n]{{1,300}}/|{collection})"""
    for key, value in re.findall(assignment, text):
        values = [value] if value.startswith("/") else [word[1:-1] for word in re.findall(_STRING, value)]
        literals.setdefault(key, []).extend(values)
    return literals


def _without_other_blocks(text: str) -> str:
    """Return a vite configuration without the blocks whose `include` says nothing about tests (`coverage`, `build`
    …)."""
    for name in _OTHERS:
        head = re.search(rf"\b{name}\s{{0,80}}:\s{{0,80}}\{{", text)
        if head is None:
            continue
        depth, position = 1, head.end()
        while position < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            position += 1
        text = text[: head.start()] + text[position:]
    return text
