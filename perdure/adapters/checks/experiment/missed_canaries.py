"""The search for canaries (tests that must fail) that were not reported as failing."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from perdure.adapters.checks.baseline import CaseKey
from perdure.adapters.checks.experiment.commit_pair import CommitPair, TreeLayout
from perdure.adapters.checks.experiment.outcomes import failed_keys, green_keys, red_canaries
from perdure.adapters.checks.experiment.runs import ExperimentRun
from perdure.adapters.checks.runners.base import Canaries, Runner
from perdure.adapters.system.threads import in_thread


@dataclass(frozen=True)
class CanarySearch:
    """The search for canaries of one command that were not reported as failing.

    runners     the runners that canaries are made by
    directory   where the command runs
    run_layout  runs the command in a layout, by the label of the run
    """

    commits: CommitPair
    runners: Sequence[Runner]
    directory: str
    run_layout: Callable[[str, TreeLayout], Awaitable[ExperimentRun]]

    async def find_missed(
        self,
        canaries: Canaries,
        canary_run: ExperimentRun,
        made_to_fail: set[CaseKey],
        base_run: ExperimentRun,
        plain_run: ExperimentRun | None,
        change_run: ExperimentRun | None,
    ) -> tuple[set[str] | None, set[str]]:
        """Find the canaries (new tests that must fail), and tests that were made to fail, that were not red in
        `canary_run` though they are on the base; where any was not red, the base is run with the same canaries.

        Returns their names and the test files whose canaries are not red on the base either. The names are None where
        no canary is red on the base at all, and none was missed in the change's files.

        made_to_fail  tests of the base that pass on the change, and were made to fail
        base_run      the base as it is; `change_run`: the change as it is
        plain_run     the same run without canaries. A test file of which nothing passes there, and something did on the
                      base, may not even load, and its promises tell of it: canaries in the change's own test files are
                      run in the place of its own
        """
        reports_cases = bool(base_run.result.cases)
        missed = set(canaries.names) - red_canaries(canaries.names, canary_run.result, reports_cases)
        not_failed = made_to_fail - failed_keys(made_to_fail, canary_run.result)
        missed_in_change = set[str]()
        if plain_run is not None and missed:
            places = await in_thread(self._make_places)
            live_on_base, live_on_change = places(base_run), places(plain_run)
            dead = {
                name for name in missed if places.place_of_file(canaries.names[name]) in live_on_base - live_on_change
            }
            missed -= dead
            missed_in_change = (dead and await self._run_in_change(change_run, places)) or set()
        if not missed and not not_failed:
            return missed_in_change, set()
        layout = await in_thread(self.commits.base_layout)
        base_canary_run = await self.run_layout("base-c", layout.with_canaries(canaries))
        red_on_base = red_canaries(canaries.names, base_canary_run.result, reports_cases)
        files_without_red = {canaries.names[name] for name in missed} - {canaries.names[name] for name in red_on_base}
        if not red_on_base and not missed_in_change:
            return None, files_without_red
        return (missed & red_on_base) | {
            name for _, name in failed_keys(not_failed, base_canary_run.result)
        } | missed_in_change, files_without_red

    async def find_missed_in_change(self, change_run: ExperimentRun | None) -> set[str] | None:
        """Find the canaries that are not red in the change's own test files, where no test file of the base takes one;
        None where none of the change's takes one either."""
        return await self._run_in_change(change_run, await in_thread(self._make_places))

    async def _run_in_change(self, change_run: ExperimentRun | None, places: _TestPlaces) -> set[str] | None:
        """Run the change with canaries in its own test files, and return those that were not red; None where there are
        none.

        Only canaries of files that hold a test which passes in `change_run` count.
        """
        live_places = places(change_run) if change_run is not None else set()
        canaries = await in_thread(self.commits.make_canaries, self.runners, self.directory, on_change=True)
        expected = {name for name, path in canaries.names.items() if places.place_of_file(path) in live_places}
        if not expected:
            return None
        layout = await in_thread(self.commits.change_layout)
        canary_run = await self.run_layout("c-change", layout.with_canaries(canaries))
        return expected - red_canaries(expected, canary_run.result, reports_cases=True)

    def _make_places(self) -> _TestPlaces:
        """Return the places of tests for this command, with the module that its go.mod on the base names."""
        prefix = f"{self.directory}/" if self.directory else ""
        module = re.search(r"(?m)^module[ \t]+(\S{1,200})", self.commits.base.read_text(f"{prefix}go.mod"))
        return _TestPlaces(prefix, module[1] if module else "")


@dataclass(frozen=True)
class _TestPlaces:
    """The places of tests: their files; of Go's, which are reported by package, the package's directory."""

    prefix: str
    module: str

    def __call__(self, test_run: ExperimentRun) -> set[str]:
        """Return the places where something passed in this run."""
        return {file or self._package_directory(name.rpartition("::")[0]) for file, name in green_keys(test_run.result)}

    def place_of_file(self, path: str) -> str:
        """Return the place of a test file."""
        return path.rpartition("/")[0] or "." if self.module and path.endswith("_test.go") else path

    def _package_directory(self, package: str) -> str:
        """Return the directory of a Go package, by the name under which it is imported."""
        inside = package.removeprefix(self.module).strip("/")
        return f"{self.prefix}{inside}".strip("/") or "."
