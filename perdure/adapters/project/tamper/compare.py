"""The tests of two commits side by side: which are gone, skipped or hollow, and which check something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from perdure.adapters.project.tamper.inventory import Test, hit, is_now, only_new, was
from perdure.models.report import ChangedTest, Hit, Tampering

Key: TypeAlias = tuple[str, str]

ASKED = "(a request that is to take tests away has to say so: allow_test_changes)"


@dataclass
class Compared:
    """What became of the tests of the base.

    moved   the tests that each of them is now, itself included
    spared  how many cases of a test others have taken over
    told    tests for which there is a hit
    skipped tests as they are now, each with what skips it
    """

    hits: list[Hit] = field(default_factory=list)
    changed: list[ChangedTest] = field(default_factory=list)
    moved: dict[Key, list[Test]] = field(default_factory=dict)
    spared: Counter[Key] = field(default_factory=Counter)
    told: set[Key] = field(default_factory=set)
    skipped: list[tuple[Test, str]] = field(default_factory=list)


def compare(
    before: Sequence[Test],
    after: Sequence[Test],
    fully: Callable[[], list[Test]],
    *,
    here: Callable[[str], bool],
    broken: dict[str, str],
) -> Compared:
    """Tests of the files that differ, before and after.

    fully   the same tests as they are now, the new ones read as well: asked for when something is missing
    here    whether a file is still there
    broken  files with tests of the base that cannot be read any more, and why

    A test that is there no more is looked for in the tests that are new: one that does the same (each case of a
    parametrised test for itself), then one of the same name, then several that together assert the same.
    """
    compared = Compared()
    old = {test.key: test for test in before}
    now = {test.key: test for test in after}
    fresh = _Fresh(now.keys() - old.keys(), fully)
    lost: list[Test] = []
    for key, test in old.items():
        if key in now:
            _survivor(compared, test, now[key], fresh)
        elif test.file not in broken:
            lost.append(test)
    for look in (fresh.twins, fresh.namesakes):
        left = []
        for test in lost:
            found = look(test)
            if found:
                _moved(compared, test, found)
            else:
                left.append(test)
        lost = left
    added: Counter[str] = Counter()
    for key, test in now.items():
        if key in old:
            added.update(only_new(test.checks, old[key].checks))
    gone = [test for test in lost if not _taken_over(compared, test, fresh, added)]
    compared.told |= {test.key for test in gone} | {test.key for test in before if test.file in broken}
    compared.hits += [*_skipped(compared.skipped), *_gone(gone, here), *_unreadable(before, broken)]
    return compared


class _Fresh:
    """Tests that the base did not have, each case of them to be claimed once."""

    def __init__(self, keys: Set[Key], fully: Callable[[], list[Test]]) -> None:
        self._keys, self._fully = keys, fully
        self._claimed: set[Key] = set()

    @cached_property
    def _tests(self) -> list[Test]:
        return list({test.key: test for test in self._fully() if test.key in self._keys}.values()) if self._keys else []

    @cached_property
    def _cases(self) -> dict[str, list[Test]]:
        cases: dict[str, list[Test]] = {}
        for test in self._tests:
            for body in test.bodies:
                cases.setdefault(body, []).append(test)
        return cases

    @cached_property
    def checks(self) -> Counter[str]:
        return Counter(check for test in self._tests for check in test.checks)

    def twins(self, test: Test) -> list[Test]:
        wanted = Counter(test.bodies)
        if not wanted or any(len(self._cases.get(body, ())) < count for body, count in wanted.items()):
            return []
        return self._claim(self.take(test), test)

    def take(self, test: Test) -> list[Test]:
        """Those that have its cases, as many as there are; of several, first the one that is called the same."""
        found = []
        for body in test.bodies:
            those = self._cases.get(body, [])
            if those:
                those.sort(key=lambda other: (other.leaf != test.leaf, other.file != test.file))
                found.append(those.pop(0))
        return found

    def namesakes(self, test: Test) -> list[Test]:
        those = [
            other
            for other in self._tests
            if other.leaf == test.leaf and other.key not in self._claimed and len(other.bodies) >= len(test.bodies)
        ]
        return self._claim(those[:1])

    def asserting(self, checks: Sequence[str]) -> list[Test]:
        wanted = set(checks)
        return [test for test in self._tests if wanted & set(test.checks)]

    def _claim(self, tests: list[Test], case: Test | None = None) -> list[Test]:
        """What was claimed asserts nothing for others; of a test whose `case` was, that part."""
        for test in tests[: 1 if case else None]:
            self._claimed.add(test.key)
            self.checks.subtract((case or test).checks)
        return tests


def _survivor(compared: Compared, old: Test, now: Test, fresh: _Fresh) -> None:
    compared.moved[old.key] = [now]
    if len(now.bodies) < len(old.bodies):
        missing = only_new(old.bodies, now.bodies)
        elsewhere = fresh.take(Test(old.file, old.name, old.leaf, old.line, bodies=tuple(missing)))
        compared.spared[old.key] = len(elsewhere)
        fewer = len(old.bodies) - len(now.bodies) - len(elsewhere)
        if fewer > 0:
            compared.told.add(old.key)
            title = f"{fewer} of {len(old.bodies)} cases of {old.leaf} are gone"
            evidence = (*_difference(old.text, now.text), ASKED)
            compared.hits.append(hit(Tampering.GONE, title, now.file, now.line, *evidence))
    _pair(compared, old, now)


def _moved(compared: Compared, old: Test, found: list[Test]) -> None:
    compared.moved[old.key] = list({test.key: test for test in found}.values())
    for test in compared.moved[old.key]:
        _pair(compared, old, test, len(compared.moved[old.key]) > 1 or len(test.bodies) > 1)


def _taken_over(compared: Compared, test: Test, fresh: _Fresh, added: Counter[str]) -> bool:
    """Whether new tests, or assertions that others have gained, check all that it did: it was split, or merged."""
    wanted = Counter(test.checks)
    if not wanted or any(fresh.checks[check] + added[check] < count for check, count in wanted.items()):
        return False
    compared.moved[test.key] = [other for other in fresh.asserting(test.checks) if not other.skips]
    for check, count in wanted.items():
        here = min(count, fresh.checks[check])
        fresh.checks[check] -= here
        added[check] -= count - here
    return True


def _pair(compared: Compared, old: Test, now: Test, partly: bool = False) -> None:
    """One test as it was and as it is. `partly`: only some of its cases, or some of the other's."""
    evidence = _difference(old.text, now.text)
    skips = only_new(now.skips, old.skips)
    if skips:
        compared.told.add(old.key)
        compared.skipped.append((now, "\n".join(skips)))
    why = _hollow(old, now)
    if why:
        title = f"{now.leaf} {why}"
        compared.hits.append(hit(Tampering.HOLLOW, title, now.file, now.line, *evidence))
    elif not partly and only_new(old.checks, now.checks):
        before = "\n".join(only_new(old.checks, now.checks))
        after = "\n".join(only_new(now.checks, old.checks))
        compared.changed.append(
            ChangedTest(name=now.name, file=now.file, line=now.line, before=before[:1000], after=after[:1000])
        )


