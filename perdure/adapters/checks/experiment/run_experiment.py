"""Run the experiments that judge a change, and say what they show: each runs a test command in a clean checkout of its
own, the test side read-only. `activities.change_experiments` calls it once the change's own tests are green; what a
result leads to is in `checks.verdict`.

B, PASS_TO_PASS: the base's test side with the change's product files: what was green on the base is green. C, canaries:
the same with tests that always fail, first and last in each test file: each is reported red. D, FAIL_TO_PASS: the
change's test side with the base's product files: what fails there is what the change is about.
Other conditions: B under another clock, path and program name: what passes in B passes there, as on the base.

E, stubs: the change with its new functions taken out, only for its new tests that do not build without the change.

B and D are made only where the change touches the test side at all, D only where the command also reports its tests by
name; C is then made on the change itself. B, C and D run at the same time, E as soon as D has ended. A test that fails
in B and a canary that is not red are then run on the base as well, in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence

from perdure.adapters.checks.baseline import FAILING, CaseKey, cases_by_key, command_key, results_by_command
from perdure.adapters.checks.experiment.commit_pair import CommitPair, TreeLayout
from perdure.adapters.checks.experiment.function_stubs import STUB_MESSAGE
from perdure.adapters.checks.experiment.outcomes import (
    CanarySearch,
    ProvingTests,
    confirm_failures,
    ended_by_itself,
    find_proving_tests,
    green_keys,
    messages_by_key,
    order_keys,
    outcomes_by_key,
    place_of,
)
from perdure.adapters.checks.experiment.reduced_tests import versions_of_test
from perdure.adapters.checks.experiment.runs import CommandRuns, ExperimentRun, ExperimentSetting, run_together
from perdure.adapters.checks.runners import RUNNERS
from perdure.adapters.checks.runners.base import Canaries
from perdure.adapters.checks.verdict import result_line
from perdure.adapters.system.threads import in_thread
from perdure.models.checks.report import (
    CanaryOutcome,
    CommandExperiment,
    CommandResult,
    Experiment,
    Promise,
    TestReport,
    UnaskedTests,
)
from perdure.models.checks.verdict_text import join_short_names
from perdure.models.config.repository import TestCommand
from perdure.models.limits import CASE_MESSAGE_CHARS
from perdure.text import format_count

EXPERIMENT_NAMED = 50
"""The most promises, and the most names in each list, that the result of an experiment holds: a person decides long
before the fiftieth."""

OTHER_CONDITIONS_MOST_S = 60
"""Seconds of a run of the base's tests on the change that is made once more under other conditions."""


