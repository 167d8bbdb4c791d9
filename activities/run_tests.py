"""Activity `run_tests`: runs the repository's own commands on a clean checkout of one commit. The exit code is the
verdict, unless the change has made the tests say less than they did: then experiments decide
(activities.change_experiments). The base's tests (`test_base`) and the checks of landed items are run here too, for
other activities.

Effect: a TestReport in the vault; the worktree is not touched. Key: the commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from temporalio import activity

from activities.change_experiments import check_writes, experiment_on_change, read_test_side
from activities.on_host import OnHost
from perdure.adapters.checks import tests
from perdure.adapters.checks.baseline import (
    FAILING,
    compare_with_base,
    environment_key,
    load_baseline,
    store_baseline,
    without_comparison,
)
from perdure.adapters.checks.tamper import DifferingFiles, find_missing_tests, with_missing_tests
from perdure.adapters.checks.verdict import find_not_started, verdict_of
from perdure.adapters.git.filters import filters_digest
from perdure.adapters.git.remote import FIRST_COMMIT
from perdure.adapters.repository.keys import command_origin
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.sealed_facts import document_fact, tests_fact
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.documents import read_report
from perdure.adapters.worker.workspace_setup import read_binds
from perdure.models.backlog.request import CHECKS_S
from perdure.models.checks.report import BaseComparison, CommandResult, TestReport
from perdure.models.config.repository import TestCommand
from perdure.models.crash import CrashPoint
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.work import TestInput, TestVerdict
from perdure.models.errors import WorkspaceLost
from perdure.models.ids import digest
from perdure.models.phases import Step
from perdure.text import span

_MAX_CHECK_NAME_CHARS = 200


class RunTestsActivity(OnHost):
    """The activity that tests a delivery's commit."""

    @activity.defn(name=Step.RUN_TESTS)
    async def run_tests(self, work: TestInput) -> TestVerdict:
        """Run the test commands on a clean checkout of the commit, judge it by experiments when they are green, run the
        checks of landed items, store the report and return the verdict. It is `none`, and nothing runs, when there is
        neither a test command nor a check. A green report of an item is kept for the item that will begin on it.

        Raises SetupFailed, SandboxUnavailable or NoPorts when the workspace or the sandbox cannot be made ready,
        Superseded when a newer attempt has taken over the workspace, WorkspaceLost when this host does not have it.
        """
        async with self._host.open_session(work.delivery, work.contract) as session:
            verdict = await self._judge_commit(session, work)
            facts = (tests_fact(session.contract, verdict), document_fact("report", verdict.report))
            await in_thread(self._host.facts(work.delivery).seal_facts, *facts)
            return verdict

    async def _judge_commit(self, session: WorkspaceSession, work: TestInput) -> TestVerdict:
        """Run tests and checks on the commit, as `run_tests` says, and return the verdict."""
        tree = await in_thread(session.vault.tree_of, work.commit)
        size = await in_thread(session.change_size, work.commit)
        if not session.contract.config.test and not work.check:
            return TestVerdict(status=TestsStatus.NONE, tree=tree, summary="no test command", change=size)
        baseline = await in_thread(_read_baseline, session, work.baseline)
        own_report = await test_commit(
            session, work.commit, tree, f"test-{work.attempt}", baseline, makes_seed=False, commands=None
        )
        report = await experiment_on_change(session, own_report, baseline.report if baseline is not None else None)
        report = await in_thread(_judge_missing_tests, session, work.commit, report, baseline)
        report, unchecked = await _add_landing_checks(session, work, report)
        outcome = verdict_of(report)
        if session.contract.landing is not None and outcome.status is TestsStatus.GREEN:
            await in_thread(self._store_as_baseline, session, tree, own_report)
        artifact = await in_thread(session.vault.put_artifact, work.delivery, report.to_json())
        return outcome.model_copy(update={"report": artifact, "change": size, "unchecked": unchecked})

    def _store_as_baseline(self, session: WorkspaceSession, tree: str, report: TestReport) -> None:
        """Store the report as the baseline of this tree: once it has landed, the tree is the next item's base, and
        nothing has to run again there. Store nothing when a fresh setup there would make something else than this
        workspace has."""
        if self._host.has_same_setup(session, report.commit):
            store_baseline(session.baselines, _environment_key(session, tree), without_comparison(report))


@dataclass(frozen=True)
class BaseTests:
    """The test commands' report on the base commit.

    report     the whole of it; None when there is no test command, or the repository was empty
    artifact   the hash under which it is stored
    is_reused  an earlier delivery has run the commands
    """

    report: TestReport | None = None
    artifact: str = ""
    is_reused: bool = False

    @property
    def verdict(self) -> TestVerdict | None:
        """Return the verdict on the base commit; None where there is no report."""
        return verdict_of(self.report) if self.report is not None else None


