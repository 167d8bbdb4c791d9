"""Trials: a change whose own tests are green, judged by experiment (perdure.adapters.checks.experiment)."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.adapters.checks.experiment.engine import experiment
from perdure.adapters.checks.experiment.runs import Setting
from perdure.adapters.checks.verdict import verdict
from perdure.adapters.git.branch import export
from perdure.adapters.git.first import FIRST_COMMIT
from perdure.adapters.system.removal import discard
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.bent import tried
from perdure.models.contract import Contract
from perdure.models.experiment import Experiment
from perdure.models.report import TestReport
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
    def lay_out(tree: str, into: Path) -> None:
        session.lease.check()
        export(session.vault, tree, into, like=session.workspace)

    return Setting(session.place(room), session.vault, lay_out, room)
