"""Read the runs of an experiment test by test, for `run_experiment`: which tests pass or fail, which failures come
every time (others are flaky), and which canaries (tests that must fail) were not reported as failing. A test is named
by its key, see case_key."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from perdure.adapters.checks.baseline import FAILING, CaseKey, cases_by_key
from perdure.adapters.checks.experiment.commit_pair import CommitPair, TreeLayout
from perdure.adapters.checks.experiment.runs import CommandRuns, ExperimentRun
from perdure.adapters.checks.runners.base import Canaries, Runner
from perdure.adapters.system.threads import in_thread
from perdure.models.checks.report import CommandResult, TestCase
from perdure.models.duration import parse_duration
from perdure.models.limits import RERUN_TESTS_MOST


def outcomes_by_key(result: CommandResult | None) -> dict[CaseKey, str]:
    """Return test → outcome; empty without a result."""
    return {key: case.outcome for key, case in cases_by_key(result).items()}


def green_keys(result: CommandResult | None) -> set[CaseKey]:
    """Return the tests that passed."""
    return {test_key for test_key, case in cases_by_key(result).items() if case.outcome == "passed"}


def ended_by_itself(result: CommandResult) -> bool:
    """Return whether a command ended by itself (exit code 0 to 128): what was killed says nothing about the tests it
    did not reach."""
    return result.verdict != "timed_out" and result.exit_code is not None and 0 <= result.exit_code <= 128


@dataclass(frozen=True)
class ProvingTests:
    """Tests that are new or changed and pass on the change. `failing`: they fail without its product files; `unbuilt`:
    their file does not load, or their package does not build, without them."""

    failing: set[CaseKey]
    unbuilt: set[CaseKey]


def find_proving_tests(
    base_result: CommandResult | None,
    change_result: CommandResult,
    d_result: CommandResult,
    is_new_or_changed: Callable[[CaseKey], bool],
) -> ProvingTests:
    """Find the tests that are new or changed, pass on the change, and do not pass without its product files.

    base_result        the base as it is; None: not known
    change_result      the change as it is
    d_result           the change's tests on the base's product files
    is_new_or_changed  whether a test of the change is not on the base, or reads otherwise there

    A test that passes on the base and fails in `d_result` has changed, whatever its text says: in a snapshot, say. (One
    that is errored there may only share a fixture that has changed.) A test that `d_result` does not report at all
    counts as unbuilt where it reports no other test of its file, or of its Go package, either; else the file was loaded
    and the test left out, as one that is made from data of the product, and it does not count.
    """
    d_outcomes, change_green = outcomes_by_key(d_result), green_keys(change_result)
    base_green = green_keys(base_result)
    loaded_places = {place_of(key) for key in outcomes_by_key(change_result).keys() & d_outcomes.keys()}
    failing, unbuilt = set[CaseKey](), set[CaseKey]()
    for key in change_green - {key for key, outcome in d_outcomes.items() if outcome in ("passed", "skipped")}:
        if key in d_outcomes and ((key in base_green and d_outcomes[key] == "failed") or is_new_or_changed(key)):
            failing.add(key)
        elif place_of(key) not in loaded_places and is_new_or_changed(key):
            unbuilt.add(key)
    return ProvingTests(failing, unbuilt)


def place_of(key: CaseKey) -> str:
    """Return what is loaded or built as one: a test's file, or its Go package."""
    return key.file or key.name.rpartition("::")[0]


def messages_by_key(result: CommandResult | None) -> dict[CaseKey, str]:
    """Return test → message of its failure, for those that have one."""
    return {key: case.message for key, case in cases_by_key(result).items() if case.message}


def order_keys(keys: Iterable[CaseKey], result: CommandResult | None) -> list[CaseKey]:
    """Return these tests in the order in which the result reports them; those that it does not report come last,
    sorted."""
    key_set = set(keys)
    reported = [key for key in cases_by_key(result) if key in key_set]
    return [*reported, *sorted(key_set.difference(reported))]


