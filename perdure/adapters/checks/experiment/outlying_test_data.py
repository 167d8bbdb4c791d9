"""Files outside of all directories of tests that only the tests name: their data, or a vendored copy of what they
assert with."""

from __future__ import annotations

import re
from collections.abc import Collection

from perdure.adapters.checks.experiment.side_rules import SideRules
from perdure.adapters.checks.experiment.trees import CommitTree

_CODE = re.compile(r".*\.(pyi?|pyx|[cm]?[jt]sx?|vue|go|rs|java|kts?|scala|groovy|c|h|cc|cpp|hpp|rb|php|sh|bash)")
_FOR_PEOPLE = re.compile(r".*\.(md|rst|svg|po|png|ico)|(?:.*/)?(LICENSE|CHANGELOG|README)[^/]*")
"""Texts and pictures for people: tests that look at them are about the product's."""

_VENDORED = re.compile(r"(?:.*/)?(?:vendor|_vendor|third_party|node_modules)/")
_QUOTED = re.compile(r"""(?<=["'`/])[\w.@-]{1,200}(?=["'`/])""")


def find_test_data(base: CommitTree, rules: SideRules, differing: Collection[str]) -> frozenset[str]:
    """Find, among differing paths of the base that are product by their places, those that only its tests name.

    A file of data is named by its own name, or that of a directory which holds no code; vendored code by the path that
    it is imported from. What the product names as well is the product's. Files are read only where such a path differs.
    """
    candidates = [
        path for path in differing if path in base.entries and not rules.is_side(path) and not rules.is_shared(path)
    ]
    vendored = {
        path: _import_path(path) for path in candidates if _VENDORED.match(path) and rules.configured_side(path) is None
    }
    data = [path for path in candidates if path not in vendored and rules.configured_side(path) is None]
    data = [path for path in data if not _CODE.fullmatch(path) and not _FOR_PEOPLE.fullmatch(path)]
    if not vendored and not data:
        return frozenset()
    side = {path for path in base.entries if rules.is_side(path)}
    code = {path for path in base.entries if _CODE.fullmatch(path) and path not in side and not _VENDORED.match(path)}
    tests, product = list(base.read_texts(side).values()), list(base.read_texts(code).values())
    code_directories = {part for path in code for part in path.split("/")[:-1]}
    test_words = _quoted_words(tests) - code_directories
    product_words = _quoted_words(product)
    named_paths = {
        path
        for path in data
        if (parts := {*path.split("/")}) & test_words and not (parts - code_directories) & product_words
    }
    for path, place in vendored.items():
        if place and any(place in text for text in tests) and not any(place in text for text in product):
            named_paths.add(path)
    return frozenset(named_paths)


def _quoted_words(texts: Collection[str]) -> set[str]:
    """Return the words in these texts that stand between quotes or slashes."""
    return {word for text in texts for word in _QUOTED.findall(text)}


def _import_path(path: str) -> str:
    """Return the path that vendored code is imported from: `example.org/assert` of `vendor/example.org/assert/a.go`,
    `chai` of `node_modules/chai/index.js`."""
    parts = _VENDORED.sub("", path).split("/")[:-1]
    return "/".join(parts[: 3 if parts and "." in parts[0] else 1])