async def test_base(session: WorkspaceSession, config_file: str) -> BaseTests:
    """Run the test commands on the base commit and store their report, once for all deliveries that begin on it in the
    same environment; return it, or the one that an earlier delivery stored. How each command went is recorded for the
    agents.

    A delivery on a branch that exists already is compared with the base it is to be merged into, too: what its own
    commits broke is not excused. An empty repository gives no report, so that all that fails on the change counts as
    new.

    config_file  the file that a command may be written in, for errors

    Raises SetupFailed when a required command cannot start, or only fails because it writes to the test side; in an
    empty repository only when this host lacks the program.
    """
    contract = session.contract
    tree = await in_thread(session.vault.tree_of, contract.base_sha)
    key = await in_thread(_environment_key, session, tree)
    await in_thread(session.record_base_key, key)
    report = await in_thread(load_baseline, session.baselines, key)
    is_reused = report is not None
    if report is None:
        report = await test_commit(session, contract.base_sha, tree, "preflight", None, makes_seed=True, commands=None)
        await check_writes(session, report, config_file)
        await in_thread(store_baseline, session.baselines, key, report)
    duration_s = sum(result.duration_s for result in report.commands)
    await in_thread(session.record_base_tests, describe_base_results(report, contract.base), duration_s)
    missing = find_not_started(report)
    empty = contract.base_sha == FIRST_COMMIT
    if missing is not None and empty and missing.may_be_added:
        missing = None
    if missing is not None and contract.head not in ("", contract.base_sha):  # the branch may have brought the command
        head = await in_thread(session.vault.tree_of, contract.head)
        missing = find_not_started(
            await test_commit(session, contract.head, head, "preflight-head", None, makes_seed=False, commands=None)
        )
    if missing is not None:
        written = await in_thread(session.vault.read_file, contract.base_sha, config_file)
        text = (written or b"").decode(errors="replace")
        raise missing.to_error(contract.base, command_origin(missing.name, contract.origins, config_file, text))
    if empty:
        return BaseTests()
    data = report.to_json()
    return BaseTests(report, await in_thread(session.vault.put_artifact, contract.delivery, data), is_reused)


def describe_base_results(report: TestReport, base: str) -> dict[str, str]:
    """Return, by command, its result on the base as text for agents: `passed on main in 2 s`, `failed on main in 40 s
    (3 of 120 tests)`."""
    descriptions = {}
    for result in report.commands:
        failed = sum(case.outcome in FAILING for case in result.cases)
        count = f" ({failed} of {len(result.cases)} tests)" if failed else ""
        descriptions[result.name] = f"{result.verdict.replace('_', ' ')} on {base} in {span(result.duration_s)}{count}"
    return descriptions


async def _add_landing_checks(
    session: WorkspaceSession, work: TestInput, report: TestReport
) -> tuple[TestReport, tuple[str, ...]]:
    """Run the checks that the landing asks for, and return the report with their results, and the ids of landed items
    whose checks were not all run. A check of another item that fails without this change too is excused; those of the
    item itself have to pass. Without checks, return the report as it is and no ids."""
    if not work.check:
        return report, ()
    base, label = session.contract, f"checks-{work.attempt}"
    return await run_item_checks(
        session, report, work.check, label, before_commit=base.base_sha, before_name=base.base, own_item=work.item
    )


async def run_item_checks(
    session: WorkspaceSession,
    report: TestReport,
    check: Mapping[str, Sequence[str]],
    label: str,
    *,
    before_commit: str,
    before_name: str,
    own_item: str = "",
) -> tuple[TestReport, tuple[str, ...]]:
    """Run the commands that items of a backlog named, and return the report with their results, and the ids of other
    items of which a command was left out or could not be compared. When the report is red already, run none and return
    it with all other items' ids.

    check          commands by item
    label          the name of the directory for logs
    before_commit  a command that fails on this commit too, called `before_name`, is excused, but not one of `own_item`;
                   empty: nothing is excused
    own_item       the item that lands

    Of other items' commands as many run as begin within CHECKS_S seconds, in the order given.
    """
    if verdict_of(report).status is TestsStatus.RED:
        return report, tuple(item for item in check if item != own_item)
    commands_by_item = {
        item: [TestCommand(name=check_name(item, command), command=command) for command in commands]
        for item, commands in check.items()
    }
    run_commands = partial(test_commit, session, baseline=None, makes_seed=False)
    results: tuple[CommandResult, ...] = ()
    if own_commands := commands_by_item.pop(own_item, []):
        results = (await run_commands(report.commit, report.tree, label, commands=own_commands)).commands
    if other_commands := [command for commands in commands_by_item.values() for command in commands]:
        others_report = await run_commands(
            report.commit, report.tree, f"{label}-others", commands=other_commands, within_s=CHECKS_S
        )
        failed_names = {result.name for result in others_report.commands if result.verdict != "passed"}
        if failed_names and before_commit:
            failed_commands, tree = (
                [entry for entry in other_commands if entry.name in failed_names],
                await in_thread(session.vault.tree_of, before_commit),
            )
            before_report = await run_commands(
                before_commit, tree, f"{label}-base", commands=failed_commands, within_s=CHECKS_S
            )
            not_compared = failed_names - {result.name for result in before_report.commands}
            others_report = compare_with_base(others_report, before_report, before_name)
            results += tuple(
                _excuse_undecidable(entry) for entry in others_report.commands if entry.name not in not_compared
            )
        else:
            results += others_report.commands
    run_names = {result.name for result in results}
    left_out = tuple(
        item for item, commands in commands_by_item.items() if not {entry.name for entry in commands} <= run_names
    )
    return report.model_copy(update={"commands": (*report.commands, *results)}), left_out


