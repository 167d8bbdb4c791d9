"""Tests that must fail, and were not reported so."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from perdure.adapters.checks.baseline import CaseKey
from perdure.adapters.checks.experiment.commits import CommitPair, Layout
from perdure.adapters.checks.experiment.judge import fallen, green, red
from perdure.adapters.checks.experiment.runs import Ran
from perdure.adapters.checks.runners.base import Canaries, Runner
from perdure.adapters.system.threads import in_thread


@dataclass(frozen=True)
class MissedCanaries:
    """Looks for them. `run`: one run of the command by its label, in a layout."""

    commits: CommitPair
    rules: Sequence[Runner]
    directory: str
    run: Callable[[str, Layout], Awaitable[Ran]]

    async def found(
        self, canaries: Canaries, ran: Ran, own: set[CaseKey], before: Ran, on_change: Ran | None, now: Ran | None
    ) -> tuple[set[str] | None, set[str]]:
        """The names of those that were not red in `ran`, though on the base they are, None where nothing is there; and
        the test files whose canaries are not red on the base either.

        own        tests of the base that pass on the change, and were made to fail
        before     the base's own run, and `now` the change's
        on_change  the same run without canaries. A file of which nothing passes there, and something did on the base,
                   may not even load, and its promises tell of it: then the change's own test files are asked instead
        """
        counts = bool(before.result.cases)
        missed = set(canaries.names) - red(canaries.names, ran.result, counts)
        silent = own - fallen(own, ran.result)
        elsewhere = set[str]()
        if on_change is not None and missed:
            places = await in_thread(self._places)
            lived, alive = places(before), places(on_change)
            dead = {name for name in missed if places.of(canaries.names[name]) in lived - alive}
            missed -= dead
            elsewhere = (dead and await self._on_change(now, places)) or set()
        if not missed and not silent:
            return elsewhere, set()
        layout = await in_thread(self.commits.as_base)
        there = await self.run("base-c", layout.with_canaries(canaries))
        shown = red(canaries.names, there.result, counts)
        unshown = {canaries.names[name] for name in missed} - {canaries.names[name] for name in shown}
        if not shown and not elsewhere:
            return None, unshown
        return (missed & shown) | {name for _, name in fallen(silent, there.result)} | elsewhere, unshown

    async def without_base(self, now: Ran | None) -> set[str] | None:
        """As `found`, where no test file of the base takes a canary; None: none of the change's does either."""
        return await self._on_change(now, await in_thread(self._places))

    async def _on_change(self, now: Ran | None, places: _Places) -> set[str] | None:
        """Canaries that are not red in the change's own test files, of those that hold a test that passes."""
        alive = places(now) if now is not None else set()
        canaries = await in_thread(self.commits.canaries, self.rules, self.directory, on_change=True)
        left = {name for name, path in canaries.names.items() if places.of(path) in alive}
        if not left:
            return None
        layout = await in_thread(self.commits.as_change)
        ran = await self.run("c-change", layout.with_canaries(canaries))
        return left - red(left, ran.result, counts=True)

    def _places(self) -> _Places:
        top = f"{self.directory}/" if self.directory else ""
        module = re.search(r"(?m)^module[ \t]+(\S{1,200})", self.commits.base.text(f"{top}go.mod"))
        return _Places(top, module[1] if module else "")


@dataclass(frozen=True)
class _Places:
    """The places of tests: their files; of Go's, which are reported by package, its directory."""

    top: str
    module: str

    def __call__(self, ran: Ran) -> set[str]:
        """Those where something passed."""
        return {file or self._directory(name.rpartition("::")[0]) for file, name in green(ran.result)}

    def of(self, path: str) -> str:
        return path.rpartition("/")[0] or "." if self.module and path.endswith("_test.go") else path

    def _directory(self, package: str) -> str:
        inside = package.removeprefix(self.module).strip("/")
        return f"{self.top}{inside}".strip("/") or "."
