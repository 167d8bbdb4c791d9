"""A turn after which a step's conversation starts again, shorter: it was too long, or its model cannot go on."""

from __future__ import annotations

from perdure.adapters.agents.builtin.compaction import COMPACTED, TAKEN_OVER, compact_transcript
from perdure.adapters.agents.builtin.model import Reply
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.turn.agent import TurnContext
from perdure.adapters.worker.turn.commit_turn import commit_turn, turn_summary
from perdure.adapters.worker.turn.history import step_diff
from perdure.models.crash import CrashPoint
from perdure.models.ledger import Usage
from perdure.models.turn import TurnResult

COMPACTING = "conversation made shorter"
SUMMED_UP = f"{COMPACTING}, with the model's summary"


async def restart_conversation(
    turn: TurnContext, model: str = "", reason: str = "", reply: Reply | None = None
) -> TurnResult:
    """Write a turn whose transcript is one new, shorter message: the step's opening and what has become of the work
    since. Commits it and returns its result; no tool runs. A second model starts with such a conversation, because what
    a model has thought is bound to it.

    model   that the step goes on with; empty: its own
    reason  for going over to that model now; empty: the conversation was too long
    reply   that showed that the model cannot go on, or is the summary; None: nothing was asked
    """
    summary = reply.summary if reply is not None else ""
    message = f"goes on with {model}: {reason}" if reason else SUMMED_UP if summary else COMPACTING
    update_heartbeat(doing=message)
    messages, diff = turn.messages, await in_thread(step_diff, turn.session.vault, turn.work)
    [opening] = turn.host.redact_blocks(
        compact_transcript(messages, diff, TAKEN_OVER if reason else COMPACTED, summary) if messages[1:] else messages
    )
    crash_point(CrashPoint.DURING_COMPACTION)
    result = TurnResult(
        checkpoint="",
        summary=turn_summary(turn.work, message, None, ""),
        usage=reply.usage if reply is not None else Usage(),
        model=model,
    )
    return await commit_turn(turn, [opening], result)
