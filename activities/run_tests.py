"""Run tests: the repository's own commands on a clean checkout of one commit. The exit code is the verdict,
unless the change has made the tests say less than they did: then experiments say so (activities.trials).

Effect: a TestReport in the vault; the worktree is not touched. Key: the commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from temporalio import activity

from activities.on_host import OnHost
from activities.trials import check_writes, holding_of, try_change
from perdure.adapters.checks import tests
from perdure.adapters.checks.baseline import FAILING, compared, environment_key, on_its_own, recall, remember
from perdure.adapters.checks.tamper import Files, judged, missing_tests
from perdure.adapters.checks.verdict import not_started, verdict
from perdure.adapters.git.first import FIRST_COMMIT
from perdure.adapters.repository.keys import command_origin
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.setting_up import read_binds
from perdure.adapters.worker.turn.written import read_report
from perdure.models.backlog import CHECKS_S
from perdure.models.config import TestCommand
from perdure.models.crash import CrashPoint
from perdure.models.errors import WorkspaceLost
from perdure.models.ids import digest
from perdure.models.phases import Step
from perdure.models.report import CommandResult, Since, TestReport
from perdure.models.result import TestsStatus
from perdure.models.work import TestInput, TestVerdict
from perdure.text import span

_CHECK_CHARS = 200


class Testing(OnHost):
    @activity.defn(name=Step.RUN_TESTS)
    async def run_tests(self, work: TestInput) -> TestVerdict:
        """`none` where no test command exists. Raises SandboxUnavailable, Superseded, WorkspaceLost."""
        async with self._host.session(work.delivery, work.contract) as session:
            tree = await in_thread(session.vault.tree_of, work.commit)
            size = await in_thread(session.size_of, work.commit)
            if not session.contract.config.test and not work.check:
                return TestVerdict(status=TestsStatus.NONE, tree=tree, summary="no test command", change=size)
            baseline = await in_thread(_baseline, session, work.baseline)
            ran = await test_commit(
                session, work.commit, tree, f"test-{work.attempt}", baseline, makes_seed=False, commands=None
            )
            report = await try_change(session, ran, baseline.report if baseline is not None else None)
            report = await in_thread(_missing, session, work.commit, report, baseline)
            report, left_out = await _checked(session, work, report)
            found = verdict(report)
            if session.contract.landing is not None and found.status is TestsStatus.GREEN:
                await in_thread(self._next_base, session, tree, ran)
            artifact = await in_thread(session.vault.put_artifact, work.delivery, report.model_dump_json().encode())
            return found.model_copy(update={"report": artifact, "change": size, "unchecked": left_out})

    def _next_base(self, session: WorkspaceSession, tree: str, ran: TestReport) -> None:
        """Once it has landed, this tree is the next item's base: what its tests say is known then, and nothing runs
        again. Not where a fresh setup there would make something else than this workspace has."""
        if self._host.sets_up_alike(session, ran.commit):
            remember(session.vault, _environment(session, tree), on_its_own(ran))


@dataclass(frozen=True)
class Base:
    """The test commands' report on the base commit.

    report    the whole of it; None where there is no test command
    artifact  its address
    known     whether an earlier delivery had found it out
    """

    report: TestReport | None = None
    artifact: str = ""
    known: bool = False

    @property
    def verdict(self) -> TestVerdict | None:
        return verdict(self.report) if self.report is not None else None


async def test_base(session: WorkspaceSession, where: str) -> Base:
    """The test commands on the base commit, once for all deliveries that begin on it in the same environment.

    A delivery on a branch that exists already is compared with the base it wants to be merged into, too: what its
    own commits broke is not excused. `where`: the file it may be written in. Raises SetupFailed when a required
    command cannot start, or only fails because it writes to the test side. An empty repository is no measure: all that
    fails on the change is new, and only a program that this host lacks is an error.
    """
    contract = session.contract
    tree = await in_thread(session.vault.tree_of, contract.base_sha)
    key = await in_thread(_environment, session, tree)
    await in_thread(session.note_base, key)
    report = await in_thread(recall, session.vault, key)
    known = report is not None
    if report is None:
        report = await test_commit(session, contract.base_sha, tree, "preflight", None, makes_seed=True, commands=None)
        await check_writes(session, report, where)
        await in_thread(remember, session.vault, key, report)
    took = sum(one.duration_s for one in report.commands)
    await in_thread(session.note_tested, how_it_went(report, contract.base), took)
    missing = not_started(report)
    empty = contract.base_sha == FIRST_COMMIT
    if missing is not None and empty and missing.may_come:
        missing = None
    if missing is not None and contract.head not in ("", contract.base_sha):  # the branch may have brought the command
        head = await in_thread(session.vault.tree_of, contract.head)
        missing = not_started(
            await test_commit(session, contract.head, head, "preflight-head", None, makes_seed=False, commands=None)
        )
    if missing is not None:
        written = await in_thread(session.vault.show, contract.base_sha, where)
        text = (written or b"").decode(errors="replace")
        raise missing.error(contract.base, command_origin(missing.name, contract.origins, where, text))
    if empty:
        return Base()
    data = report.model_dump_json().encode()
    return Base(report, await in_thread(session.vault.put_artifact, contract.delivery, data), known)


def how_it_went(report: TestReport, base: str) -> dict[str, str]:
    """By command, for agents: `passed on main in 2 s`, `failed on main in 40 s (3 of 120 tests)`."""
    told = {}
    for one in report.commands:
        failed = sum(case.outcome in FAILING for case in one.cases)
        count = f" ({failed} of {len(one.cases)} tests)" if failed else ""
        told[one.name] = f"{one.verdict.replace('_', ' ')} on {base} in {span(one.duration_s)}{count}"
    return told


async def _checked(
    session: WorkspaceSession, work: TestInput, report: TestReport
) -> tuple[TestReport, tuple[str, ...]]:
    """Of commands that landed items named, what fails without this change, too, is known; its own have to hold."""
    if not work.check:
        return report, ()
    base, label = session.contract, f"checks-{work.attempt}"
    return await hold(session, report, work.check, label, before=base.base_sha, name=base.base, own=work.item)


async def hold(
    session: WorkspaceSession,
    report: TestReport,
    check: Mapping[str, Sequence[str]],
    label: str,
    *,
    before: str,
    name: str,
    own: str = "",
) -> tuple[TestReport, tuple[str, ...]]:
    """The report with the commands that items of a backlog named, where all else is green. What fails on the commit
    `before`, too, called `name`, is known; but for those of the item `own`. With no such commit nothing is.

    Of others as many as begin within CHECKS_S, in the order given; what is left out says nothing. The ids of the other
    items of which something was left out go with it.
    """
    if verdict(report).status is TestsStatus.RED:
        return report, tuple(item for item in check if item != own)
    named = {
        item: [TestCommand(name=name_of_check(item, command), command=command) for command in commands]
        for item, commands in check.items()
    }
    run = partial(test_commit, session, baseline=None, makes_seed=False)
    done: tuple[CommandResult, ...] = ()
    if mine := named.pop(own, []):
        done = (await run(report.commit, report.tree, label, commands=mine)).commands
    if others := [command for commands in named.values() for command in commands]:
        theirs = await run(report.commit, report.tree, f"{label}-others", commands=others, within_s=CHECKS_S)
        failed = {result.name for result in theirs.commands if result.verdict != "passed"}
        if failed and before:
            again, tree = [one for one in others if one.name in failed], await in_thread(session.vault.tree_of, before)
            earlier = await run(before, tree, f"{label}-base", commands=again, within_s=CHECKS_S)
            unknown = failed - {result.name for result in earlier.commands}
            theirs = compared(theirs, earlier, name)
            done += tuple(_excused(one) for one in theirs.commands if one.name not in unknown)
        else:
            done += theirs.commands
    ran = {result.name for result in done}
    left_out = tuple(item for item, commands in named.items() if not {one.name for one in commands} <= ran)
    return report.model_copy(update={"commands": (*report.commands, *done)}), left_out


def name_of_check(item: str, command: str) -> str:
    """By which its result is known: of a long command the beginning, and what tells it from others that begin so."""
    name = f"check of {item}: {command}"
    return name if len(name) <= _CHECK_CHARS else f"{name[: _CHECK_CHARS - 10]}… {digest(command)[:8]}"


def _excused(result: CommandResult) -> CommandResult:
    """A check is one thing that holds or does not, though it says no more than that: red on both sides it is known."""
    return result.model_copy(update={"since": Since.KNOWN}) if result.since is Since.UNDECIDABLE else result


def _missing(session: WorkspaceSession, commit: str, report: TestReport, baseline: tests.Baseline | None) -> TestReport:
    """The report with tests of the base that are gone or skipped where no run tells it, once all that runs is green."""
    if verdict(report).status is not TestsStatus.GREEN:
        return report
    contract, tried = session.contract, report.experiment
    before, after = Files.pair(session.vault, contract.base_sha, commit)
    base = baseline.report if baseline is not None else None
    found = missing_tests(before, after, contract.config.test or (), base, tried.touched if tried is not None else ())
    return judged(report, found, contract.allow_test_changes)


def _environment(session: WorkspaceSession, tree: str) -> str:
    """Ports differ between deliveries and do not count; files that setup copied from a checkout do."""
    setup = session.contract.config.setup
    copied = [session.workspace.path / name for name in setup.copy_files]
    contents = [hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in copied]
    said = (setup.model_dump_json(), read_binds(session.directory).model_dump_json(), str(session.sandbox.grade))
    return environment_key(tree, session.contract.config.test or (), *said, *contents)


def _baseline(session: WorkspaceSession, artifact: str) -> tests.Baseline | None:
    """None for a delivery that began under an older release, and when the report is lost: then all failures count."""
    try:
        report = read_report(session.vault, session.contract.delivery, artifact)
    except (WorkspaceLost, ValueError):
        return None
    return tests.Baseline(report, session.contract.base) if report is not None else None


async def test_commit(
    session: WorkspaceSession,
    commit: str,
    tree: str,
    label: str,
    baseline: tests.Baseline | None,
    *,
    makes_seed: bool,
    commands: Sequence[TestCommand] | None,
    within_s: float | None = None,  # noqa: PT028 - no test, whatever its name says
) -> TestReport:
    """All test commands, or these, on a clean checkout of a commit.

    makes_seed  what compilers make of it is kept for the runs of changes. Of the base alone: a change could leave there
                what its own tests are then linked with
    """
    held = (await in_thread(holding_of, session, commit)).of_command

    def progress(line: str) -> None:
        now_doing(doing=line)
        crash_point(CrashPoint.DURING_TESTS)

    async with session.checkout(commit) as source:
        place = session.place(session.logs / label, source)
        if makes_seed and place.seed is not None:
            place = replace(place, seed=replace(place.seed, made=True))
        return await tests.run_tests(
            place,
            commands=(session.contract.config.test or ()) if commands is None else commands,
            commit=commit,
            tree=tree,
            on_progress=progress,
            baseline=baseline,
            renew=lambda: session.renewed(commit),
            held=held,
            within_s=within_s,
        )


test_commit.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever its name says to pytest
test_base.__test__ = False  # type: ignore[attr-defined]
