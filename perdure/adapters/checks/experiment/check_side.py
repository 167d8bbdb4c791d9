"""A check of a commit's test side for people, before anything is paid for."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.adapters.checks.experiment.commit_pair import find_command_runner
from perdure.adapters.checks.experiment.side_rules import SideRules
from perdure.adapters.checks.experiment.trees import CommitTree
from perdure.adapters.checks.findings.globs import matches
from perdure.adapters.git.repository import Repository
from perdure.models.config import TestCommand
from perdure.models.errors import InvalidRequest

_NAMES_SHOWN = 4


def check_test_side(
    repository: Repository, commit: str, tests: Sequence[TestCommand], side: Sequence[str], where: str
) -> str:
    """Check the test side of a commit and return one line about what looks wrong; empty where nothing does.

    side   patterns of `[tests] side`
    where  the file that has them, for messages

    It looks wrong where a pattern matches nothing, or no test file is found though all commands' runners are known.
    Raises InvalidRequest when `side` leaves no product file.
    """
    tree = CommitTree.from_commit(repository, commit)
    commands = [(test, find_command_runner(tree, test)) for test in tests]
    rules = SideRules.from_tree(tree, commands, side)
    side_paths = [path for path in sorted(tree.entries) if rules.is_side(path) or rules.is_shared(path)]
    if side and tree.entries and len(side_paths) == len(tree.entries):
        default_rules = SideRules.from_tree(tree, commands)
        detected = [path for path in tree.entries if default_rules.is_side(path)]
        raise InvalidRequest(
            f"side: {_quote_patterns(side)} leave no product file: all {len(side_paths)} files of the "
            "repository would be tests",
            where=f"{where} [tests]",
            fix=f"name only what is not found without it; without it there is: {_list_places(default_rules, detected)}",
        )
    unmatched = [pattern for pattern in side if not any(matches(path, pattern) for path in tree.entries)]
    if unmatched:
        matched = f"match{'es' * (len(unmatched) == 1)} nothing"
        return f"[tests] side: {_quote_patterns(unmatched)} {matched}; tests: {_list_places(rules, side_paths)}"
    is_known = bool(tree.entries and commands) and all(rule is not None for _, rule in commands)
    if is_known and not any(rules.holds_tests(path) for path in tree.entries):
        return "no test file is found here: name them in [tests] side"
    return ""


def _quote_patterns(patterns: Sequence[str]) -> str:
    """Return the first patterns in quotes for people, and the number of the others."""
    shown = ", ".join(f'"{pattern}"' for pattern in patterns[:_NAMES_SHOWN])
    return shown + (f" and {len(patterns) - _NAMES_SHOWN} more" if len(patterns) > _NAMES_SHOWN else "")


def _list_places(rules: SideRules, paths: Sequence[str]) -> str:
    """List the directories and files that these paths are in, for people: `tests/ (12 files), conftest.py`; "nothing"
    without any."""
    counts = dict[str, int]()
    for path in paths:
        root = next((root for root in sorted(rules.roots) if path.startswith(f"{root}/")), "")
        counts[f"{root}/" if root else path] = counts.get(f"{root}/" if root else path, 0) + 1
    places = sorted(counts, key=lambda place: (not place.endswith("/"), place))
    texts = [
        f"{place} ({counts[place]} file{'s' * (counts[place] != 1)})" if place.endswith("/") else place
        for place in places[:_NAMES_SHOWN]
    ]
    return (
        ", ".join(texts) + (f" and {len(places) - _NAMES_SHOWN} more" if len(places) > _NAMES_SHOWN else "")
        or "nothing"
    )
