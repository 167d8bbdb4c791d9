"""Run tests: the repository's own commands on a clean checkout of one commit. The exit code is the verdict.

Effect: a TestReport in the vault; the worktree is not touched. Key: the commit.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.host.attempt import now_doing
from perdure.adapters.host.crash import crash_point
from perdure.adapters.host.desk import Desk
from perdure.adapters.host.host import Host
from perdure.adapters.host.threads import in_thread
from perdure.adapters.project import tests
from perdure.adapters.project.verdict import verdict
from perdure.models.crash import CrashPoint
from perdure.models.phases import Step
from perdure.models.report import TestReport
from perdure.models.result import TestsStatus
from perdure.models.work import TestInput, TestVerdict


class Testing:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn(name=Step.RUN_TESTS)
    async def run_tests(self, work: TestInput) -> TestVerdict:
        """`none` where no test command exists. Raises SandboxUnavailable, Superseded, WorkspaceLost."""
        async with self._host.desk(work.delivery, work.policy) as desk:
            tree = await in_thread(desk.vault.tree_of, work.commit)
            if not desk.contract.config.test:
                return TestVerdict(status=TestsStatus.NONE, tree=tree, summary="no test command")
            report = await test_commit(desk, work.commit, tree, f"test-{work.attempt}")
            artifact = await in_thread(desk.vault.put_artifact, work.delivery, report.model_dump_json().encode())
            return verdict(report).model_copy(update={"report": artifact})


async def test_commit(desk: Desk, commit: str, tree: str, label: str) -> TestReport:
    """All test commands on a clean checkout of a commit, shown at the worktree's own path (DESIGN §7).

    Virtual environments hold absolute paths: tested elsewhere, the agent's files were imported instead.
    """
    command = desk.command()

    def progress(line: str) -> None:
        now_doing(doing=line)
        crash_point(CrashPoint.DURING_TESTS)

    return await tests.run_tests(
        desk.sandbox,
        worktree=desk.workspace.path,
        source=await in_thread(desk.checkout, commit),
        shared=command.shared,
        git_dir=command.git_dir,
        commands=desk.contract.config.test or (),
        env=desk.env,
        log_dir=desk.logs / label,
        lock=command.lock,
        fence=command.fence,
        commit=commit,
        tree=tree,
        on_progress=progress,
    )


test_commit.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever its name says to pytest
