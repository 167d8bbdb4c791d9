"""Files outside of all directories of tests that only the tests name: their data, a copy of what they assert with."""

from __future__ import annotations

import re
from collections.abc import Collection

from perdure.adapters.checks.experiment.sides import Sides
from perdure.adapters.checks.experiment.trees import Tree

_CODE = re.compile(r".*\.(pyi?|pyx|[cm]?[jt]sx?|vue|go|rs|java|kts?|scala|groovy|c|h|cc|cpp|hpp|rb|php|sh|bash)")
_READ = re.compile(r".*\.(md|rst|svg|po|png|ico)|(?:.*/)?(LICENSE|CHANGELOG|README)[^/]*")
"""Texts and pictures for people: tests that look at them are about the product's."""

_COPIED = re.compile(r"(?:.*/)?(?:vendor|_vendor|third_party|node_modules)/")
_QUOTED = re.compile(r"""(?<=["'`/])[\w.@-]{1,200}(?=["'`/])""")


def named_by_tests(base: Tree, rules: Sides, differing: Collection[str]) -> frozenset[str]:
    """Of paths of the base that differ and are product by their places, those that only its tests name.

    A file of data is named by its own name, or that of a directory which holds no code; copied code by the place it is
    imported from. What the product names as well is the product's. Nothing else is read where nothing such differs.
    """
    left = [
        path for path in differing if path in base.entries and not rules.is_side(path) and not rules.is_shared(path)
    ]
    copied = {path: _place(path) for path in left if _COPIED.match(path) and rules.said(path) is None}
    data = [path for path in left if path not in copied and rules.said(path) is None]
    data = [path for path in data if not _CODE.fullmatch(path) and not _READ.fullmatch(path)]
    if not copied and not data:
        return frozenset()
    side = {path for path in base.entries if rules.is_side(path)}
    code = {path for path in base.entries if _CODE.fullmatch(path) and path not in side and not _COPIED.match(path)}
    tests, product = list(base.texts(side).values()), list(base.texts(code).values())
    with_code = {part for path in code for part in path.split("/")[:-1]}
    own = _words(tests) - with_code
    others = _words(product)
    found = {path for path in data if (parts := {*path.split("/")}) & own and not (parts - with_code) & others}
    for path, place in copied.items():
        if place and any(place in text for text in tests) and not any(place in text for text in product):
            found.add(path)
    return frozenset(found)


def _words(texts: Collection[str]) -> set[str]:
    return {word for text in texts for word in _QUOTED.findall(text)}


def _place(path: str) -> str:
    """`example.org/assert` of `vendor/example.org/assert/a.go`, `chai` of `node_modules/chai/index.js`."""
    parts = _COPIED.sub("", path).split("/")[:-1]
    return "/".join(parts[: 3 if parts and "." in parts[0] else 1])
