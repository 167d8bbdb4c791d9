"""Specialists: a plan split into tasks, and what its tasks have landed taken over by their delivery.

Effect of `split_plan`: the branch of the vault on which tasks land, where there are several; it is left alone where it
is. Effect of `take_tasks`: a checkpoint, the delivery's branch and its spend log. Looks first: a checkpoint that is
there is taken over. Key: delivery, run, attempt. Nothing is pushed.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from activities.rebase import made_before
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.exact import exact_tree
from perdure.adapters.git.landing import find_landed, head_here, ref_here
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.written import read_plan
from perdure.models.crash import CrashPoint
from perdure.models.ids import branch_name, delivery_key, run_ref
from perdure.models.ledger import Usage
from perdure.models.rules.specialists import split, summary
from perdure.models.specialists import Split, SplitInput, TakeInput, Taken, TaskBuilt


class Specialists(OnHost):
    @activity.defn(name="split_plan")
    async def split_plan(self, work: SplitInput) -> Split:
        """Nothing where the plan is somebody's own words, or for one agent. Raises WorkspaceLost, Superseded."""
        async with self._host.session(work.delivery, work.contract) as session:
            return await in_thread(_split, session, work)

    @activity.defn(name="take_tasks")
    async def take_tasks(self, work: TakeInput) -> Taken:
        """Raises WorkspaceLost, Superseded, Diverged."""
        ref = run_ref(work.delivery, activity.info().workflow_run_id or "")
        async with self._host.session(work.delivery, work.contract) as session:
            await in_thread(session.vault.remove_stale_locks, ref)
            made = await in_thread(made_before, session.vault, ref, "take_tasks", work.attempt, work.checkpoint)
            if made is not None:
                return Taken.model_validate(made)
            return await in_thread(self._taken, session, ref, work)

    def _taken(self, session: WorkspaceSession, ref: str, work: TakeInput) -> Taken:
        vault, workspace = session.vault, session.workspace
        head = head_here(vault, work.branch)
        tasks = tuple(_landed(session, work, task, head) for task in work.tasks)
        logs = self._host.take_in(work.delivery, [delivery_key(task.delivery) for task in tasks])
        taken = Taken(
            head=head,
            checkpoint="",
            tasks=tasks,
            spend=session.spend.total(),
            tasks_usage=sum((usage for log in logs for usage in log.settled()), Usage()),
            summary=summary(tasks),
        )
        told = {"format": 1, "delivery": work.delivery, "step": "take_tasks", "attempt": work.attempt}
        told |= {"summary": taken.summary, "result": taken.model_dump(mode="json", exclude={"checkpoint"})}
        checkpoint = checkpoints.begin(workspace, told, exact_tree(vault, head), work.checkpoint)
        session.restore(checkpoint)
        session.lease.check()
        own = f"refs/heads/{branch_name(work.delivery)}"
        vault.remove_stale_locks(own)
        vault.move_ref(own, head, vault.read_ref(own))
        workspace.advance(head)
        vault.move_ref(ref, checkpoint, vault.read_ref(ref))
        crash_point(CrashPoint.AFTER_TASKS)
        return taken.model_copy(update={"checkpoint": checkpoint})


def _split(session: WorkspaceSession, work: SplitInput) -> Split:
    vault = session.vault
    try:
        plan = read_plan(vault, work.delivery, work.plan)
    except ValueError:
        plan = None
    tasks = split(plan) if plan is not None else ()
    ref = ref_here(work.branch)
    if tasks and vault.read_ref(ref) is None:
        session.lease.check()
        vault.remove_stale_locks(ref)
        vault.move_ref(ref, work.head, None)
    return Split(tasks=tasks)


def _landed(session: WorkspaceSession, work: TakeInput, task: TaskBuilt, head: str) -> TaskBuilt:
    """The task with its commit on the branch, whoever told of it or did not."""
    trailers = {
        "Perdure-Delivery": delivery_key(task.delivery),
        "Perdure-Backlog": work.backlog,
        "Perdure-Item": task.item,
    }
    commit = find_landed(session.vault, work.head, head, trailers)
    return task.model_copy(update={"commit": commit, "words": "" if commit else task.words})
