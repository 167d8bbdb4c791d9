"""The best of several attempts at a plan, taken over by their delivery.

Effect: a checkpoint with the files of the chosen one, what its reviewer wrote, and what all of them paid. Looks first:
a checkpoint that is there is taken over. Key: delivery, run, attempt. The others stay as branches of the vault.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from activities.rebase import made_before
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.exact import exact_tree
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.attempts import AttemptTaken, TakeAttemptInput
from perdure.models.crash import CrashPoint
from perdure.models.ids import delivery_key, run_ref
from perdure.models.ledger import Usage
from perdure.models.result import Attempted
from perdure.models.rules.attempts import best, summary


class Attempts(OnHost):
    @activity.defn(name="take_attempt")
    async def take_attempt(self, work: TakeAttemptInput) -> AttemptTaken:
        """Raises WorkspaceLost, Superseded, Diverged."""
        ref = run_ref(work.delivery, activity.info().workflow_run_id or "")
        async with self._host.session(work.delivery, work.contract) as session:
            await in_thread(session.vault.remove_stale_locks, ref)
            made = await in_thread(made_before, session.vault, ref, "take_attempt", work.attempt, work.checkpoint)
            if made is not None:
                return AttemptTaken.model_validate(made)
            return await in_thread(self._taken, session, ref, work)

    def _taken(self, session: WorkspaceSession, ref: str, work: TakeAttemptInput) -> AttemptTaken:
        vault = session.vault
        measured = [_measured(vault, work.base, one) for one in work.attempts]
        chosen = best(measured)
        attempts = tuple(one.model_copy(update={"chosen": one is chosen}) for one in measured)
        others = [delivery_key(one.delivery) for one in work.attempts if one.number != work.own]
        logs = self._host.take_in(work.delivery, others)
        taken = AttemptTaken(
            checkpoint=work.checkpoint,
            attempts=attempts,
            spend=session.spend.total(),
            usage=sum((usage for log in logs for usage in log.settled()), Usage()),
            summary=summary(attempts),
        )
        if chosen is None or chosen.number == work.own:
            return taken
        vault.share_artifacts(delivery_key(chosen.delivery), work.delivery)
        told = {"format": 1, "delivery": work.delivery, "step": "take_attempt", "attempt": work.attempt}
        told |= {"summary": taken.summary, "result": taken.model_dump(mode="json", exclude={"checkpoint"})}
        checkpoint = checkpoints.begin(session.workspace, told, exact_tree(vault, chosen.head), work.checkpoint)
        session.restore(checkpoint)
        session.lease.check()
        vault.move_ref(ref, checkpoint, vault.read_ref(ref))
        crash_point(CrashPoint.AFTER_ATTEMPTS)
        return taken.model_copy(update={"checkpoint": checkpoint})


def _measured(vault: Vault, base: str, one: Attempted) -> Attempted:
    if not one.head or not vault.has(one.head):
        return one.model_copy(update={"head": "", "words": one.words or "its commits are not here"})
    counted = vault.git.text("diff", "--numstat", "--no-renames", "--end-of-options", base, one.head).splitlines()
    lines = sum(int(part) for line in counted for part in line.split("\t")[:2] if part.isdecimal())
    return one.model_copy(update={"lines": lines})
