"""The tasks of a plan that several agents build: the plan split into them, and what they have landed taken over by
their delivery.

Effect of `split_plan`: the branch of the vault on which tasks land, where there are several; it is left alone where it
is. Effect of `take_tasks`: a checkpoint, the delivery's branch and its spend log. Looks first: a checkpoint that is
there is taken over. Key: delivery, run, attempt. Nothing is pushed.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from activities.rebase import find_recorded_result
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.checkout_bytes import exact_tree
from perdure.adapters.git.landing import find_landed, vault_branch_head, vault_branch_ref
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.documents import read_plan
from perdure.models.crash import CrashPoint
from perdure.models.ids import branch_name, delivery_key, run_ref
from perdure.models.ledger import Usage
from perdure.models.rules.specialists import split_into_tasks, tasks_summary
from perdure.models.specialists import SplitPlanInput, SplitPlanResult, TakeTasksInput, TakeTasksResult, TaskResult


class PlanTaskActivities(OnHost):
    """The activities for a plan that several agents build, a task each."""

    @activity.defn(name="split_plan")
    async def split_plan(self, work: SplitPlanInput) -> SplitPlanResult:
        """Split the plan into tasks for several agents, make the branch on which they land, and return the tasks; none
        where the plan is a person's free text, or one agent does as well. Raises WorkspaceLost, Superseded."""
        async with self._host.open_session(work.delivery, work.contract) as session:
            return await in_thread(_split_plan, session, work)

    @activity.defn(name="take_tasks")
    async def take_tasks(self, work: TakeTasksInput) -> TakeTasksResult:
        """Take over what the plan's tasks have landed, and return where the delivery goes on with it; a killed try of
        this activity that came so far is not repeated, and its recorded result is returned. Raises WorkspaceLost,
        Superseded, Diverged."""
        ref = run_ref(work.delivery, activity.info().workflow_run_id or "")
        async with self._host.open_session(work.delivery, work.contract) as session:
            await in_thread(session.vault.remove_stale_locks, ref)
            recorded = await in_thread(
                find_recorded_result, session.vault, ref, "take_tasks", work.attempt, work.checkpoint
            )
            if recorded is not None:
                return TakeTasksResult.model_validate(recorded)
            return await in_thread(self._take_over, session, ref, work)

    def _take_over(self, session: WorkspaceSession, ref: str, work: TakeTasksInput) -> TakeTasksResult:
        """Write a checkpoint of the files on the tasks' branch, restore the worktree to it, move the delivery's own
        branch there and then the run's ref; return the result, with the commit of each task. What the tasks paid, and
        the deaths they survived, is counted as the delivery's own. Raises Superseded, WorkspaceLost."""
        vault, workspace = session.vault, session.workspace
        head = vault_branch_head(vault, work.branch)
        tasks = tuple(_find_landed_commit(session, work, task, head) for task in work.tasks)
        spend_logs = self._host.include_tasks(work.delivery, [delivery_key(task.delivery) for task in tasks])
        result = TakeTasksResult(
            head=head,
            checkpoint="",
            tasks=tasks,
            spend=session.spend_log.total_spend(),
            tasks_usage=sum((usage for log in spend_logs for usage in log.settled_usages()), Usage()),
            summary=tasks_summary(tasks),
        )
        metadata = {"format": 1, "delivery": work.delivery, "step": "take_tasks", "attempt": work.attempt}
        metadata |= {"summary": result.summary, "result": result.model_dump(mode="json", exclude={"checkpoint"})}
        checkpoint = checkpoints.write_initial_checkpoint(workspace, metadata, exact_tree(vault, head), work.checkpoint)
        session.restore(checkpoint)
        session.lease.check()
        own_ref = f"refs/heads/{branch_name(work.delivery)}"
        vault.remove_stale_locks(own_ref)
        vault.move_ref(own_ref, head, vault.read_ref(own_ref))
        workspace.advance_head(head)
        vault.move_ref(ref, checkpoint, vault.read_ref(ref))
        crash_point(CrashPoint.AFTER_TASKS)
        return result.model_copy(update={"checkpoint": checkpoint})


def _split_plan(session: WorkspaceSession, work: SplitPlanInput) -> SplitPlanResult:
    """Read the plan and return its tasks where several agents can build some of them at the same time; then also make
    the branch on which they land in the vault, at `work.head`, unless it is there. A plan that is not in the form of
    tasks has none."""
    vault = session.vault
    try:
        plan = read_plan(vault, work.delivery, work.plan)
    except ValueError:
        plan = None
    tasks = split_into_tasks(plan) if plan is not None else ()
    ref = vault_branch_ref(work.branch)
    if tasks and vault.read_ref(ref) is None:
        session.lease.check()
        vault.remove_stale_locks(ref)
        vault.move_ref(ref, work.head, None)
    return SplitPlanResult(tasks=tasks)


def _find_landed_commit(session: WorkspaceSession, work: TakeTasksInput, task: TaskResult, head: str) -> TaskResult:
    """Return the task with its commit on the branch, found by the commit's trailers whether or not its delivery has
    reported it. Only a task without a commit keeps the reason why it failed."""
    trailers = {
        "Perdure-Delivery": delivery_key(task.delivery),
        "Perdure-Backlog": work.backlog,
        "Perdure-Item": task.item,
    }
    commit = find_landed(session.vault, work.head, head, trailers)
    return task.model_copy(update={"commit": commit, "reason": "" if commit else task.reason})
