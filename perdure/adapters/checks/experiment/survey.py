"""The test side of a commit, told to people before anything is paid for."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.adapters.checks.experiment.commits import recognised_in
from perdure.adapters.checks.experiment.sides import Sides
from perdure.adapters.checks.experiment.trees import Tree
from perdure.adapters.checks.findings.globs import matches
from perdure.adapters.git.repository import Repository
from perdure.models.config import TestCommand
from perdure.models.errors import InvalidRequest

_NAMED = 4


def survey(repository: Repository, commit: str, tests: Sequence[TestCommand], side: Sequence[str], where: str) -> str:
    """One line about what looks wrong; empty where nothing does. `where`: the file that says `[tests] side`.

    Raises InvalidRequest when `side` leaves no product file.
    """
    tree = Tree.of(repository, commit)
    commands = [(test, recognised_in(tree, test)) for test in tests]
    rules = Sides.of(tree, commands, side)
    found = [path for path in sorted(tree.entries) if rules.is_side(path) or rules.is_shared(path)]
    if side and tree.entries and len(found) == len(tree.entries):
        alone = Sides.of(tree, commands)
        detected = [path for path in tree.entries if alone.is_side(path)]
        raise InvalidRequest(
            f"side: {_quoted(side)} leave no product file: all {len(found)} files of the repository would be tests",
            where=f"{where} [tests]",
            fix=f"name only what is not found without it; without it there is: {_listed(alone, detected)}",
        )
    nothing = [pattern for pattern in side if not any(matches(path, pattern) for path in tree.entries)]
    if nothing:
        matched = f"match{'es' * (len(nothing) == 1)} nothing"
        return f"[tests] side: {_quoted(nothing)} {matched}; tests: {_listed(rules, found)}"
    known = bool(tree.entries and commands) and all(rule is not None for _, rule in commands)
    if known and not any(rules.holds_tests(path) for path in tree.entries):
        return "no test file is found here: name them in [tests] side"
    return ""


def _quoted(patterns: Sequence[str]) -> str:
    shown = ", ".join(f'"{pattern}"' for pattern in patterns[:_NAMED])
    return shown + (f" and {len(patterns) - _NAMED} more" if len(patterns) > _NAMED else "")


def _listed(rules: Sides, paths: Sequence[str]) -> str:
    """`tests/ (12 files), conftest.py`."""
    places = dict[str, int]()
    for path in paths:
        root = next((root for root in sorted(rules.roots) if path.startswith(f"{root}/")), "")
        places[f"{root}/" if root else path] = places.get(f"{root}/" if root else path, 0) + 1
    named = sorted(places, key=lambda place: (not place.endswith("/"), place))
    told = [
        f"{place} ({places[place]} file{'s' * (places[place] != 1)})" if place.endswith("/") else place
        for place in named[:_NAMED]
    ]
    return ", ".join(told) + (f" and {len(named) - _NAMED} more" if len(named) > _NAMED else "") or "nothing"
