"""The runs of an experiment, each command in a clean checkout of its own, the test side read-only.

B, PASS_TO_PASS: the base's test side with the change's product files: what was green on the base is green.
C, canaries: the same with tests that always fail, first and last in each test file: each is reported red.
D, FAIL_TO_PASS: the change's test side with the base's product files: what fails there is what the change is about.

B and D only where the change touches the test side at all. B, C and D run beside each other; where C shows what B would
(see joined), B is left out. What they cannot show by
themselves is asked of the base, in the same way and only then: a test that fails in B, a canary that is not red.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence

from perdure.adapters.checks.baseline import CaseKey, case_key, command_key, results_by_command
from perdure.adapters.checks.experiment.commits import CommitPair, Layout
from perdure.adapters.checks.experiment.joined import as_passed, may_be_one, parts, whole
from perdure.adapters.checks.experiment.judge import ended, green, messages, ordered, outcomes, proving
from perdure.adapters.checks.experiment.missing import MissedCanaries
from perdure.adapters.checks.experiment.runs import Ran, Runs, Setting, beside
from perdure.adapters.checks.experiment.steady import steady
from perdure.adapters.checks.experiment.versions import versions
from perdure.adapters.checks.runners import RUNNERS
from perdure.adapters.checks.runners.base import Canaries
from perdure.adapters.checks.verdict import result_line
from perdure.adapters.system.threads import in_thread
from perdure.models.config import TestCommand
from perdure.models.experiment import CanaryOutcome, CommandExperiment, Experiment, Promise
from perdure.models.limits import CASE_MESSAGE_CHARS
from perdure.models.report import CommandResult, TestReport
from perdure.models.tampering_text import join_short_names

EXPERIMENT_NAMED = 50
"""Promises, and names in each list of an experiment: a person decides long before the fiftieth."""


async def experiment(
    ground: Setting,
    base: str,
    change: str,
    tests: Sequence[TestCommand],
    *,
    before: TestReport | None = None,
    now: TestReport | None = None,
    allowed: bool = False,
    side: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Experiment:
    """Judge the change between two commits whose own tests are green.

    before, now  what the commands said about both; what they did not count is run once more, counted
    allowed      the request itself is about tests
    side         patterns of `[tests] side`

    Raises as run_tests does, and GitError for names that are no commits.
    """
    commits = await in_thread(CommitPair.of, ground.repository, base, change, tests, side)
    reports = results_by_command(before) if before else {}, results_by_command(now) if now else {}
    tried = []
    for number, test in enumerate(tests, start=1):
        if test.required:
            known = reports[0].get(command_key(test)), reports[1].get(command_key(test))
            tried.append(await _Trial(commits, Runs(ground, test, number, on_progress), *known).run())
    return Experiment(base=base, change=change, touched=commits.touched, allowed=allowed, commands=tuple(tried))


class _Trial:
    """One command in all experiments."""

    def __init__(
        self, commits: CommitPair, runs: Runs, before: CommandResult | None, now: CommandResult | None
    ) -> None:
        self._commits, self._runs, self._test = commits, runs, runs.test
        self._before, self._now = before, now
        runner = commits.runners[command_key(self._test)]
        self._counts = self._test.report == "junit" or (runner is not None and self._test.report != "exit")
        # Of a command that nobody knows, unittest's are understood by pytest too; the others by none but their own.
        self._runner = runner
        self._rules = (runner,) if runner is not None else tuple(r for r in RUNNERS if r.name != "pytest")
        self._known: dict[str, Ran] = {}
        self._unasked = [_UNREAD.format(", ".join(unread[:3]))] if (unread := commits.old.unread) else list[str]()

    async def run(self) -> CommandExperiment:
        canaries = await in_thread(self._commits.canaries, self._rules, self._test.directory)
        if inside := await in_thread(self._commits.inside, self._test):
            self._unasked.append(_INSIDE.format(", ".join(inside[:3])))
        touched = bool(self._commits.touched)
        first = await in_thread(self._commits.base_tests_on_change if touched else self._commits.as_change)
        joined = touched and await in_thread(
            may_be_one, self._commits, self._runner, self._test, canaries, self._before
        )
        asked = parts(canaries, self._runner, self._before, self._commits.altered) if joined else (canaries,)
        jobs: list[Coroutine[None, None, Ran | None]] = [
            self._runs.whole("b", first) if touched and not joined else _nothing(),
            self._proof() if touched and self._counts else _nothing(),
            self._counted("base", self._before),
            self._counted("change", self._now),
            *(self._runs.whole("bc" if joined else "c", first.with_canaries(one)) for one in asked if one.names),
        ]
        on_change, on_base, before, now, *red = await beside(jobs, self._runs.ground.place.sandbox.grade)
        reds = [ran for ran in red if ran is not None]
        with_canaries = whole(reds) if reds else None
        if joined and reds and before is not None and self._runner is not None:
            on_change = as_passed(self._runner, asked, before.result, reds)
            if on_change is None:
                again = [first] if len(asked) == 1 else [first, first.with_canaries(canaries)]
                runs = [self._runs.whole(what, layout) for what, layout in zip("bc", again, strict=False)]
                on_change, *red = await beside(runs, self._runs.ground.place.sandbox.grade)
                with_canaries = red[0] if red else with_canaries
        if on_change is not None and before is not None and green(before.result) - outcomes(on_change.result).keys():
            lessened = await in_thread(self._commits.lessened)
            if lessened is not None:  # tests that do not even load, for what they name is deleted, and some with it
                self._commits = lessened
                canaries = await in_thread(lessened.canaries, self._rules, self._test.directory)
                first = await in_thread(lessened.base_tests_on_change)
                planted = self._runs.whole("c", first.with_canaries(canaries)) if canaries.names else _nothing()
                both = [self._runs.whole("b", first), planted]
                on_change, with_canaries = await beside(both, self._runs.ground.place.sandbox.grade)
        tried = CommandExperiment(name=self._test.name, command=self._test.command)
        counted = before is not None and bool(before.result.cases)
        if before is None or now is None or not counted:
            self._unasked.append(self._why_not(before))
            if on_change is not None and before is not None and now is not None:
                tried = await self._as_a_whole(tried, first, on_change, before.result, now.result)
        else:
            tried = await self._promises(tried, on_change or now, before.result, now.result, touched)
        if on_base is not None and not ended(on_base.result):
            self._unasked.append(f"the change's tests on the base: {on_base.result.reason}")
        elif on_base is not None and now is not None and now.result.cases:
            found = proving(before.result if before else None, now.result, on_base.result, self._commits.differing)
            names = tuple(name for _, name in ordered(found, now.result))
            tried = tried.model_copy(update={"proving": names[:EXPERIMENT_NAMED]})
        tried = tried.model_copy(update=await self._canaries(canaries, with_canaries, on_change, before, now, first))
        written = {path for ran in (on_change, with_canaries, now) if ran is not None for path in ran.written}
        if written:
            written -= set((await self._base_again()).written)
        return tried.model_copy(update={"unasked": tuple(self._unasked), "written": tuple(sorted(written))})

    async def _canaries(
        self,
        canaries: Canaries,
        ran: Ran | None,
        on_change: Ran | None,
        before: Ran | None,
        now: Ran | None,
        at: Layout,
    ) -> dict[str, object]:
        """The fields of what C has shown, and what it could not be asked."""
        if canaries.unplanted and ran is not None:
            self._unasked.append(_UNPLANTED.format(len(canaries.unplanted), ", ".join(canaries.unplanted[:3])))
        looked = MissedCanaries(self._commits, self._rules, self._test.directory, self._runs.whole)
        if ran is None or before is None:
            alone = await looked.without_base(now)
            if alone is None:
                self._unasked.append("no test file of the base takes a test that must fail")
                return {}
            return _caught(alone)
        if not ended(ran.result):  # a machine with much to do is no trick
            ran = await self._runs.whole("c-again", at.with_canaries(canaries))
        there = on_change or now
        own = {
            one
            for one in green(before.result) & green(there.result if there else None)
            if canaries.is_made_to_fail(one[1])
        }
        missing, unshown = await looked.found(canaries, ran, own, before, on_change, now)
        if missing is None:
            self._unasked.append("its command shows no test that must fail, on the base neither: no canaries")
            return {}
        if unshown:
            self._unasked.append(_UNSHOWN.format(len(unshown), ", ".join(sorted(unshown)[:3])))
        return _caught(missing)

    async def _as_a_whole(
        self, tried: CommandExperiment, layout: Layout, ran: Ran, before: CommandResult, now: CommandResult
    ) -> CommandExperiment:
        """One promise for the whole command, where nothing tells which of the base's tests fail on the change."""
        if ran.result.verdict == "passed" or not (before.verdict == now.verdict == "passed"):
            return tried
        again = await self._runs.whole("b-again", layout), await self._base_again()
        if [one.result.verdict for one in again] != ["failed", "passed"]:
            return tried
        told = f"the base's own tests and settings fail on the change:\n{ran.result.tail[-CASE_MESSAGE_CHARS // 2 :]}"
        return tried.model_copy(update={"promises": (Promise(name=self._test.command, message=told),)})

    async def _promises(
        self, tried: CommandExperiment, ran: Ran, before: CommandResult, now: CommandResult, touched: bool
    ) -> CommandExperiment:
        """Tests that were green on the base and are not on the change, as its runner says a second time.

        Where the test side is not `touched`, there are no two versions of a test.
        """
        was, passing, steered = green(before), green(now), tuple[str, ...]()
        if flaky := was & {case_key(case) for case in before.cases if case.flaky}:
            self._unasked.append(f"flaky on the base: {join_short_names([name for _, name in ordered(flaky, before)])}")
            was -= flaky
        was -= {one for one in was - outcomes(ran.result).keys() if self._commits.is_inside(one[0])}
        failing = was - green(ran.result)
        if not was and not flaky:
            self._unasked.append(f"no test was green on the base: {result_line(before)}")
        if failing:
            was &= green((await self._base_again()).result)
            failing &= was
            if not was:
                self._unasked.append("the base's tests are red where nobody may write to the test side")
        if failing and failing == was and self._commits.shared:
            layout = await in_thread(self._commits.base_tests_on_change, shared=False)
            other = await self._runs.whole("b-shared", layout)
            if green(other.result) & was:  # it starts with the change's settings, and not with the base's
                ran, steered = other, self._commits.shared
                failing = was - green(ran.result)
        if failing:
            layout = await in_thread(self._commits.base_tests_on_change, shared=not steered)
            failing = await steady(self._runs, layout, failing, before, passing if touched else set())
        here = outcomes(now)
        bad = ordered(failing, before)
        gone = [one for one in bad if here.get(one) in (None, "skipped")]
        lost = [one for one in ordered(was - failing, before) if here.get(one) in (None, "skipped")]
        changed = [one for one in bad if touched and one in passing]
        promises = await in_thread(self._shown, changed, messages(ran.result))
        return tried.model_copy(
            update={
                "base_tests": len(was),
                "base_passed": len(was - failing),
                "promises": promises,
                "contradicted": _names([one for one in bad if one not in gone and one not in changed]),
                "taken": _names(gone),
                "lost": _names(lost),
                "steered": steered,
            }
        )

    def _why_not(self, before: Ran | None) -> str:
        """No test of the base is known by name."""
        if not self._counts or before is None or before.result.verdict == "passed":
            return "its runner tells no test from another: only its exit code was asked"
        return f"the base's tests did not run: {before.result.reason}"

    async def _proof(self) -> Ran:
        return await self._runs.whole("d", await in_thread(self._commits.change_tests_on_base))

    async def _counted(self, label: str, known: CommandResult | None) -> Ran:
        """The report that is there already, else a run of that commit as it is."""
        if known is not None and (known.cases or not self._counts):
            return Ran(known, ())
        if label == "base":
            return await self._base_again()
        return await self._runs.whole(label, await in_thread(self._commits.as_change))

    async def _base_again(self) -> Ran:
        """The base as it is, run as all the others are; once."""
        if "base" not in self._known:
            self._known["base"] = await self._runs.whole("base", await in_thread(self._commits.as_base))
        return self._known["base"]

    def _shown(self, changed: Sequence[CaseKey], said: Mapping[CaseKey, str]) -> tuple[Promise, ...]:
        some = changed[:EXPERIMENT_NAMED]
        files = {file for file, _ in some}
        old, new = self._commits.base.texts(files), self._commits.change.texts(files)
        both = [(file, name, *versions(name, old.get(file, ""), new.get(file, ""))) for file, name in some]
        return tuple(
            Promise(name=name, file=file, message=said.get((file, name), ""), before=before, after=after)
            for file, name, before, after in both
        )


_UNREAD = "patterns of tests that are not read ({}): name the files in [tests] side"

_INSIDE = "tests inside product files went with the change, the base's are not asked: {}"
_UNSHOWN = "{} test files show no test that must fail, on the base neither: {}"
_UNPLANTED = "{} test files of the base take no test that must fail: {}"


def _caught(missing: set[str]) -> dict[str, object]:
    caught = CanaryOutcome.MISSED if missing else CanaryOutcome.CAUGHT
    return {"canaries": caught, "missed": tuple(sorted(missing)[:EXPERIMENT_NAMED])}


async def _nothing() -> None:
    return None


def _names(keys: Sequence[CaseKey]) -> tuple[str, ...]:
    return tuple(name for _, name in keys[:EXPERIMENT_NAMED])
