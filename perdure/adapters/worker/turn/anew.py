"""A turn after which a step's conversation begins anew: it was too long, or its model cannot go on."""

from __future__ import annotations

from perdure.adapters.agents.builtin.compaction import COMPACTED, TAKEN_OVER, compacted
from perdure.adapters.agents.builtin.model import Reply
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.turn.agent import TurnToTake
from perdure.adapters.worker.turn.history import diff_of
from perdure.adapters.worker.turn.seal import seal, summary_of
from perdure.models.crash import CrashPoint
from perdure.models.ledger import Usage
from perdure.models.turn import TurnResult

COMPACTING = "conversation made shorter"
SUMMED_UP = f"{COMPACTING}, with the model's summary"


async def begin_anew(turn: TurnToTake, model: str = "", why: str = "", reply: Reply | None = None) -> TurnResult:
    """A turn that makes the conversation shorter, or another one with a second model (what one has thought is bound to
    it).

    model  that it goes on with, empty: the step's own; why: it goes over to it now, and for this reason
    reply  that showed that it cannot go on, or is to sum it up; None: nothing was asked
    """
    summary = reply.summary if reply is not None else ""
    does = f"goes on with {model}: {why}" if why else SUMMED_UP if summary else COMPACTING
    now_doing(doing=does)
    told, diff = turn.told, await in_thread(diff_of, turn.session.vault, turn.work)
    [fresh] = turn.host.redacted(compacted(told, diff, TAKEN_OVER if why else COMPACTED, summary) if told[1:] else told)
    crash_point(CrashPoint.DURING_COMPACTION)
    result = TurnResult(
        checkpoint="",
        summary=summary_of(turn.work, does, None, ""),
        usage=reply.usage if reply is not None else Usage(),
        model=model,
    )
    return await seal(turn, [fresh], result)
