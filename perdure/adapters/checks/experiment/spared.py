"""Test files that are left out where only those that a change has made or changed are asked."""

from __future__ import annotations

import re
from collections.abc import Collection

from perdure.adapters.checks.experiment.sides import Sides
from perdure.adapters.checks.experiment.trees import Tree


def spared_tests(tree: Tree, rules: Sides, differing: Collection[str]) -> frozenset[str]:
    """Test files of a tree that do not differ, and whose names stand in no other file of the test side that is kept.

    None where something else than test files differs (a fixture, data: any test may be about it), none that a command
    or a setting names, and none of a package of Go or of Rust in which one differs: they are compiled together.
    """
    if not differing or not all(rules.holds_tests(path) for path in differing):
        return frozenset()
    side = {path for path in tree.entries if rules.is_side(path)}
    compiled = {path.rpartition("/")[0] for path in differing if path.endswith((".go", ".rs"))}
    spared = {
        path
        for path in side - set(differing) - rules.files
        if rules.holds_tests(path) and path.rpartition("/")[0] not in compiled and not path.endswith("__init__.py")
    }
    words = {path: _words(text) for path, text in tree.texts(side).items()}
    spared &= words.keys()
    while True:
        said = set[str]().union(*(words.get(path, ()) for path in side - spared))
        needed = {path for path in spared if _names(path) & said}
        if not needed:
            return frozenset(spared)
        spared -= needed


def _words(text: str) -> set[str]:
    """Words that could be the name of another file, with its ending or without."""
    return {*re.findall(r"\w+", text), *re.findall(r"[\w.-]+", text)}


def _names(path: str) -> set[str]:
    """`test_calc` and `test_calc.py`; `calc.test` and `calc.test.js`."""
    name = path.rpartition("/")[2]
    return {name, name.rpartition(".")[0]}