def check_name(item: str, command: str) -> str:
    """Return the name under which the result of an item's check stands in a report; of a long command only its
    beginning, with a hash that tells it from others."""
    name = f"check of {item}: {command}"
    return (
        name if len(name) <= _MAX_CHECK_NAME_CHARS else f"{name[: _MAX_CHECK_NAME_CHARS - 10]}… {digest(command)[:8]}"
    )


def _excuse_undecidable(result: CommandResult) -> CommandResult:
    """Return the result as a known failure when it was red before the change too and nothing tells which part of it
    fails: a check is one thing that passes or not. Any other result is returned as it is."""
    return (
        result.model_copy(update={"since": BaseComparison.KNOWN})
        if result.since is BaseComparison.UNDECIDABLE
        else result
    )


def _judge_missing_tests(
    session: WorkspaceSession, commit: str, report: TestReport, baseline: tests.Baseline | None
) -> TestReport:
    """Return a green report with those of the base's tests added that are gone or skipped on the change and that no run
    has shown; any other report as it is. They do not count against the change when its request is about tests."""
    if verdict_of(report).status is not TestsStatus.GREEN:
        return report
    contract, experiment = session.contract, report.experiment
    before, after = DifferingFiles.between_commits(session.vault, contract.base_sha, commit)
    base = baseline.report if baseline is not None else None
    missing = find_missing_tests(
        before, after, contract.config.test or (), base, experiment.touched if experiment is not None else ()
    )
    return with_missing_tests(report, missing, contract.allow_test_changes)


def _environment_key(session: WorkspaceSession, tree: str) -> str:
    """Return the key of all that results on this tree depend on: commands, setup and its search path, the package cache
    (which is named after the repository), the sandbox's grade, the base's tags, and the contents of files that setup
    copied from a checkout. Ports differ between deliveries and are not in it."""
    setup = session.contract.config.setup
    copied = [session.workspace.path / name for name in setup.copy_files]
    contents = [hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in copied]
    surroundings = (
        setup.model_dump_json(),
        read_binds(session.directory).model_dump_json(),
        str(session.sandbox.grade),
        json.dumps(session.vault.reachable_tags(session.contract.base_sha), sort_keys=True),
        *filter(None, [filters_digest(session.vault.git)]),
    )
    return environment_key(tree, session.contract.config.test or (), *surroundings, *contents)


def _read_baseline(session: WorkspaceSession, artifact: str) -> tests.Baseline | None:
    """Return the stored report of the base, to compare failures with; None when the delivery has none, and when it is
    lost or cannot be read: then all failures count."""
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
    """Run the test commands, or these `commands`, on a clean checkout of a commit, and return the report, with each
    failure compared with the `baseline`, if there is one. Progress is sent with the heartbeat.

    label       the name of the directory for logs
    makes_seed  the compilers' output is kept for the runs of changes. For the base alone: a change could leave there
                what its own tests are then linked with
    within_s    a command that has not begun after so many seconds is left out

    Raises SandboxUnavailable when the host has no sandbox, Superseded when a newer attempt has taken over the
    workspace, WorkspaceLost when this host does not have it.
    """
    read_only_paths = (await in_thread(read_test_side, session, commit)).paths_for_command

    def progress(line: str) -> None:
        update_heartbeat(doing=line)
        crash_point(CrashPoint.DURING_TESTS)

    async with session.clean_checkout(commit) as source:
        place = replace(
            session.command_place(session.logs / label, source), renew=lambda: session.renew_checkout(commit)
        )
        if makes_seed and place.compiler_cache is not None:
            place = replace(place, compiler_cache=replace(place.compiler_cache, is_base_run=True))
        return await tests.run_tests(
            place,
            commands=(session.contract.config.test or ()) if commands is None else commands,
            commit=commit,
            tree=tree,
            on_progress=progress,
            baseline=baseline,
            held=read_only_paths,
            within_s=within_s,
        )


test_commit.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever its name says to pytest
test_base.__test__ = False  # type: ignore[attr-defined]
