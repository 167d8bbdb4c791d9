"""What the runners reported on the base and now: tests that ran there, and do not run here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from perdure.adapters.project.tamper.compare import ASKED, Compared, Key
from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.inventory import Test, hit
from perdure.models.report import CommandResult, Hit, Tampering, TestCase, TestReport

_PARAMETERS = re.compile(r"\[.*\]$", re.DOTALL)


def label(case: TestCase) -> Key:
    """A reported test without its parameters: (file, name within the file)."""
    name = _PARAMETERS.sub("", case.name)
    return case.file, name.removeprefix(f"{case.file}::") if case.file else name


def reported(before: Files, after: Files, compared: Compared, base: TestReport, now: TestReport) -> list[Hit]:
    """Hits that only a run can show. A command that did not come to its end, or could not load a file, is red anyway,
    and says nothing about what else is there."""
    known = {(result.name, result.command): result for result in base.commands}
    hits: list[Hit] = []
    for result in now.commands:
        was = known.get((result.name, result.command))
        if was is not None and was.cases and comparable(result):
            hits += _Command(before, after, compared, was, result).hits()
        if was is not None:
            hits += _invented(after, was, result)
    return hits


def comparable(result: CommandResult) -> bool:
    whole = result.verdict == "passed" or (result.verdict == "failed" and not result.partial)
    return whole and bool(result.cases) and not any(case.outcome == "errored" for case in result.cases)


class _Command:
    """One command's reports, put beside what became of each test in the sources."""

    def __init__(
        self, before: Files, after: Files, compared: Compared, was: CommandResult, result: CommandResult
    ) -> None:
        self._before, self._after, self._compared = before, after, compared
        self._passed = Counter(label(case) for case in was.cases if case.outcome == "passed")
        self._skipped_before = Counter(label(case) for case in was.cases if case.outcome == "skipped")
        self._ran = Counter(label(case) for case in result.cases if case.outcome != "skipped")
        self._skipped = Counter(label(case) for case in result.cases if case.outcome == "skipped")
        self._moved: Mapping[Key, Sequence[Test]] = {
            name: tests for key, tests in compared.moved.items() for name in self._names(key)
        }
        self._told = {name for key in compared.told for name in self._names(key)}

    def hits(self) -> list[Hit]:
        """Several tests that became one are counted together."""
        groups: dict[tuple[Key, ...], Counter[Key]] = {}
        for name, count in self._passed.items():
            groups.setdefault(self._targets(name), Counter())[name] = count
        found = []
        for targets, names in groups.items():
            wanted = names.total() - sum(self._compared.spared[name] for name in names)
            ran = sum(self._ran[target] for target in targets)
            if ran < wanted and targets and not self._excused(names):
                found.append(self._hit(targets, names, ran, wanted))
        return found

    def _targets(self, name: Key) -> tuple[Key, ...]:
        became = self._moved.get(name)
        if became is None:
            return (name,)
        files = {file for file, _ in self._passed}
        return tuple(sorted({self._as_reported(test, bool(files - {""})) for test in became}))

    def _as_reported(self, test: Test, with_file: bool) -> Key:
        return (test.file, test.name) if with_file else ("", test.leaf)

    def _names(self, key: Key) -> tuple[Key, ...]:
        """How reports may call a test of the sources."""
        leaf = re.split(r"::| > ", key[1])[-1]
        return key, ("", leaf)

    def _excused(self, names: Counter[Key]) -> bool:
        """What the sources have shown to be gone is told already; what others added to the base was never here."""
        return all(name in self._told or (self._before.behind and not self._ours(name)) for name in names)

    def _ours(self, name: Key) -> bool:
        file, test = name
        leaf = re.split(r"::| > ", test)[-1]
        return bool(file) and leaf in (self._before.text(file) or "")

    def _hit(self, targets: tuple[Key, ...], names: Counter[Key], ran: int, wanted: int) -> Hit:
        leaf = ", ".join(re.split(r"::", name)[-1] for _, name in list(names)[:3])
        file = targets[0][0]
        here = file if file and self._after.has(file) else ""
        skipped = sum(self._skipped[t] for t in targets) - sum(self._skipped_before[n] for n in names)
        if ran + skipped >= wanted:
            return hit(Tampering.SKIPPED, f"{leaf} is skipped", here, None, "it passed on the base and is skipped now")
        if ran == 0:
            told = "it passed on the base, and the runner does not name it any more"
            return hit(Tampering.GONE, f"{leaf} does not run any more", here, None, told, ASKED)
        title = f"{wanted - ran} of {wanted} cases of {leaf} do not run any more"
        return hit(Tampering.GONE, title, here, None, f"{wanted} ran on the base, {ran} now", ASKED)


def _invented(after: Files, was: CommandResult, now: CommandResult) -> list[Hit]:
    """Tests that are said to have passed, and whose file, or whose name in it, does not exist."""
    before = {label(case) for case in was.cases}
    hits = []
    for file, name in sorted({label(case) for case in now.cases if case.outcome == "passed"} - before):
        leaf = name.rpartition("::")[2]
        if not file or file.startswith("/") or "/../" in f"/{file}":
            continue
        if not after.has(file):
            title = f"the report names {leaf} in {file}, which does not exist"
            hits.append(hit(Tampering.REPORT, title, file, None, "something else than the runner wrote it"))
        elif file.endswith(".py") and leaf.startswith("test") and not _defined(after, file, leaf):
            title = f"the report names {leaf}, which {file} does not define"
            hits.append(hit(Tampering.REPORT, title, file, None, "something else than the runner wrote it"))
    return hits


def _defined(after: Files, file: str, leaf: str) -> bool:
    """In the file, or, where it inherits or makes tests, in any other one that differs from the base."""
    text = after.text(file) or ""
    generated = re.search(
        r"^\s*class \w+\((?!\s*\))|setattr\(|globals\(\)|import \*|^\s*from \S+ import .*\bTest", text, re.M
    )
    return leaf in text or generated is not None