async def run_experiment(
    setting: ExperimentSetting,
    base: str,
    change: str,
    tests: Sequence[TestCommand],
    *,
    base_report: TestReport | None = None,
    change_report: TestReport | None = None,
    allowed: bool = False,
    side: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Experiment:
    """Run the experiments that judge the change between two commits whose own tests are green, and return what they
    have shown: an entry for each required test command.

    tests        the test commands; only required ones are run
    base_report  what the commands said about the base, and `change_report` about the change; a result without test
                 cases is made anew where the runner can report them
    allowed      the request itself is about tests; it is only recorded in the result
    side         patterns of `[tests] side`
    on_progress  called with one line as each run begins

    Raises SandboxUnavailable or WorkCutOff when the sandbox failed, Superseded when a newer attempt owns the work, and
    GitError for names that are no commits.
    """
    commits = await in_thread(CommitPair.from_commits, setting.repository, base, change, tests, side)
    reports = (
        results_by_command(base_report) if base_report else {},
        results_by_command(change_report) if change_report else {},
    )
    results = []
    for number, test in enumerate(tests, start=1):
        if test.required:
            known_results = reports[0].get(command_key(test)), reports[1].get(command_key(test))
            results.append(
                await _CommandTrial(commits, CommandRuns(setting, test, number, on_progress), *known_results).run_all()
            )
    return Experiment(base=base, change=change, touched=commits.touched, allowed=allowed, commands=tuple(results))


class _CommandTrial:
    """All experiments with one test command.

    base_result, change_result  what it said about both commits as they are; None: not known yet
    """

    def __init__(
        self,
        commits: CommitPair,
        runs: CommandRuns,
        base_result: CommandResult | None,
        change_result: CommandResult | None,
    ) -> None:
        self._commits, self._runs, self._test = commits, runs, runs.test
        self._base_result, self._change_result = base_result, change_result
        runner = commits.runners[command_key(self._test)]
        self._reports_cases = self._test.report == "junit" or (runner is not None and self._test.report != "exit")
        # The canaries of an unknown command: pytest understands those of unittest, too; all others only their own
        # runner.
        self._canary_runners = (runner,) if runner is not None else tuple(r for r in RUNNERS if r.name != "pytest")
        self._base_runs: dict[str, ExperimentRun] = {}
        self._new_test_fields: dict[str, object] | None = None
        self._unasked_reasons = (
            [_UNREAD_PATTERNS.format(", ".join(unread[:3]))] if (unread := commits.base_side.unread) else list[str]()
        )

    async def run_all(self) -> CommandExperiment:
        """Run all experiments with the command, at the same time as far as possible, and return what they have shown:
        base tests that pass, fail or are gone on the change, tests that prove the change, canaries, and paths of the
        test side that were written to, though not in the base's own run.

        The base and the change as they are run too, where their results are not known with test cases. Where tests of
        the base are not reported in B, because the change deleted what their files name, the base's tests on the change
        (B) and the canaries (C) are run again without the deleted parts. What could not be tried stands in `unasked` of
        the result, with the reason. Raises SandboxUnavailable or WorkCutOff when the sandbox failed, Superseded when a
        newer attempt owns the work.
        """
        canaries = await in_thread(self._commits.make_canaries, self._canary_runners, self._test.directory)
        inline_files = await in_thread(self._commits.inline_test_files, self._test)
        touched = bool(self._commits.touched)
        tested_layout = await in_thread(self._commits.base_tests_on_change if touched else self._commits.change_layout)
        jobs: list[Coroutine[None, None, ExperimentRun | None]] = [
            self._runs.run_whole("b", tested_layout) if touched else _no_run(),
            self._run_change_tests_on_base() if touched and self._reports_cases else _no_run(),
            self._known_or_new_run("base", self._base_result),
            self._known_or_new_run("change", self._change_result),
            self._run_canaries(tested_layout, canaries),
        ]
        b_run, d_run, base_run, change_run, c_run = await run_together(jobs, self._runs.setting.place.sandbox.grade)
        if (
            b_run is not None
            and base_run is not None
            and green_keys(base_run.result) - outcomes_by_key(b_run.result).keys()
        ):
            reduced = await in_thread(self._commits.without_deleted_tests)
            if (
                reduced is not None
            ):  # tests whose file does not load, because what it names is deleted, and some of its tests with it
                self._commits = reduced
                canaries = await in_thread(reduced.make_canaries, self._canary_runners, self._test.directory)
                tested_layout = await in_thread(reduced.base_tests_on_change)
                b_and_c = [self._runs.run_whole("b", tested_layout), self._run_canaries(tested_layout, canaries)]
                b_run, c_run = await run_together(b_and_c, self._runs.setting.place.sandbox.grade)
        result = CommandExperiment(name=self._test.name, command=self._test.command)
        has_base_cases = base_run is not None and bool(base_run.result.cases)
        if base_run is None or change_run is None or not has_base_cases:
            self._unasked_reasons.append(self._no_names_reason(base_run))
            if b_run is not None and base_run is not None and change_run is not None:
                result = await self._judge_whole_command(
                    result, tested_layout, b_run, base_run.result, change_run.result
                )
        else:
            result = await self._judge_base_tests(
                result, b_run or change_run, base_run.result, change_run.result, touched
            )
        if base_run is not None and (plain_run := b_run or change_run) is not None:
            result = await self._judge_other_conditions(result, tested_layout, plain_run, base_run.result)
        if d_run is not None and not ended_by_itself(d_run.result):
            self._unasked_reasons.append(f"the change's tests on the base: {d_run.result.reason}")
        elif change_run is not None and change_run.result.cases:
            if (update := self._new_test_fields) is None:
                update = await self._judge_new_tests(base_run.result if base_run else None, change_run.result, d_run)
            result = result.model_copy(update=update)
        result = result.model_copy(
            update=await self._judge_canaries(canaries, c_run, b_run, base_run, change_run, tested_layout)
        )
        if inline_files and not any(tests.reason == _WENT_ALONG for tests in result.not_asked):
            self._unasked_reasons.append(_INLINE_TESTS.format(", ".join(inline_files[:3])))
        written = {path for ran in (b_run, c_run, change_run) if ran is not None for path in ran.written_paths}
        if written:
            written -= set((await self._run_base_once()).written_paths)
        return result.model_copy(
            update={
                "unasked": tuple(self._unasked_reasons),
                "written": tuple(sorted(written)),
                "killed_runs": self._runs.killed_runs,
            }
        )

    async def _judge_new_tests(
        self, base_result: CommandResult | None, change_result: CommandResult, d_run: ExperimentRun | None
    ) -> dict[str, object]:
        """Return the result's fields about tests that are new or changed: those that fail without the change, and those
        that do not build without it, or pass with its new functions stubbed.

        d_run  the change's tests on the base; None: they are the base's own, only tests in product files may be new

        Raises SandboxUnavailable, WorkCutOff or Superseded when a run does.
        """
        proving, inline = ProvingTests(set(), set()), dict[CaseKey, bool]()
        if d_run is not None:
            is_new, find = self._commits.test_is_new_or_changed, find_proving_tests
            proving = await in_thread(find, base_result, change_result, d_run.result, is_new)
        if base_result is not None:
            new_keys = green_keys(change_result) - outcomes_by_key(base_result).keys() - proving.unbuilt
            inline = await in_thread(self._commits.new_inline_tests, new_keys)
        tried = proving.unbuilt | inline.keys()
        failing, hollow = await self._run_stubbed(tried, change_result) if tried else (set(), set())
        hollow = {test_key for test_key in hollow if inline.get(test_key, True)}
        if d_run is None and not failing and not hollow:
            return {}
        update: dict[str, object] = {"hollow": _test_names(order_keys(hollow, change_result))}
        for field, keys in (
            ("proving", proving.failing | failing),
            ("unbuilt", proving.unbuilt - failing - hollow),
        ):
            update[field] = _test_names(order_keys(keys, change_result))
            update[f"{field}_unnamed"] = max(0, len(keys) - EXPERIMENT_NAMED)
        return update

    async def _judge_canaries(
        self,
        canaries: Canaries,
        c_run: ExperimentRun | None,
        b_run: ExperimentRun | None,
        base_run: ExperimentRun | None,
        change_run: ExperimentRun | None,
        layout: TreeLayout,
    ) -> dict[str, object]:
        """Decide whether the canaries (tests that must fail) were all reported as failing, and return the result's
        fields that say so: `canaries`, the outcome (caught or missed), `missed`, the first names of those not red, and
        `replaced`, what they saw replaced in library modules.

        c_run       the run with canaries; None: no test file of the base takes any
        b_run       the same run without canaries; None: it was not made
        base_run    the base as it is; change_run: the change as it is; None: it was not made
        layout      the tree of c_run and b_run

        Without c_run or base_run, the change is run with canaries in its own test files. A c_run that was cut off is
        made again, and where a canary was not red in it, the base is run with them. Returns no fields when no canary
        could be tried, or none is red on the base either. Adds to `unasked` the reason for that, and which canaries
        could not be planted or which files had none that is red on the base. Raises SandboxUnavailable, WorkCutOff or
        Superseded when a run does.
        """
        if canaries.unplanted and c_run is not None:
            self._unasked_reasons.append(
                _CANARIES_NOT_PLANTED.format(_count_files(canaries.unplanted), ", ".join(canaries.unplanted[:3]))
            )
        search = CanarySearch(self._commits, self._canary_runners, self._test.directory, self._runs.run_whole)
        if c_run is None or base_run is None:
            missed_on_change = await search.find_missed_in_change(change_run)
            if missed_on_change is None:
                self._unasked_reasons.append("no test file of the base takes a test that must fail")
                return {}
            return _canary_fields(missed_on_change)
        if not ended_by_itself(c_run.result):  # cut off: a busy machine is no trick of the change
            c_run = await self._runs.run_whole("c-again", layout.with_canaries(canaries))
        plain_run = b_run or change_run
        made_to_fail = {
            test_key
            for test_key in green_keys(base_run.result) & green_keys(plain_run.result if plain_run else None)
            if canaries.is_made_to_fail(test_key.name)
        }
        missed = await search.find_missed(canaries, c_run, made_to_fail, base_run, b_run, change_run)
        if missed.names is None:
            self._unasked_reasons.append("its command shows no test that must fail, on the base neither: no canaries")
            return {}
        if files := sorted(missed.files_without_red):
            self._unasked_reasons.append(_CANARIES_NOT_RED.format(_count_files(files), ", ".join(files[:3])))
        return {**_canary_fields(missed.names), "replaced": tuple(sorted(missed.replaced)[:EXPERIMENT_NAMED])}

    async def _judge_whole_command(
        self,
        result: CommandExperiment,
        layout: TreeLayout,
        b_run: ExperimentRun,
        base_result: CommandResult,
        change_result: CommandResult,
    ) -> CommandExperiment:
        """Return the result of a command that does not tell which test fails, with one changed promise (what the base's
        tests demand and the change no longer does) where they fail on the change.

        The promise is added only where the command passes on both commits as they are, b_run fails, fails again in a
        second run, and the base passes once more. Raises SandboxUnavailable, WorkCutOff or Superseded when a run does.
        """
        if b_run.result.verdict == "passed" or not (base_result.verdict == change_result.verdict == "passed"):
            return result
        repeated = await self._runs.run_whole("b-again", layout), await self._run_base_once()
        if [test_run.result.verdict for test_run in repeated] != ["failed", "passed"]:
            return result
        message = (
            f"the base's own tests and settings fail on the change:\n{b_run.result.tail[-CASE_MESSAGE_CHARS // 2 :]}"
        )
        return result.model_copy(update={"promises": (Promise(name=self._test.command, message=message),)})

    async def _judge_base_tests(
        self,
        result: CommandExperiment,
        b_run: ExperimentRun,
        base_result: CommandResult,
        change_result: CommandResult,
        touched: bool,
    ) -> CommandExperiment:
        """Return the result with what became of the tests that were green on the base: their number, and how many pass
        on the change. Of those that fail there: changed promises (they pass in the change's version), tests that are
        gone or skipped, and contradicted ones (any other). Of those that pass there: which the change no longer has.

        b_run    the base's tests on the change, or the change's own run where it touches no tests
        touched  the change touches the test side; otherwise there are no two versions of a test, and no promises

        A test has failed only if it is green on the base in a run like this, and fails in repeated runs as well; these
        runs are made here. Tests that are flaky on the base do not count. Where all fail and settings shared with the
        product differ, they are run with the change's settings. Reasons why tests could not be judged are added to
        `unasked`. Raises SandboxUnavailable, WorkCutOff or Superseded when a run does.
        """
        base_green, change_green, steered = green_keys(base_result), green_keys(change_result), tuple[str, ...]()
        not_asked = Counter[str]()
        if flaky := base_green & {key for key, case in cases_by_key(base_result).items() if case.flaky}:
            self._unasked_reasons.append(
                f"flaky on the base: {join_short_names([key.name for key in order_keys(flaky, base_result)])}"
            )
            base_green -= flaky
            not_asked[f"flaky on {_BASE}"] = len(flaky)
        went_along = await in_thread(self._commits.tests_of_changed_product, base_green)
        went_along |= {
            test_key
            for test_key in base_green - outcomes_by_key(b_run.result).keys()
            if self._commits.holds_inline_tests(test_key.file)
        }
        base_green -= went_along
        not_asked[_WENT_ALONG] = len(went_along)
        failing = base_green - green_keys(b_run.result)
        if not base_green and not +not_asked:
            self._unasked_reasons.append(f"no test was green on the base: {result_line(base_result)}")
        if failing:
            if (first_run := self._base_runs.get("base")) is not None and first_run.result is base_result:
                del self._base_runs["base"]
            green_again = green_keys((await self._run_base_once()).result)
            not_asked[f"not green on {_BASE} in a second run"] = len(base_green - green_again)
            base_green &= green_again
            failing &= base_green
            if not base_green:
                self._unasked_reasons.append("the base's tests are red where nobody may write to the test side")
        if failing and failing == base_green and self._commits.shared_settings:
            layout = await in_thread(self._commits.base_tests_on_change, shared=False)
            rerun = await self._runs.run_whole("b-shared", layout)
            if green_keys(rerun.result) & base_green:  # it starts with the change's settings, and not with the base's
                b_run, steered = rerun, self._commits.shared_settings
                failing = base_green - green_keys(b_run.result)
        if not_reached := self._find_not_reached(failing, b_run.result):
            layout = await in_thread(self._commits.without_tests, failing - not_reached)
            rest = outcomes_by_key((await self._runs.run_whole("b-rest", layout)).result)
            unknown = not_reached - rest.keys()
            failing -= unknown | {test_key for test_key in not_reached if rest.get(test_key) == "passed"}
            not_asked[_NOT_REACHED] = len(unknown)
            base_green -= unknown
        if failing:
            layout = await in_thread(self._commits.base_tests_on_change, shared=not steered)
            failing = await confirm_failures(
                self._runs, layout, failing, base_result, change_green if touched else set()
            )
        change_outcomes = outcomes_by_key(change_result)
        failed_on_change = order_keys(failing, base_result)
        gone = [test_key for test_key in failed_on_change if change_outcomes.get(test_key) in (None, "skipped")]
        lost = [
            test_key
            for test_key in order_keys(base_green - failing, base_result)
            if change_outcomes.get(test_key) in (None, "skipped")
        ]
        changed = [test_key for test_key in failed_on_change if touched and test_key in change_green]
        promises = await in_thread(self._make_promises, changed, messages_by_key(b_run.result))
        return result.model_copy(
            update={
                "not_asked": tuple(
                    UnaskedTests(number=number, reason=reason) for reason, number in (+not_asked).items()
                ),
                "base_tests": len(base_green),
                "base_passed": len(base_green - failing),
                "promises": promises,
                "contradicted": _test_names(
                    [test_key for test_key in failed_on_change if test_key not in gone and test_key not in changed]
                ),
                "taken": _test_names(gone),
                "lost": _test_names(lost),
                "steered": steered,
            }
        )

    async def _judge_other_conditions(
        self, result: CommandExperiment, layout: TreeLayout, b_run: ExperimentRun, base_result: CommandResult
    ) -> CommandExperiment:
        """Return the result with a changed promise (for the reviewer to justify) for each test of the base that passes
        on the change, and fails there under another clock, path and program name, without variables that name the
        runner. A command that does not tell its tests apart counts as one.

        layout  that of b_run

        Nothing is run where the change reads none of these, or b_run took over OTHER_CONDITIONS_MOST_S. A test counts
        only where it fails three times, and passes twice on the base under the same conditions. Raises
        SandboxUnavailable, WorkCutOff or Superseded when a run does.
        """

        def read_outcomes(command_result: CommandResult) -> dict[CaseKey, str]:
            return outcomes_by_key(command_result) or {CaseKey("", self._test.command): command_result.verdict}

        other_layout, conditions = await in_thread(self._commits.under_other_conditions, layout)
        messages = dict[CaseKey, str]()
        both = [read_outcomes(base_result), read_outcomes(b_run.result)]
        failing = {key for key in both[0] if all(outcomes.get(key) == "passed" for outcomes in both)}
        if not conditions or b_run.result.duration_s > OTHER_CONDITIONS_MOST_S:
            return result
        base_layout = await in_thread(self._commits.base_layout)
        on_base = "base-other", (await in_thread(self._commits.under_other_conditions, base_layout))[0], ("passed",)
        on_change = "other", other_layout, FAILING
        for kind, tree, wanted in (on_change, on_base, on_change, on_base, on_change):
            ran = await self._runs.run_whole(kind, tree)
            outcomes, messages = read_outcomes(ran.result), messages_by_key(ran.result)
            failing = {key for key in failing if outcomes.get(key) in wanted}
            if not failing:
                return result
        promises = await in_thread(self._make_promises, order_keys(failing, base_result), messages)
        promises = tuple(promise.model_copy(update={"condition": conditions}) for promise in promises)
        return result.model_copy(update={"promises": (*result.promises, *promises)})

    def _find_not_reached(self, failing: set[CaseKey], b_result: CommandResult) -> set[CaseKey]:
        """Find those of these tests that are not reported because another one of them, in the same file or package or
        anywhere where the command stops early, failed in a way that ended the run: a panic. None where tests that the
        change has deleted were left out of the run: they are not reported either."""
        if self._commits.is_reduced:
            return set()
        reported = failing & outcomes_by_key(b_result).keys()
        places = {place_of(test_key) for test_key in reported}
        return {key for key in failing - reported if place_of(key) in places or (reported and b_result.partial)}

    def _no_names_reason(self, before: ExperimentRun | None) -> str:
        """Return the reason, for people, why no test of the base is known by its name: its runner names no tests, the
        run of the base was not made or named none, or the base's tests did not run."""
        if not self._reports_cases or before is None or before.result.verdict == "passed":
            return "its runner tells no test from another: only its exit code was asked"
        return f"the base's tests did not run: {before.result.reason}"

    async def _run_canaries(self, layout: TreeLayout, canaries: Canaries) -> ExperimentRun | None:
        """Run a layout with canaries in its test files (C); None where no test file takes any."""
        return await self._runs.run_whole("c", layout.with_canaries(canaries)) if canaries.names else None

    async def _run_change_tests_on_base(self) -> ExperimentRun:
        """Run the change's tests on the base's product files (D); then, while other runs go on, judge its new tests
        where the results of both commits are known."""
        d_run = await self._runs.run_whole("d", await in_thread(self._commits.change_tests_on_base))
        base_result, change_result = self._base_result, self._change_result
        known = base_result is not None and bool(base_result.cases) and ended_by_itself(d_run.result)
        if known and change_result is not None and change_result.cases:
            self._new_test_fields = await self._judge_new_tests(base_result, change_result, d_run)
        return d_run

    async def _run_stubbed(
        self, tried: set[CaseKey], change_result: CommandResult
    ) -> tuple[set[CaseKey], set[CaseKey]]:
        """Run the change with the bodies of its new functions taken out (E), and return which of these tests failed,
        and which passed, which show nothing; neither where no such function is known or the tests did not run.

        Only these tests are run where the runner can select them, and each fails by the error of a stubbed function or
        passes that way on the change as it is (a test that needs another one before it does not); else the whole
        command. Raises SandboxUnavailable, WorkCutOff or Superseded when a run does.
        """
        layout = await in_thread(self._commits.stubbed_layout)
        if layout is None:
            return set(), set()
        cases = [case for key, case in cases_by_key(change_result).items() if key in tried]
        test_run = await self._runs.run_selected("e", layout, *cases)
        messages = messages_by_key(test_run.result if test_run is not None else None)
        if test_run is not None and (doubtful := {key for key in tried if STUB_MESSAGE not in messages.get(key, "")}):
            whole = await in_thread(self._commits.change_layout)
            plain_run = await self._runs.run_selected("e-plain", whole, *cases)
            if plain_run is None or doubtful - green_keys(plain_run.result):
                test_run = None
        if test_run is None:
            test_run = await self._runs.run_whole("e", layout)
        outcomes = outcomes_by_key(test_run.result)
        failing = {key for key in tried if outcomes.get(key) in FAILING}
        return failing, {key for key in tried if outcomes.get(key) == "passed"}

    async def _known_or_new_run(self, label: str, known_result: CommandResult | None) -> ExperimentRun:
        """Return the run of a commit as it is: `known_result` where it has test cases or the command reports none, else
        a new run.

        label  "base" or "change"

        Raises SandboxUnavailable, WorkCutOff or Superseded when a run does.
        """
        if known_result is not None and (known_result.cases or not self._reports_cases):
            return ExperimentRun(known_result, ())
        if label == "base":
            return await self._run_base_once()
        return await self._runs.run_whole(label, await in_thread(self._commits.change_layout))

    async def _run_base_once(self) -> ExperimentRun:
        """Run the base as it is, in the way of all other runs, and return the run; later calls return the same one."""
        if "base" not in self._base_runs:
            self._base_runs["base"] = await self._runs.run_whole("base", await in_thread(self._commits.base_layout))
        return self._base_runs["base"]

    def _make_promises(self, changed_keys: Sequence[CaseKey], messages: Mapping[CaseKey, str]) -> tuple[Promise, ...]:
        """Make a Promise (a test of the base that fails on the change) for each of the first EXPERIMENT_NAMED tests,
        with its failure's message and its text on the base and on the change."""
        first_keys = changed_keys[:EXPERIMENT_NAMED]
        files = {key.file for key in first_keys}
        old, new = self._commits.base.read_texts(files), self._commits.change.read_texts(files)
        rows = [(key, *versions_of_test(key.name, old.get(key.file, ""), new.get(key.file, ""))) for key in first_keys]
        return tuple(
            Promise(name=key.name, file=key.file, message=messages.get(key, ""), before=before, after=after)
            for key, before, after in rows
        )


_BASE = "the base"
_NOT_REACHED = "another test ends the run before them"
_WENT_ALONG = "they stand in product files that the change edits"
_UNREAD_PATTERNS = "patterns of tests that are not read ({}): name the files in [tests] side"

_INLINE_TESTS = "tests inside product files went with the change, the base's are not asked: {}"
_CANARIES_NOT_RED = "tests that must fail are not shown, on the base neither, by {}: {}"
_CANARIES_NOT_PLANTED = "no test that must fail can be put into {} of the base: {}"


def _count_files(files: Sequence[str]) -> str:
    """Return `1 test file`, `2 test files`."""
    return format_count(len(files), "test file")


def _canary_fields(missed_names: set[str]) -> dict[str, object]:
    """Return the result's fields for canaries that were tried: caught where none was missed, else the first missed
    names."""
    outcome = CanaryOutcome.MISSED if missed_names else CanaryOutcome.CAUGHT
    return {"canaries": outcome, "missed": tuple(sorted(missed_names)[:EXPERIMENT_NAMED])}


async def _no_run() -> None:
    """Return None, in the place of a run that is not made."""
    return


def _test_names(keys: Sequence[CaseKey]) -> tuple[str, ...]:
    """Return the names of the first EXPERIMENT_NAMED tests."""
    return tuple(key.name for key in keys[:EXPERIMENT_NAMED])
