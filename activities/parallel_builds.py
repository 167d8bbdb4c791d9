"""Activities for work of several agents that one delivery takes over: `split_plan` and `take_tasks` for the tasks of a
plan, `take_attempt` for the best of several attempts at one plan.

`split_plan`   Effect: the branch of the vault on which tasks land, when there are several; one that exists is left.
`take_tasks`   Effect: a checkpoint, the delivery's branch and its spend log.
`take_attempt` Effect: a checkpoint with the files of the chosen attempt, its artifacts shared with the delivery, and
               what all attempts paid counted as the delivery's own. The others stay as branches of the vault.

Looks first: a checkpoint that a killed attempt has made is taken over. Key: delivery, run, attempt. Nothing is pushed.
"""

from __future__ import annotations

from temporalio import activity

from activities.landing import find_recorded_result
from activities.on_host import OnHost
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.checkouts import exact_tree
from perdure.adapters.git.landing import find_landed, vault_branch_head, vault_branch_ref
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.sealed_facts import commit_fact
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.documents import read_plan
from perdure.models.budget.ledger import Usage
from perdure.models.crash import CrashPoint
from perdure.models.delivery.result import AttemptResult
from perdure.models.delivery.specialists import (
    SplitPlanInput,
    SplitPlanResult,
    TakeTasksInput,
    TakeTasksResult,
    TaskResult,
)
from perdure.models.delivery.work import TakeAttemptInput, TakeAttemptResult
from perdure.models.ids import branch_name, delivery_key, run_ref
from perdure.models.rules.parallel_builds import attempts_summary, best_attempt, split_into_tasks, tasks_summary