def red_canaries(names: Iterable[str], result: CommandResult, reports_cases: bool) -> set[str]:
    """Return the names of the canaries (tests that must fail) that were reported as failing; empty where the command
    passed or did not start.

    reports_cases  whether the runner reports its tests. Of one that tells nothing but its exit code, all canaries count
                   as reported where it failed and the end of its output names one of them; else none
    """
    if result.verdict in ("passed", "not_started"):
        return set()
    if not reports_cases:
        is_named = any(name in result.tail for name in names)  # else it is red for another reason: what did not compile
        return set(names) if is_named and result.verdict == "failed" and result.exit_code not in (None, 0) else set()
    failing = [case for case in result.cases if case.outcome in FAILING]
    return {name for name in names if any(_is_case_of(name, case) for case in failing)}


def failed_keys(keys: Iterable[CaseKey], result: CommandResult) -> set[CaseKey]:
    """Return those of these tests, which were made to fail, that were reported as failing; empty where the command
    passed or did not start.

    A test that is reported nowhere under its key counts by its name alone, for its file may have moved.
    """
    by_key = outcomes_by_key(result)
    failing = {test_key for test_key, outcome in by_key.items() if outcome in FAILING}
    names = {key.name for key in failing}
    if result.verdict in ("passed", "not_started"):
        return set()
    return {test_key for test_key in keys if test_key in failing or (test_key not in by_key and test_key.name in names)}


def _is_case_of(name: str, case: TestCase) -> bool:
    """Return whether a canary's name is part of the case's name."""
    return name in case.name


EXPERIMENT_AGAIN = 5
"""Times that the base's tests are run on the change once more when some fail there and pass on the base, and the change
would be called tampered for it: of tests that fail every second time, one in some thirty-five is then believed to fail.
"""


async def confirm_failures(
    runs: CommandRuns, layout: TreeLayout, failing: set[CaseKey], base_result: CommandResult, once_only: set[CaseKey]
) -> set[CaseKey]:
    """Run failing tests of the base on the change again, each alone where that can be, and return those that failed
    every time.

    base_result  the command's report of the base, with the case of each test
    once_only    tests for which nobody is called tampered: failing once more is enough

    It is repeated at most EXPERIMENT_AGAIN times, within the time the command itself may take. Where tests cannot be
    run alone, the whole command is run. A test that passes alone is then run among the others, for it may fail because
    of what the change leaves behind: it still counts as failing where it is reported as not passed there. Raises
    SandboxUnavailable or WorkCutOff when the sandbox failed, Superseded when a newer attempt owns the work.
    """
    deadline, passed_alone = time.monotonic() + parse_duration(runs.test.timeout), set[CaseKey]()
    for repetition in range(EXPERIMENT_AGAIN):
        if not failing or (repetition and (failing <= once_only or time.monotonic() > deadline)):
            break
        passing = await _passing_alone(runs, layout, failing - passed_alone, base_result, deadline)
        passed_alone |= passing or set()
        if passing is None or passed_alone & failing:
            repeat_outcomes = outcomes_by_key((await runs.run_whole("b-again", layout)).result)
            not_reported = (
                passed_alone - repeat_outcomes.keys()
            )  # as where another one does not compile: that is not its own failure
            passing = not_reported | {test_key for test_key, outcome in repeat_outcomes.items() if outcome == "passed"}
        failing = failing - passing
    return failing


async def _passing_alone(
    runs: CommandRuns, layout: TreeLayout, failing: set[CaseKey], base_result: CommandResult, deadline: float
) -> set[CaseKey] | None:
    """Run these tests each alone, and return those that passed; a test that is not reached before the deadline
    (monotonic) is not among them.

    None where they are more than RERUN_TESTS_MOST, or the runner cannot select one. Raises SandboxUnavailable,
    WorkCutOff or Superseded when a run does.
    """
    cases, passing = cases_by_key(base_result), set[CaseKey]()
    if len(failing) > RERUN_TESTS_MOST:
        return None
    for test_key in sorted(failing):
        if time.monotonic() > deadline:
            break
        test_run = await runs.run_selected("b-alone", layout, cases[test_key])
        if test_run is None:
            return None
        passing |= green_keys(test_run.result)
    return passing


