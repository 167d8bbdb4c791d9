"""A test command that writes into the test side, which is read-only: found on the base, before anything is paid for."""

from __future__ import annotations

from pathlib import Path

from perdure.adapters.checks.baseline import by_command, command, failing, key
from perdure.adapters.checks.experiment.holding import Holding
from perdure.adapters.checks.held import refused, setting, told
from perdure.adapters.checks.tests import run_once
from perdure.adapters.repository.origin import command_origin
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.config import SandboxGrade, TestCommand
from perdure.models.errors import SetupFailed
from perdure.models.report import CommandResult, TestReport


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
                f"`{test.command}` writes to the tests: {told(paths).partition('; ')[0]}",
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
    source = await in_thread(session.checkout, commit)
    before = await in_thread(holding.looked_at, source, test)
    result = await run_once(session.place(session.logs / "preflight-writable", source), test, "writable")
    after = await in_thread(holding.looked_at, Path(source), test)
    return result, tuple(sorted(path for path in {*before, *after} if before.get(path) != after.get(path)))


def _better(held: CommandResult, free: CommandResult) -> bool:
    """True when something fails only where nobody may write."""
    return free.verdict == "passed" or bool({*map(key, failing(held))} - {*map(key, failing(free))})
