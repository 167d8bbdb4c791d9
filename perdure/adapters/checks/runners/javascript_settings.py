"""The places of tests that settings of jest and vitest name, as far as they are written out: nothing is executed."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Any

from perdure.adapters.checks.findings.globs import alternatives, exactly, searched
from perdure.adapters.checks.runners.base import Named, bounded
from perdure.adapters.checks.runners.leads import There
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


def jest(simple: Sequence[list[str]], there: There) -> Named:
    """`jest` in package.json, `jest.config.*` and `--config`; `testRegex` only as far as its time is bounded."""
    found, own = Named(), _json(there.text("package.json")).get("jest")
    given = [("", own if isinstance(own, dict) else {})]
    for path in [*_configs(there, r"jest\.config\.(?:json|[cm]?[jt]s)"), *_chosen(simple, there)]:
        text, keys = there.text(path), ("testMatch", "testRegex", "roots", *_JEST_FILES)
        given.append((path, _json(text) if path.endswith("json") else _literals(text, keys)))
    for path, one in given:
        for settings in [one, *(p for p in one.get("projects", ()) if isinstance(p, dict))]:
            found += _jest(settings, path, there)
    return found


def _chosen(simple: Sequence[list[str]], there: There) -> list[str]:
    """Files of settings that a command names."""
    pairs = [(word, behind) for words in simple for word, behind in itertools.pairwise([*words, ""])]
    named = [behind if word in ("--config", "-c") else word.partition("--config=")[2] for word, behind in pairs]
    return [path for path in map(_placed, named) if path in there.paths][:SIDE_READ_FILES]


def _jest(settings: dict[str, Any], path: str, there: There) -> Named:
    roots = [root for root in map(_placed, _strings(settings.get("roots"))) if root not in ("", ".")]
    found = _tests(map(_placed, _strings(settings.get("testMatch"))), roots)
    found += bounded(map(_unquoted, _strings(settings.get("testRegex"))), searched)
    return found + _files((word for key in _JEST_FILES for word in _strings(settings.get(key))), path, there)


def vitest(simple: Sequence[list[str]], there: There) -> Named:
    found = Named()
    usual = _configs(there, r"(?:vitest|vite)\.(?:config|workspace|projects)\.[cm]?[jt]s")
    for path in [*usual, *_chosen(simple, there)]:
        text = _without(there.text(path))
        given = _literals(text, ("include", "dir", *_VITEST_FILES))
        roots = [root for root in map(_placed, _strings(given.get("dir"))) if root not in ("", ".")]
        found += _tests(map(_placed, _strings(given.get("include"))), roots)
        found += _files((word for key in _VITEST_FILES for word in _strings(given.get(key))), path, there)
    return found


def _tests(patterns: Iterable[str], roots: list[str]) -> Named:
    """Below `roots`, where there are any."""
    below = f"(?={'|'.join(re.escape(root) + '/' for root in roots)})" if roots else ""
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    return bounded(wanted, lambda pattern: [below + exactly(one) for one in alternatives(pattern)])


def _unquoted(pattern: str) -> str:
    """As JavaScript has it, written as a string or between slashes."""
    slashed = re.fullmatch(r"/(.+)/", pattern)
    return slashed[1].replace("\\/", "/") if slashed else pattern.replace("\\\\", "\\")


def _files(words: Iterable[str], settings: str, there: There) -> Named:
    """Those that are files here, with the ending or without, at the top or beside the settings."""
    ends = ("", ".js", ".ts", ".cjs", ".mjs", "/index.js", "/index.ts", "/jest-preset.js", "/jest-preset.json")
    tops = {"", settings.rpartition("/")[0]}
    places = {posixpath.normpath(posixpath.join(top, _placed(word))) for word in words for top in tops}
    found = {path for place in places for end in ends if (path := place + end) in there.paths}
    return Named(files=tuple(sorted(found)))


def _configs(there: There, names: str) -> list[str]:
    return sorted(path for path in there.paths if "/" not in path and re.fullmatch(names, path))[:SIDE_READ_FILES]


def _placed(word: str) -> str:
    return word.removeprefix("<rootDir>").lstrip("/").removeprefix("./")


def _strings(given: object) -> list[str]:
    """All of them, however deep: `[["jest-junit", {}], "./reporter.js"]`, `{"^.+$": "./transform.js"}`."""
    left, found = [given], list[str]()
    while left:
        one = left.pop(0)
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one.values()
    return found


def _json(text: str) -> dict[str, Any]:
    try:
        found = parse_json(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _literals(text: str, keys: Iterable[str]) -> dict[str, list[str]]:
    """The strings behind each of these keys: one, or those of a list or object without another in it."""
    found = dict[str, list[str]]()
    wanted = "|".join(keys)
    listed = rf"""[\[{{](?:{_STRING}|[^\]}}'"`]){{0,1000}}+"""
    behind = rf"""\b({wanted})["']?\s{{0,80}}:\s{{0,80}}({_STRING}|/[^/\n]{{1,300}}/|{listed})"""
    for key, value in re.findall(behind, text):
        words = [value] if value.startswith("/") else [word[1:-1] for word in re.findall(_STRING, value)]
        found.setdefault(key, []).extend(words)
    return found


def _without(text: str) -> str:
    """Without the blocks whose `include` says nothing about tests."""
    for name in _OTHERS:
        head = re.search(rf"\b{name}\s{{0,80}}:\s{{0,80}}\{{", text)
        if head is None:
            continue
        depth, at = 1, head.end()
        while at < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        text = text[: head.start()] + text[at:]
    return text