class PlanTaskActivities(OnHost):
    """The activities for a plan that several agents build, a task each."""

    @activity.defn(name="split_plan")
    async def split_plan(self, work: SplitPlanInput) -> SplitPlanResult:
        """Split the plan into tasks for several agents, make the branch on which they land, and return the tasks; none,
        and no branch, when the plan is a person's free text, or one agent does as well. Raises WorkspaceLost when this
        host does not have the delivery, Superseded when a newer attempt has taken over its workspace, SetupFailed,
        SandboxUnavailable or NoPorts when that cannot be made ready."""
        async with self._host.open_session(work.delivery, work.contract) as session:
            return await in_thread(_split_plan, session, work)

    @activity.defn(name="take_tasks")
    async def take_tasks(self, work: TakeTasksInput) -> TakeTasksResult:
        """Take over what the plan's tasks have landed, and return the checkpoint and commit with which the delivery
        goes on. When a killed try of this activity has done it, its recorded result is returned.

        Raises WorkspaceLost when this host does not have the delivery, Superseded when a newer attempt has taken over
        its workspace, SetupFailed, SandboxUnavailable or NoPorts when that cannot be made ready, Diverged when the
        run's ref went on with something else.
        """
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
        the deaths they survived, is added to the delivery's spend log and journal. Raises Superseded, before the ref is
        moved, when a newer attempt has taken over the workspace."""
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
        self._host.facts(work.delivery).seal_facts(commit_fact(head))
        own_ref = f"refs/heads/{branch_name(work.delivery)}"
        vault.remove_stale_locks(own_ref)
        vault.move_ref(own_ref, head, vault.read_ref(own_ref))
        workspace.advance_head(head)
        vault.move_ref(ref, checkpoint, vault.read_ref(ref))
        crash_point(CrashPoint.AFTER_TASKS)
        return result.model_copy(update={"checkpoint": checkpoint})


def _split_plan(session: WorkspaceSession, work: SplitPlanInput) -> SplitPlanResult:
    """Read the plan and return its tasks when several agents can build some of them at the same time; then also make
    the branch on which they land in the vault, at `work.head`, unless it exists. A plan that cannot be read as one with
    tasks has none. Raises Superseded when a newer attempt has taken over the workspace."""
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
    """Return the task with its commit on the tasks' branch, found by the commit's trailers whether or not its delivery
    has reported it; empty when there is none. Only a task without a commit keeps the reason why it failed."""
    trailers = {
        "Perdure-Delivery": delivery_key(task.delivery),
        "Perdure-Backlog": work.backlog,
        "Perdure-Item": task.item,
    }
    commit = find_landed(session.vault, work.head, head, trailers)
    return task.model_copy(update={"commit": commit, "reason": "" if commit else task.reason})


class TakeAttemptActivity(OnHost):
    """The activity that chooses the best of several attempts at one plan and takes it over."""

    @activity.defn(name="take_attempt")
    async def take_attempt(self, work: TakeAttemptInput) -> TakeAttemptResult:
        """Choose the best attempt, put its files into the worktree, and return the checkpoint with which the delivery
        goes on. When a killed try of this activity has done it, its recorded result is returned.

        Raises WorkspaceLost when this host does not have the delivery, Superseded when a newer attempt has taken over
        its workspace, SetupFailed, SandboxUnavailable or NoPorts when that cannot be made ready, Diverged when the
        run's ref went on with something else.
        """
        ref = run_ref(work.delivery, activity.info().workflow_run_id or "")
        async with self._host.open_session(work.delivery, work.contract) as session:
            await in_thread(session.vault.remove_stale_locks, ref)
            recorded = await in_thread(
                find_recorded_result, session.vault, ref, "take_attempt", work.attempt, work.checkpoint
            )
            if recorded is not None:
                return TakeAttemptResult.model_validate(recorded)
            return await in_thread(self._take_best, session, ref, work)

    def _take_best(self, session: WorkspaceSession, ref: str, work: TakeAttemptInput) -> TakeAttemptResult:
        """Count the lines each attempt changed, choose the best one and return the result; add what the others paid and
        the deaths they survived to the delivery's own spend log and journal.

        When the best one is another delivery's, share its artifacts, write a checkpoint of its files, restore the
        worktree to that and move the run's ref. When it is the delivery's own, or none made a commit, the checkpoint
        stays as it was. Raises Superseded when a newer attempt has taken over the workspace.
        """
        vault = session.vault
        measured_attempts = [_measure_attempt(vault, work.base, attempt) for attempt in work.attempts]
        chosen = best_attempt(measured_attempts)
        attempts = tuple(attempt.model_copy(update={"chosen": attempt is chosen}) for attempt in measured_attempts)
        other_keys = [delivery_key(attempt.delivery) for attempt in work.attempts if attempt.number != work.own_number]
        spend_logs = self._host.include_tasks(work.delivery, other_keys)
        result = TakeAttemptResult(
            checkpoint=work.checkpoint,
            attempts=attempts,
            spend=session.spend_log.total_spend(),
            usage=sum((usage for log in spend_logs for usage in log.settled_usages()), Usage()),
            summary=attempts_summary(attempts),
        )
        if chosen is None or chosen.number == work.own_number:
            return result
        vault.share_artifacts(delivery_key(chosen.delivery), work.delivery)
        self._host.facts(work.delivery).copy_facts(self._host.facts(delivery_key(chosen.delivery)))
        metadata = {"format": 1, "delivery": work.delivery, "step": "take_attempt", "attempt": work.attempt}
        metadata |= {"summary": result.summary, "result": result.model_dump(mode="json", exclude={"checkpoint"})}
        checkpoint = checkpoints.write_initial_checkpoint(
            session.workspace, metadata, exact_tree(vault, chosen.head), work.checkpoint
        )
        session.restore(checkpoint)
        session.lease.check()
        vault.move_ref(ref, checkpoint, vault.read_ref(ref))
        crash_point(CrashPoint.AFTER_ATTEMPTS)
        return result.model_copy(update={"checkpoint": checkpoint})


def _measure_attempt(vault: Vault, base: str, attempt: AttemptResult) -> AttemptResult:
    """Return the attempt with the number of lines it has added and deleted since `base`; when the vault does not have
    its commit, without a commit and with that as the reason for its failure, if it had none."""
    if not attempt.head or not vault.has_commit(attempt.head):
        return attempt.model_copy(update={"head": "", "failure": attempt.failure or "its commits are not here"})
    _, added, deleted = vault.diff_stat(base, attempt.head)
    return attempt.model_copy(update={"lines": added + deleted})
