"""The best of several attempts at one plan, taken over by the delivery that they belong to.

Effect: a checkpoint with the files of the chosen attempt, its artifacts shared with the delivery, and what all attempts
paid counted as the delivery's own. Looks first: an existing checkpoint is taken over. Key: delivery, run, attempt. The
other attempts stay as branches of the vault.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from activities.rebase import find_recorded_result
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.checkout_bytes import exact_tree
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.attempts import TakeAttemptInput, TakeAttemptResult
from perdure.models.crash import CrashPoint
from perdure.models.ids import delivery_key, run_ref
from perdure.models.ledger import Usage
from perdure.models.result import AttemptResult
from perdure.models.rules.attempts import attempts_summary, best_attempt


class TakeAttemptActivity(OnHost):
    """The activity that chooses the best of several attempts at one plan and takes it over."""

    @activity.defn(name="take_attempt")
    async def take_attempt(self, work: TakeAttemptInput) -> TakeAttemptResult:
        """Choose the best attempt and return where the delivery goes on with its files; a killed try of this activity
        that came so far is not repeated, and its recorded result is returned. Raises WorkspaceLost, Superseded,
        Diverged."""
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
        """Measure the attempts, choose the best one and return the result; count what the others paid and the deaths
        they survived as the delivery's own.

        Where the best one is another delivery's, share its artifacts, write a checkpoint of its files, restore the
        worktree to that and move the run's ref. The checkpoint stays as it was where the delivery's own attempt is the
        best or none made a commit. Raises Superseded.
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
    """Return the attempt with the number of lines that it changed since `base`; where the vault does not have its
    commit, without a commit and with that as the reason for its failure."""
    if not attempt.head or not vault.has_commit(attempt.head):
        return attempt.model_copy(update={"head": "", "failure": attempt.failure or "its commits are not here"})
    numstat_lines = vault.git.text(
        "diff", "--numstat", "--no-renames", "--end-of-options", base, attempt.head
    ).splitlines()
    lines = sum(int(part) for line in numstat_lines for part in line.split("\t")[:2] if part.isdecimal())
    return attempt.model_copy(update={"lines": lines})
