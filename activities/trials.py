"""Trials: a change whose own tests are green, judged by experiment; commands that write where they may not."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.adapters.checks.baseline import by_command, command, failing, key
from perdure.adapters.checks.experiment.engine import experiment
from perdure.adapters.checks.experiment.holding import Holding
from perdure.adapters.checks.experiment.runs import Setting
from perdure.adapters.checks.held import refused, setting, written_to
from perdure.adapters.checks.tests import run_once
from perdure.adapters.checks.verdict import verdict
from perdure.adapters.git.first import FIRST_COMMIT
from perdure.adapters.repository.keys import command_origin
from perdure.adapters.system.removal import discard
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.bent import tried
from perdure.models.config import SandboxGrade, TestCommand
from perdure.models.contract import Contract
from perdure.models.errors import SetupFailed
from perdure.models.experiment import Experiment
from perdure.models.report import CommandResult, TestReport
from perdure.models.result import TestsStatus

_REMOVAL = re.compile(
    r"\b(remov(e[sd]?|ing|al)|delet(e[sd]?|ing|ion)|drop(s|ped|ping)?(?!-)|retir(e[sd]?|ing)|deprecat(e[sd]?|ing|ion)"
    r"|g(et|ets|etting|ot) rid of)\b",
    re.IGNORECASE,
)


async def try_change(session: WorkspaceSession, report: TestReport, before: TestReport | None) -> TestReport:
    """The report with what the experiments have shown, where the change's own tests are green; else as it is.

    before  what the commands said about the base; None: nobody knows

    A death does all of it again: nothing is kept of what was cut off. Raises as run_tests does.
    """
    contract = session.contract
    room = session.workspace.home.trials(contract.delivery)
    await in_thread(discard, room)  # of an attempt that was killed in the middle
    if verdict(report).status is not TestsStatus.GREEN:
        return report
    base = await in_thread(session.vault.merge_base, contract.base_sha, report.commit)
    told = Experiment(base=base, change=report.commit, branch=contract.base, allowed=contract.allow_test_changes)
    if contract.base_sha == FIRST_COMMIT:
        return tried(report, told.model_copy(update={"skipped": "there was nothing before this change"}))
    if await in_thread(session.vault.tree_of, base) == report.tree:
        return tried(report, told.model_copy(update={"skipped": "nothing differs"}))
    try:
        found = await experiment(
            _ground(session, room),
            base,
            report.commit,
            contract.config.test or (),
            before=before,
            now=report,
            allowed=contract.allow_test_changes,
            side=contract.config.tests.side,
            on_progress=lambda line: now_doing(doing=line),
        )
    finally:
        await in_thread(discard, room)
    return tried(report, found.model_copy(update={"branch": contract.base, "removes": asks_for_removal(contract)}))


def asks_for_removal(contract: Contract) -> bool:
    """True where the request, or the issue it came from, says that something is to go; comments are anybody's."""
    issue = contract.issue
    said = [contract.request, *((issue.title, issue.text) if issue is not None else ())]
    return any(_REMOVAL.search(text) for text in said)


def _ground(session: WorkspaceSession, room: Path) -> Setting:
    checkouts, admin = session.checkouts, session.workspace.record().admin

    def lay_out(tree: str, into: Path) -> None:
        session.lease.check()
        checkouts.make(tree, into, admin=admin)

    return Setting(session.place(room), session.vault, lay_out, checkouts.put_away, room)


async def check_writes(session: WorkspaceSession, report: TestReport, where: str) -> None:
    """SetupFailed for a required command that is red on the base only because it may not write to the test side.

    A red one is run once more where it may, and what it leaves there is looked at. `where`: the file to mend it in.
    """
    if session.sandbox.grade is not SandboxGrade.FULL:
        return
    contract, results = session.contract, by_command(report)
    holding = await in_thread(holding_of, session, report.commit)
    for test in contract.config.test or ():
        first = results.get(command(test))
        if not test.required or first is None or first.verdict not in ("failed", "contradicted"):
            continue
        second, written = await _unheld(session, report.commit, test, holding)
        if not _better(first, second):
            continue
        said = refused(first, holding.of_command(test), session.command().inside or session.workspace.path)
        paths = holding.named(written) or said
        if paths:
            text = ((await in_thread(session.vault.show, report.commit, where)) or b"").decode(errors="replace")
            raise SetupFailed(
                f"`{test.command}` writes to the tests: {written_to(paths).partition('; ')[0]}",
                where=command_origin(test.name, contract.origins, where, text),
                fix=f"{setting(paths)} allows it, or let it write elsewhere",
            )


def holding_of(session: WorkspaceSession, commit: str) -> Holding:
    config = session.contract.config
    return Holding.of(session.vault, commit, config.test or (), config.tests.side)


async def _unheld(
    session: WorkspaceSession, commit: str, test: TestCommand, holding: Holding
) -> tuple[CommandResult, tuple[str, ...]]:
    """The command where it may write, and what of the test side it wrote."""
    async with session.checkout(commit) as source:
        before = await in_thread(holding.looked_at, source, test)
        result = await run_once(session.place(session.logs / "preflight-writable", source), test, "writable")
        after = await in_thread(holding.looked_at, source, test)
    return result, tuple(sorted(path for path in {*before, *after} if before.get(path) != after.get(path)))


def _better(held: CommandResult, free: CommandResult) -> bool:
    """True when something fails only where nobody may write."""
    return free.verdict == "passed" or bool({*map(key, failing(held))} - {*map(key, failing(free))})
