"""The gate itself: every rule over what differs between two commits, and over what the runners said about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perdure.adapters.project.tamper.apart import tampering_apart
from perdure.adapters.project.tamper.compare import ASKED, Compared, compare
from perdure.adapters.project.tamper.dynamic import reported
from perdure.adapters.project.tamper.files import Files, TooLarge
from perdure.adapters.project.tamper.fixtures import conftest_hits
from perdure.adapters.project.tamper.hijack import hijack_hits
from perdure.adapters.project.tamper.inventory import Inventory, Tampered, Test, hit, is_now, only_new, was
from perdure.adapters.project.tamper.jstests import frameworks
from perdure.adapters.project.tamper.languages import Languages, is_test, supports
from perdure.adapters.project.tamper.pyodd import on_import
from perdure.adapters.project.tamper.settings import settings_hits
from perdure.adapters.project.tamper.wrappers import wrapper_hits
from perdure.models.config import TestCommand
from perdure.models.policy import TAMPER_DEPTH, TAMPER_HITS_MOST
from perdure.models.report import ChangedTest, Hit, Tampering, TestReport

_ORDER = list(Tampering)
_NOBODYS = {"__init__", "conftest", "package", "index"}


def tampering(
    before: Files, after: Files, commands: Sequence[TestCommand], base: TestReport | None, now: TestReport | None
) -> Tampered:
    """Where the change from `before` to `after` makes the tests say less than they did, and which say something else.

    commands   the repository's test commands, as they stood on the base
    base, now  what these said about both; None: only the files are looked at

    Only files that differ are read, and what their tests use. What people wrote is quoted as it is: data, never
    instructions, to be neutralised where it is shown. Raises GitError when a commit cannot be read.
    """
    paths = sorted(before.changed)
    if not paths:
        return Tampered()
    try:
        return _tampering(before, after, commands, base, now, paths)
    except TooLarge:
        return tampering_apart(before, commands, base, now)
    except (RecursionError, MemoryError):  # the parser of Python reports its own depth as the latter
        return Tampered((hit(Tampering.CONFIGURATION, "a file that differs is nested too deeply to be read"),))
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:  # a retry would end so too
        title = "a file that differs cannot be judged"
        return Tampered((hit(Tampering.CONFIGURATION, title, "", None, f"{type(error).__name__}: {error}"),))
    finally:
        before.close()


def _tampering(
    before: Files,
    after: Files,
    commands: Sequence[TestCommand],
    base: TestReport | None,
    now: TestReport | None,
    paths: Sequence[str],
) -> Tampered:
    before.load(path for path in paths if _worth_reading(path))
    after.load(path for path in paths if _worth_reading(path))
    words = "\n".join(command.command for command in commands)
    gate = _Gate(before, after, words)
    compared = gate.tests(paths)
    hits = [*compared.hits]
    if base is not None and now is not None:
        hits += reported(before, after, compared, base, now)
    conftests = [path for path in paths if path.rpartition("/")[2] == "conftest.py"]
    hits += conftest_hits(before, after, conftests)
    for path in paths:
        hits += settings_hits(before, after, path, words)
    hits += hijack_hits(before, after, paths, words)
    hits += wrapper_hits(
        before, after, [(command.command, command.directory) for command in commands], _renamed(compared, after)
    )
    unique = {(found.rule, found.title, found.file): found for found in hits}
    ordered = sorted(unique.values(), key=lambda found: (_ORDER.index(found.rule), found.file, found.line or 0))
    changed = tuple([*compared.changed, *gate.changed][:TAMPER_HITS_MOST])
    return Tampered(_at_most(ordered), changed, before.commit)


def judged(report: TestReport, tampered: Tampered, allowed: bool) -> TestReport:
    """The report with the hits in it, and, unless they were asked for, what to do about them in its note.

    allowed  the request itself is about tests: the hits stay in the report, and do not count
    """
    if not tampered.hits:
        return report
    base = report.base or "the base"
    told = [
        f"First undo what stands under `tampering` ({len(tampered.hits)}): those tests and settings as on {base} again."
    ]
    if tampered.base:
        told.append(f"Where a hit ends in …, read the whole with `git show {tampered.base[:12]}:FILE`.")
    note = " ".join([*([] if allowed else told), *([report.note] if report.note else [])])
    return report.model_copy(update={"tampering": tampered.hits, "allowed": allowed, "note": note})


def _renamed(compared: Compared, after: Files) -> dict[str, str]:
    return {
        key[0]: tests[0].file
        for key, tests in compared.moved.items()
        if tests and tests[0].file != key[0] and not after.has(key[0])
    }


def _at_most(hits: list[Hit]) -> tuple[Hit, ...]:
    if len(hits) <= TAMPER_HITS_MOST:
        return tuple(hits)
    more = len(hits) - TAMPER_HITS_MOST + 1
    return (*hits[: TAMPER_HITS_MOST - 1], hit(hits[-1].rule, f"and {more} places more"))


def _worth_reading(path: str) -> bool:
    return not re.search(r"\.(png|jpe?g|gif|webp|ico|pdf|zip|gz|woff2?|mp[34]|so|dll|jar|lock)$", path, re.IGNORECASE)


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


class _Gate:
    def __init__(self, before: Files, after: Files, commands: str) -> None:
        self._before, self._after = before, after
        self._old, self._new = Languages(before, commands), Languages(after, commands)
        self.changed: list[ChangedTest] = []

    def tests(self, paths: Sequence[str]) -> Compared:
        """Tests of the files that differ, and of those that use helpers that differ."""
        paths = [path for path in [*paths, *self._users(paths)] if supports(path)]
        known = {path: self._new.same(self._old, path) for path in paths}
        old = {path: self._old.inventory(path, known[path][0]) for path in paths if self._before.has(path)}
        new = {
            path: self._new.inventory(path, known[path][0] | known[path][1]) for path in paths if self._after.has(path)
        }
        before = [test for found in old.values() for test in found.tests]
        after = [test for path, found in new.items() for test in found.tests if self._collected(path)]

        def fresh() -> list[Test]:
            here = [path for path in new if self._collected(path)]
            return [test for path in here for test in self._new.inventory(path, known[path][0]).tests]

        broken = {path: new[path].broken for path in old if path in new and new[path].broken and not old[path].broken}
        compared = compare(before, after, fresh, here=self._after.has, broken=broken)
        self._files_gone(compared, paths)
        compared.hits += [found for path in old.keys() & new.keys() for found in self._framework(path)]
        compared.hits += self._odd(old, new, {test.key for test in before}, after)
        self._fixtures(old, new)
        return compared

    def _collected(self, path: str) -> bool:
        """A new place counts only where the runner looks; what was there before is looked at, or never was."""
        return self._before.has(path) or self._new.takes(path)

    def _users(self, paths: Sequence[str]) -> list[str]:
        """Test files that stay as they are and name a helper that does not, or one that names it in turn."""
        fresh = {_stem(path) for path in paths if supports(path) and not is_test(path) and self._before.has(path)}
        fresh -= _NOBODYS
        if not fresh:
            return []
        same = sorted(self._after.names & self._before.names - set(paths))
        tests = [path for path in same if is_test(path)]
        helpers = [path for path in same if supports(path) and not is_test(path) and _stem(path) not in _NOBODYS]
        self._before.load([*tests, *helpers])
        self._after.load([*tests, *helpers])
        stems = set[str]()
        for _ in range(TAMPER_DEPTH):
            stems |= fresh
            fresh = {_stem(path) for path in self._naming(helpers, fresh)} - stems if fresh else fresh
        return self._naming(tests, stems)

    def _naming(self, paths: Sequence[str], stems: Iterable[str]) -> list[str]:
        word = re.compile("|".join(rf"\b{re.escape(stem)}\b" for stem in sorted(stems)))
        return [path for path in paths if word.search(self._before.text(path) or "")]

    def _files_gone(self, compared: Compared, paths: Sequence[str]) -> None:
        """Test files in languages nobody here reads, or with tests nobody here sees: as a whole."""
        told = {found.file for found in compared.hits}
        blobs = {self._after.blob(path) for path in paths if self._after.has(path)}
        for path in paths:
            gone = self._before.has(path) and not self._after.has(path) and is_test(path) and path not in told
            if gone and not self._old.inventory(path).tests and self._before.blob(path) not in blobs:
                text = self._before.text(path)
                if text is None or self._old.inventory(path).broken or self._old.opaque(path):
                    compared.hits.append(
                        hit(Tampering.GONE, f"{path} is gone", path, None, was((text or "")[:300]), ASKED)
                    )

    def _framework(self, path: str) -> list[Hit]:
        """A script that no longer loads any test library, and something of the repository's instead."""
        if not re.search(r"\.[cm]?[jt]sx?$", path):
            return []
        had, local = frameworks(self._before.text(path) or "")
        has, beside = frameworks(self._after.text(path) or "")
        lost, instead = had - has, beside - local
        if not lost or not instead:
            return []
        title = f"{path} loads {', '.join(sorted(instead))} instead of {', '.join(sorted(lost))}"
        return [hit(Tampering.HOLLOW, title, path)]

    def _odd(
        self, old: dict[str, Inventory], new: dict[str, Inventory], tests: Iterable[tuple[str, str]], after: list[Test]
    ) -> list[Hit]:
        had = [odd.text for found in old.values() for odd in found.odd]
        added = only_new([odd.text for found in new.values() for odd in found.odd], had)
        hits = []
        for path, found in new.items():
            for odd in found.odd:
                if odd.text in added:
                    added.remove(odd.text)
                    hits.append(hit(odd.rule, f"{path}: {odd.why}", path, odd.line, is_now(odd.text)))
        return hits + self._loaded(new)

    def _loaded(self, new: dict[str, Inventory]) -> list[Hit]:
        """Files that are tested, and end the process when the tests load them."""
        hits = []
        for path in sorted(self._after.changed):
            if not path.endswith(".py") or path in new or not self._after.has(path):
                continue
            module, before = self._new.sources.module(path), self._old.sources.module(path)
            had = {odd.text for odd in on_import(before)} if before else set()
            for odd in on_import(module) if module else ():
                if odd.text not in had:
                    hits.append(hit(odd.rule, f"{path}: {odd.why}", path, odd.line, is_now(odd.text)))
        return hits

    def _fixtures(self, old: dict[str, Inventory], new: dict[str, Inventory]) -> None:
        """Fixtures and setups of test files that do something else now: for the reviewer."""
        for path in old.keys() & new.keys():
            for name, (line, text) in new[path].fixtures.items():
                before = old[path].fixtures.get(name)
                if before is not None and before[1] != text and not path.endswith("conftest.py"):
                    lost, more = (
                        only_new(before[1].splitlines(), text.splitlines()),
                        only_new(text.splitlines(), before[1].splitlines()),
                    )
                    self.changed.append(
                        ChangedTest(name=name, file=path, line=line, before="\n".join(lost), after="\n".join(more))
                    )
