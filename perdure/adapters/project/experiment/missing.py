"""Tests that must fail, and were not reported so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from perdure.adapters.host.threads import in_thread
from perdure.adapters.project.baseline import Key
from perdure.adapters.project.experiment.commits import Commits, Layout
from perdure.adapters.project.experiment.judge import fallen, green, red
from perdure.adapters.project.experiment.runs import Ran
from perdure.adapters.project.runners.base import Canaries, Runner


@dataclass(frozen=True)
class Missing:
    """Looks for them. `run`: one run of the command by its label, in a layout."""

    commits: Commits
    rules: Sequence[Runner]
    directory: str
    run: Callable[[str, Layout], Awaitable[Ran]]

    async def found(
        self, canaries: Canaries, ran: Ran, own: set[Key], on_change: Ran | None, counts: bool
    ) -> set[str] | None:
        """The names of those that were not red in `ran`, though on the base they are; None where nothing is there.

        own        tests of the base that pass on the change, and were made to fail
        on_change  the same run without canaries. A file of which nothing passes there may not even load, and its
                   promises tell of it: then the change's own test files are asked instead
        """
        missed = set(canaries.names) - red(canaries.names, ran.result, counts)
        silent = own - fallen(own, ran.result)
        elsewhere = set[str]()
        if on_change is not None and missed:
            alive = {file for file, _ in green(on_change.result)}
            dead = {name for name in missed if canaries.names[name] not in alive and "" not in alive}
            missed -= dead
            elsewhere = await self._on_change(counts) if dead else set()
        if not missed and not silent:
            return elsewhere
        layout = await in_thread(self.commits.as_base)
        there = await self.run("base-c", layout.with_canaries(canaries))
        shown = red(canaries.names, there.result, counts)
        if not shown and not elsewhere:
            return None
        return (missed & shown) | {name for _, name in fallen(silent, there.result)} | elsewhere

    async def _on_change(self, counts: bool) -> set[str]:
        """Canaries in the change's own test files that are not red."""
        canaries = await in_thread(self.commits.canaries, self.rules, self.directory, on_change=True)
        layout = await in_thread(self.commits.as_change)
        ran = await self.run("c-change", layout.with_canaries(canaries))
        return set(canaries.names) - red(canaries.names, ran.result, counts)