def find_replaced(canaries: Canaries, result: CommandResult) -> set[str]:
    """Return the names of what canaries saw replaced in library modules, as their messages say it."""
    lists = [
        listed[1].split(", ")
        for case in result.cases
        if (listed := _REPLACED.search(case.message)) and any(_is_case_of(name, case) for name in canaries.names)
    ]
    return {name for names in lists for name in names}


_REPLACED = re.compile(r"libraries: (?!')([^\n]{1,2000})")


@dataclass(frozen=True)
class MissedCanaries:
    """The findings of canaries.

    names              of the canaries that were missed; None: no canary is red on the base at all, and none was missed
                       in the change's own files
    files_without_red  test files whose canaries are not red on the base either
    replaced           what the change replaces in library modules, and the base does not
    """

    names: set[str] | None
    files_without_red: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)


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
    ) -> MissedCanaries:
        """Find the canaries (new tests that must fail) and the tests made to fail that were not red in `canary_run`
        though they are on the base, and what canaries saw replaced there and not on the base. Where there is any, the
        base is run with the same canaries.

        made_to_fail  tests of the base that pass on the change, and were made to fail
        base_run      the base as it is; `change_run`: the change as it is
        plain_run     the same run as `canary_run` without canaries; None: it was not made

        A test file of the base in which nothing passes in `plain_run`, though something did on the base, may not even
        load on the change: its canaries are left out, and the change is run with canaries in its own test files
        instead. Raises SandboxUnavailable, WorkCutOff or Superseded when a run does.
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
        replaced = find_replaced(canaries, canary_run.result)
        if not missed and not not_failed and not replaced:
            return MissedCanaries(missed_in_change)
        layout = await in_thread(self.commits.base_layout)
        base_canary_run = await self.run_layout("base-c", layout.with_canaries(canaries))
        red_on_base = red_canaries(canaries.names, base_canary_run.result, reports_cases)
        files_without_red = {canaries.names[name] for name in missed} - {canaries.names[name] for name in red_on_base}
        if not red_on_base and not missed_in_change:
            return MissedCanaries(None, files_without_red)
        names = {key.name for key in failed_keys(not_failed, base_canary_run.result)}
        replaced -= find_replaced(canaries, base_canary_run.result)
        return MissedCanaries((missed & red_on_base) | names | missed_in_change, files_without_red, replaced)

    async def find_missed_in_change(self, change_run: ExperimentRun | None) -> set[str] | None:
        """Find the canaries that are not red in the change's own test files, where no test file of the base takes one;
        None where none of the change's takes one either."""
        return await self._run_in_change(change_run, await in_thread(self._make_places))

    async def _run_in_change(self, change_run: ExperimentRun | None, places: _TestPlaces) -> set[str] | None:
        """Run the change with canaries in its own test files, and return the names of those that were not red; None,
        without a run, where no canary can be expected to be red.

        Only canaries of files that hold a test which passes in `change_run` count. Raises SandboxUnavailable,
        WorkCutOff or Superseded when a run does.
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
        return {
            key.file or self._package_directory(key.name.rpartition("::")[0]) for key in green_keys(test_run.result)
        }

    def place_of_file(self, path: str) -> str:
        """Return the place of a test file."""
        return path.rpartition("/")[0] or "." if self.module and path.endswith("_test.go") else path

    def _package_directory(self, package: str) -> str:
        """Return the directory of a Go package, by the name under which it is imported."""
        inside = package.removeprefix(self.module).strip("/")
        return f"{self.prefix}{inside}".strip("/") or "."