def _hollow(old: Test, now: Test) -> str:
    if old.checks and not now.checks:
        return "checks nothing any more"
    if now.blank and not old.blank:
        return "does nothing any more"
    sure = [check for check in old.checks if not check.startswith("if ")]
    if sure and all(check.startswith("if ") for check in now.checks):
        return "checks nothing for certain any more"
    stops = only_new(now.stops, old.stops)
    return f"may end before it has checked anything ({stops[0]})" if stops else ""


def _difference(old: str, now: str) -> tuple[str, str]:
    before, after = old.splitlines(), now.splitlines()
    return was("\n".join(only_new(before, after))), is_now("\n".join(only_new(after, before)))


def _skipped(found: Sequence[tuple[Test, str]]) -> list[Hit]:
    """One hit for all tests of a file that the same lines skip."""
    groups: dict[tuple[str, str], list[Test]] = {}
    for test, skips in found:
        groups.setdefault((test.file, skips), []).append(test)
    hits = []
    for (file, skips), tests in groups.items():
        names = ", ".join(test.leaf for test in tests[:4]) + (", …" if len(tests) > 4 else "")
        title = f"{names} {'is' if len(tests) == 1 else 'are'} skipped or expected to fail"
        hits.append(hit(Tampering.SKIPPED, title, file, tests[0].line, is_now(skips)))
    return hits


def _gone(lost: Sequence[Test], here: Callable[[str], bool]) -> list[Hit]:
    """One hit each; one for all tests of a file that is gone as a whole."""
    hits = []
    files: dict[str, list[Test]] = {}
    for test in lost:
        if here(test.file):
            hits.append(hit(Tampering.GONE, f"{test.leaf} is gone", test.file, None, was(test.text), ASKED))
        else:
            files.setdefault(test.file, []).append(test)
    for file, tests in files.items():
        names = ", ".join(test.leaf for test in tests[:4]) + (", …" if len(tests) > 4 else "")
        title = f"{names} {'is' if len(tests) == 1 else 'are'} gone with {file}"
        hits.append(hit(Tampering.GONE, title, file, None, *(was(test.text) for test in tests[:3]), ASKED))
    return hits


def _unreadable(before: Sequence[Test], broken: dict[str, str]) -> list[Hit]:
    hits = []
    for file, why in broken.items():
        names = [test.leaf for test in before if test.file == file]
        if names:
            title = f"{file} cannot be read any more, and with it {', '.join(names[:4])}"
            hits.append(hit(Tampering.GONE, title, file, None, why))
    return hits
