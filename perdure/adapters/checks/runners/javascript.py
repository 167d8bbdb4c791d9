"""Canaries in JavaScript and TypeScript: where one can stand first, and every form of `expect` tried in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from perdure.adapters.checks.runners import failing
from perdure.adapters.checks.runners.base import Canaries

_HEAD = re.compile(r"(#!.*\n)?(\s*/\*[\s\S]*?\*/)?(\s*['\"]use strict['\"];?)?")
"""The parts of a file that count only at its beginning: the interpreter, settings in its first comment, strictness."""

_EXPECT = """\
  const fails = [
    () => E(1).toBe(2), () => E(1).not.toBe(1), () => E([1]).toEqual([2]), () => E([1]).not.toEqual([1]),
    () => E([1]).toStrictEqual([2]), () => E(0).toBeTruthy(), () => E(1).toBeFalsy(), () => E(1).toBeNull(),
    () => E(1).toBeUndefined(), () => E(undefined).toBeDefined(), () => E([]).toContain(1),
    () => E([]).toContainEqual(1), () => E([]).toHaveLength(1), () => E('a').toMatch(/b/),
    () => E({}).toMatchObject({ a: 1 }), () => E({}).toHaveProperty('a'), () => E(() => {}).toThrow(),
    () => E(1).toBeGreaterThan(2), () => E(2).toBeLessThan(1), () => E(1).toBeCloseTo(2),
    () => E(1).toBeInstanceOf(String), () => E(Promise.resolve(1)).resolves.toBe(2),
    () => E(Promise.resolve(1)).rejects.toThrow(),
  ];
"""

ALL_FAIL = """\
  for (const one of fails) {
    let failed = false;
    try { await one(); } catch { failed = true; }
    if (!failed) return;
  }
  throw new Error('x');
"""


def expecting(name: str, load: str, test: str, expect: str) -> str:
    """A test of this name that always fails. `load`: a statement before it; `test`, `expect`: how they are called."""
    return f"{load}\n{test}('{name}', async () => {{\n{_EXPECT.replace('E(', f'{expect}(')}{ALL_FAIL}}});"


def planted(
    files: Mapping[str, str],
    token: str,
    ending: str,
    module: str,
    canary: Callable[[str, str, str], str],
    intact: Callable[[str, str, str], tuple[str, str]] = lambda name, path, text: ("", ""),
) -> Canaries:
    """In each file of such a name, first and last, and at the end of each test of it.

    module  what its tests are imported from
    canary  makes one from its name, the file's path and its text
    intact  as canary, in two parts: what remembers at the beginning what it uses, and a test that fails as long as
            that is what is still there
    """
    planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
    for number, (path, text) in enumerate(sorted(files.items())):
        if re.search(ending, path) is None:
            continue
        first, last = f"{token}{number}a", f"{token}{number}z"
        imported = "@jest/globals" if module == "jest" and "@jest/globals" in text else module
        helper, own = failing.javascript(text, imported, token)
        bodies |= {failing.EVERY} if helper else set()
        found = _HEAD.match(own or text)
        end = found.end() if found else 0
        head, rest = (own or text)[:end], (own or text)[end:]
        typed = "// @ts-nocheck\n" if re.search(r"\.[cm]?tsx?$", path) else ""  # our lines are not the project's style
        kept, held = f"{token}{number}i", intact(f"{token}{number}i", path, text)
        top = f"{typed}{held[0]}\n{helper}{canary(first, path, text)}"
        planting[path] = f"{head}\n{top}\n{rest}\n{canary(last, path, text)}\n{held[1]}\n"
        names |= {first: path, last: path} | ({kept: path} if held[1] else {})
    return Canaries(planting, names, bodies)
