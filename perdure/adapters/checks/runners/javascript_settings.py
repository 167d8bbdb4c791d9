"""The places of tests that settings of jest and vitest name, as far as they are written out: nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Iterable
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


def jest(there: There) -> Named:
    """`jest` in package.json and `jest.config.*`; `testRegex` only as far as its time is bounded."""
    found, own = Named(), _json(there.text("package.json")).get("jest")
    given = [own if isinstance(own, dict) else {}, _json(there.text("jest.config.json"))]
    for path in _configs(there, r"jest\.config\.(?:[cm]?[jt]s)"):
        given.append(_literals(there.text(path), ("testMatch", "testRegex", "roots", *_JEST_FILES)))
    for one in given:
        for settings in [one, *(p for p in one.get("projects", ()) if isinstance(p, dict))]:
            found += _jest(settings, there)
    return found


def _jest(settings: dict[str, Any], there: There) -> Named:
    roots = [root for root in map(_placed, _strings(settings.get("roots"))) if root not in ("", ".")]
    found = _tests(map(_placed, _strings(settings.get("testMatch"))), roots)
    found += bounded(map(_unquoted, _strings(settings.get("testRegex"))), searched)
    return found + _files((word for key in _JEST_FILES for word in _strings(settings.get(key))), there)


def vitest(there: There) -> Named:
    found = Named()
    for path in _configs(there, r"(?:vitest|vite)\.(?:config|workspace|projects)\.[cm]?[jt]s"):
        text = _without(there.text(path))
        given = _literals(text, ("include", "dir", *_VITEST_FILES))
        roots = [root for root in map(_placed, _strings(given.get("dir"))) if root not in ("", ".")]
        found += _tests(map(_placed, _strings(given.get("include"))), roots)
        found += _files((word for key in _VITEST_FILES for word in _strings(given.get(key))), there)
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


def _files(words: Iterable[str], there: There) -> Named:
    """Those that are files here, with the ending or without."""
    ends = ("", ".js", ".ts", ".cjs", ".mjs", "/index.js", "/index.ts", "/jest-preset.js", "/jest-preset.json")
    found = {path for word in words for end in ends if (path := _placed(word) + end) in there.paths}
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
