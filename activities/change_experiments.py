"""Experiments on a change whose own tests are green, for activity `run_tests`, and, for tests of the base, the check
for commands that write where the test side is read-only. How an experiment runs is in
perdure/adapters/checks/experiment."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.adapters.checks.baseline import case_key, command_key, failing_cases, results_by_command
from perdure.adapters.checks.experiment.run_experiment import run_experiment
from perdure.adapters.checks.experiment.runs import ExperimentSetting, ReadOnlyTestSide
from perdure.adapters.checks.tests import run_once
from perdure.adapters.checks.verdict import find_refused_writes, refused_writes_message, verdict_of, writes_setting
from perdure.adapters.git.remote import FIRST_COMMIT
from perdure.adapters.repository.keys import command_origin
from perdure.adapters.system.directories import discard
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.checks.report import CommandResult, Experiment, TestReport
from perdure.models.checks.verdict_text import with_experiment
from perdure.models.config.repository import SandboxGrade, TestCommand
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.turn import Contract
from perdure.models.errors import SetupFailed

_REMOVAL = re.compile(
    r"\b(remov(e[sd]?|ing|al)|delet(e[sd]?|ing|ion)|drop(s|ped|ping)?(?!-)|retir(e[sd]?|ing)|deprecat(e[sd]?|ing|ion)"
    r"|g(et|ets|etting|ot) rid of)\b",
    re.IGNORECASE,
)


async def experiment_on_change(session: WorkspaceSession, report: TestReport, before: TestReport | None) -> TestReport:
    """Run the experiments on a change whose own tests are green, and return the report with what they have shown;
    return any other report as it is. When nothing comes before the change, or nothing differs, the experiments are
    skipped, which the report says.

    before  the test commands' report on the base; None: not known

    Checkouts of an earlier, killed attempt are deleted, and everything is run again. Raises SandboxUnavailable or
    WorkCutOff when the sandbox is missing or was ended, Superseded when a newer attempt has taken over the workspace,
    WorkspaceLost when it is gone.
    """
    contract = session.contract
    scratch = session.workspace.home.trials(contract.delivery)
    await in_thread(discard, scratch)  # of an attempt that was killed in the middle
    if verdict_of(report).status is not TestsStatus.GREEN:
        return report
    base = await in_thread(session.vault.merge_base, contract.base_sha, report.commit)
    blank_experiment = Experiment(
        base=base, change=report.commit, branch=contract.base, allowed=contract.allow_test_changes
    )
    if contract.base_sha == FIRST_COMMIT:
        return with_experiment(
            report, blank_experiment.model_copy(update={"skipped": "there was nothing before this change"})
        )
    if await in_thread(session.vault.tree_of, base) == report.tree:
        return with_experiment(report, blank_experiment.model_copy(update={"skipped": "nothing differs"}))
    try:
        result = await run_experiment(
            _make_setting(session, scratch),
            base,
            report.commit,
            contract.config.test or (),
            base_report=before,
            change_report=report,
            allowed=contract.allow_test_changes,
            side=contract.config.tests.side,
            on_progress=lambda line: update_heartbeat(doing=line),
        )
    finally:
        await in_thread(discard, scratch)
    return with_experiment(
        report, result.model_copy(update={"branch": contract.base, "removes": asks_for_removal(contract)})
    )


def asks_for_removal(contract: Contract) -> bool:
    """Return True when the request, or title or text of the issue it came from, says that something is to be removed.
    Comments do not count: anybody can write them."""
    issue = contract.issue
    texts = [contract.request, *((issue.title, issue.text) if issue is not None else ())]
    return any(_REMOVAL.search(text) for text in texts)


def _make_setting(session: WorkspaceSession, scratch: Path) -> ExperimentSetting:
    """Return the setting in which the experiments run: the delivery's sandbox, functions that check trees out under its
    lease and put checkouts away, and the directory `scratch` for checkouts and logs."""
    checkouts, admin = session.checkouts, session.workspace.record().admin

    def lay_out(tree: str, into: Path) -> None:
        session.lease.check()
        checkouts.check_out(tree, into, admin=admin)

    return ExperimentSetting(session.command_place(scratch), session.vault, lay_out, checkouts.put_away, scratch)


async def check_writes(session: WorkspaceSession, report: TestReport, config_file: str) -> None:
    """Raise SetupFailed for a required command that is red on the base only because it may not write to the test side
    (test files and their data); the error names the setting, in `config_file`, that allows it.

    Each red required command is run once more on a checkout where it may write, and what it changes there is looked at.
    Below the full grade of the sandbox nothing is read-only, and nothing is checked.
    """
    if session.sandbox.grade is not SandboxGrade.FULL:
        return
    contract, results = session.contract, results_by_command(report)
    holding = await in_thread(read_test_side, session, report.commit)
    for test in contract.config.test or ():
        first = results.get(command_key(test))
        if not test.required or first is None or first.verdict not in ("failed", "contradicted"):
            continue
        second, written = await _run_writable(session, report.commit, test, holding)
        if not _fails_only_read_only(first, second):
            continue
        refused_paths = find_refused_writes(
            first, holding.paths_for_command(test), session.base_command().inside or session.workspace.path
        )
        paths = holding.writable_paths(written) or refused_paths
        if paths:
            text = ((await in_thread(session.vault.read_file, report.commit, config_file)) or b"").decode(
                errors="replace"
            )
            raise SetupFailed(
                f"`{test.command}` writes to the tests: {refused_writes_message(paths).partition('; ')[0]}",
                where=command_origin(test.name, contract.origins, config_file, text),
                fix=f"{writes_setting(paths)} allows it, or let it write elsewhere",
            )


def read_test_side(session: WorkspaceSession, commit: str) -> ReadOnlyTestSide:
    """Read which paths of a commit are its test side (test files and their data), which is read-only while its commands
    run. Raises GitError when there is no such commit."""
    config = session.contract.config
    return ReadOnlyTestSide.from_commit(session.vault, commit, config.test or (), config.tests.side)


async def _run_writable(
    session: WorkspaceSession, commit: str, test: TestCommand, holding: ReadOnlyTestSide
) -> tuple[CommandResult, tuple[str, ...]]:
    """Run the command once on a clean checkout where it may write to the test side, and return its result and the paths
    of the test side that it has changed, sorted."""
    async with session.clean_checkout(commit) as source:
        before = await in_thread(holding.stamp_files, source, test)
        result = await run_once(session.command_place(session.logs / "preflight-writable", source), test, "writable")
        after = await in_thread(holding.stamp_files, source, test)
    return result, tuple(sorted(path for path in {*before, *after} if before.get(path) != after.get(path)))


def _fails_only_read_only(read_only: CommandResult, writable: CommandResult) -> bool:
    """Return True when the command, or a test in it, fails with a read-only test side and not with a writable one."""
    return writable.verdict == "passed" or bool(
        {*map(case_key, failing_cases(read_only))} - {*map(case_key, failing_cases(writable))}
    )
