"""The origin of the signals between our workflows: of a backlog's deliveries to it, of deliveries to the Treasury, and
of Treasury, backlog and attempts to a delivery. Activity `signal_origin` asks which run has sent each. Any client may
send one in another's name; the server notes the run, and no client can say it.

It is called as a local activity, which costs the caller one event for all signals that came at the same time.

Effect: none. Key: the run that calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

from pydantic import ValidationError
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.client import Client

from activities.workflow_origin import origin_problem, read_backwards
from perdure.adapters.worker.origin_record import AcceptedRuns
from perdure.models.backlog.landing import (
    ItemEnded,
    ItemForeseen,
    ItemPlanned,
    ItemWaits,
    LandingEnded,
    LandingGranted,
    LandingRequested,
)
from perdure.models.backlog.state import SignalClaim, SignalOriginInput, SignalOriginResult
from perdure.models.base import HistoryModel
from perdure.models.budget.treasury import BudgetGrant, ReserveRequest
from perdure.models.delivery.work import AttemptWaits

_CONTENTS: Mapping[str, type[HistoryModel]] = {
    "landing_asked": LandingRequested,
    "landing_over": LandingEnded,
    "item_waits": ItemWaits,
    "item_planned": ItemPlanned,
    "item_foreseen": ItemForeseen,
    "item_ended": ItemEnded,
    "reserve": ReserveRequest,
    "granted": BudgetGrant,
    "landing_granted": LandingGranted,
    "attempt_waits": AttemptWaits,
}
"""The signals between workflows of ours that are asked about, and what they carry."""


class SignalOriginActivity:
    """The activity by which a backlog asks who has sent it signals."""

    def __init__(self, accepted: AcceptedRuns) -> None:
        self._accepted = accepted

    @activity.defn
    async def signal_origin(self, work: SignalOriginInput) -> SignalOriginResult:
        """Check that runs of the workflows that are named, of ours, have sent the caller these signals; return for each
        the run that has, or the reason why that is not so. A signal that came twice has to be sent twice. Raises
        RPCError, which is retried, when the server does not answer."""
        client, info = activity.client(), activity.info()
        caller = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")
        runs = await _sending_runs(client, caller, work.after)
        origins = [await self._find_origin(client, claim, runs[claim]) for claim in work.claims]
        return SignalOriginResult(
            reasons=tuple(reason for reason, _ in origins), runs=tuple(run_id for _, run_id in origins)
        )

    async def _find_origin(self, client: Client, claim: SignalClaim, runs: list[str]) -> tuple[str, str]:
        """Return ("", the run of a delivery of ours that has sent a signal), or (the reason why none has, ""); remove
        from `runs`, which have sent it under the delivery's id, those that were looked at. Raises RPCError when the
        server does not answer."""
        reason = f"{claim.delivery} has not sent it"
        while runs:
            run_id = runs.pop()
            if not (reason := await origin_problem(client, self._accepted, claim.delivery, run_id)):
                return "", run_id
        return reason, ""


async def _sending_runs(client: Client, caller: WorkflowExecution, after: int) -> dict[SignalClaim, list[str]]:
    """Return the ids of the runs that have sent a workflow signals since event `after`, by the workflow they are of and
    what they sent. Signals of clients have no such run. Raises RPCError when the server does not answer."""
    runs = defaultdict[SignalClaim, list[str]](list)
    async for event in read_backwards(client, caller):
        if event.event_id <= after:
            break
        signaled = event.workflow_execution_signaled_event_attributes
        sender, content = signaled.external_workflow_execution, _CONTENTS.get(signaled.signal_name)
        if not sender.workflow_id or content is None:
            continue
        with suppress(ValidationError, IndexError):  # malformed: the workflow has not got it either
            (value, *_) = await client.data_converter.decode_wrapper(signaled.input)
            claim = SignalClaim(
                signal=signaled.signal_name,
                delivery=sender.workflow_id,
                content=content.model_validate(value).model_dump_json(),
            )
            runs[claim].append(sender.run_id)
    return runs
