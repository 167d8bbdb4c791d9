"""The messages a delivery takes while it runs, from any Temporal client and from the Web UI. The rules by which they
count are in perdure/models/rules/inbox.py.

Decisions are updates: their sender is told at once whether they count, and what does not count is refused before it
enters history. Messages for the agent and holds are signals: kept even while no worker runs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from perdure.models.backlog.landing import LandingGranted
from perdure.models.backlog.state import SignalClaim
from perdure.models.base import HistoryModel
from perdure.models.budget.treasury import TREASURY, BudgetGrant
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.work import AttemptWaits
from perdure.models.rules.inbox import DeliveryAttached, Inbox, NotCounted, delivery_attach_refusal, delivery_attached
from perdure.models.rules.parallel_builds import attempt_workflow_id
from workflows.attempts import PlanAttempts
from workflows.landing import Landing
from workflows.signals import find_signal_problems
from workflows.step_runner import StepRunner
from workflows.unknown_messages import UnknownMessages

ATTACHES = 200
"""The number of times one run takes update `attach` under different ids: a run takes 2,000 updates, and decisions need
room."""


EVENTS_A_TASK = 500
"""The most events of a history that come between a signal and the workflow's turn to take it, with much to spare: so
far back is looked for who has sent it."""


class DeliveryInbox(UnknownMessages):
    """Handles the messages that a delivery takes: updates `attach`, `approve`, `reject`, `edit_plan`, `answer`,
    `add_budget`; signals `say`, `hold`, `resume`, `rewind`, `decide`, and those of other workflows."""

    state: DeliveryState
    request: DeliveryRequest
    runner: StepRunner
    landing: Landing
    attempts: PlanAttempts
    _submission_error: ApplicationError | None = None
    _attach_count = 0
    _asking: asyncio.Lock

    @workflow.update(description="Submit or attach in one call, by update-with-start: {} or the request again")
    def attach(self, raw_request: Any = None) -> DeliveryAttached:
        """Count the attach, and return what its sender is told: the delivery's and its run's id and its request."""
        self._attach_count += 1
        info = workflow.info()
        return delivery_attached(self.request, info.workflow_id, info.run_id)

    @attach.validator
    def _validate_attach(self, raw_request: Any = None) -> None:
        """Raise the error of a bad submission when this delivery's own request was bad; ApplicationError InvalidRequest
        for an attach with another request than this delivery's; ApplicationError NotCounted after ATTACHES others."""
        if self._submission_error is not None:
            raise self._submission_error
        if reason := delivery_attach_refusal(self.request, raw_request):
            raise ApplicationError(f"InvalidRequest: {reason}", type="InvalidRequest", non_retryable=True)
        if self._attach_count >= ATTACHES:
            reason = f"attached {ATTACHES} times: give the update the id attach, or ask query progress"
            raise _not_counted_error(NotCounted(reason))

    @workflow.update(description='Approve what it waits for: {"of": "…"} as its details say, or {}')
    def approve(self, decision: Any = None) -> str:
        return self._record_decision("approve", decision)

    @approve.validator
    def _validate_approve(self, decision: Any = None) -> None:
        self._validate_decision("approve", decision)

    @workflow.update(description='Send it back, with words: {"note": "what is wrong, and what instead"}')
    def reject(self, decision: Any = None) -> str:
        return self._record_decision("reject", decision)

    @reject.validator
    def _validate_reject(self, decision: Any = None) -> None:
        self._validate_decision("reject", decision)

    @workflow.update(description="Put another plan in its place: perdure approve ID --edit, in a terminal, sends it")
    def edit_plan(self, decision: Any = None) -> str:
        return self._record_decision("edit_plan", decision)

    @edit_plan.validator
    def _validate_edit_plan(self, decision: Any = None) -> None:
        self._validate_decision("edit_plan", decision)

    @workflow.update(description='Answer the question it waits with: {"answer": "…"}')
    def answer(self, decision: Any = None) -> str:
        return self._record_decision("answer", decision)

    @answer.validator
    def _validate_answer(self, decision: Any = None) -> None:
        self._validate_decision("answer", decision)

    @workflow.update(description='More to spend, at any time: {"usd": 5}, {"tokens": 500000} or {"time": "1h"}')
    def add_budget(self, decision: Any = None) -> str:
        return self._record_decision("add_budget", decision)

    @add_budget.validator
    def _validate_add_budget(self, decision: Any = None) -> None:
        self._validate_decision("add_budget", decision)

    @workflow.signal(description='Words for the next turn: {"text": "…"}')
    def say(self, message: Any = None) -> None:
        Inbox(self.state).receive_message(message)
        self.refresh_details()

    @workflow.signal(description='Begin no further turn until resume: {} or {"note": "why"}')
    def hold(self, raw_hold: Any = None) -> None:
        Inbox(self.state).apply_hold(raw_hold)
        self.refresh_details()

    @workflow.signal(description="Go on after a hold: {}")
    def resume(self, raw_resume: Any = None) -> None:
        Inbox(self.state).apply_resume()
        self.refresh_details()

    @workflow.signal(description="Sent by perdure rewind just before its reset: no further turn begins meanwhile")
    def rewind(self, raw_rewind: Any = None) -> None:
        if (since := Inbox(self.state).apply_rewind(raw_rewind, workflow.info().run_id)) is not None:
            self.runner.gates.exclude_time_since(since)
        self.refresh_details()

    @workflow.signal(description='For when no worker runs: {"update": "approve", "said": {"of": "…"}}')
    def decide(self, raw_decision: Any = None) -> None:
        Inbox(self.state, workflow.now()).receive_decision(raw_decision)
        self.refresh_details()

    @workflow.signal(
        description="Sent by the Treasury: what it grants of a shared budget, or why it does not",
        unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON,  # the next run asks anew
    )
    async def granted(self, answer: BudgetGrant) -> None:
        if not workflow.patched("grant_origin") or await self._was_sent_by(TREASURY, "granted", answer):
            self.runner.allowance.apply_grant(answer)

    @workflow.signal(
        description="Sent by the backlog: its turn to land",
        unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON,  # the next run asks for a turn anew
    )
    async def landing_granted(self, grant: LandingGranted) -> None:
        backlog = self.request.landing.backlog if self.request.landing else ""
        if not workflow.patched("landing_grant_origin") or await self._was_sent_by(backlog, "landing_granted", grant):
            self.landing.record_grant(grant)

    @workflow.signal(
        description="Sent by an attempt at the plan that waits for a person, or goes on",
        unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON,  # it only shows something
    )
    async def attempt_waits(self, signal: AttemptWaits) -> None:
        attempt = attempt_workflow_id(workflow.info().workflow_id, signal.number)
        if not workflow.patched("attempt_origin") or await self._was_sent_by(attempt, "attempt_waits", signal):
            await self.attempts.record_wait(signal)

    async def _was_sent_by(self, sender: str, name: str, signal: HistoryModel) -> bool:
        """Return True when the server says that workflow `sender`, of ours, has sent this signal. The server is asked
        about one signal after the other, in the order in which they came."""
        after = max(0, workflow.info().get_current_history_length() - EVENTS_A_TASK)
        claim = SignalClaim(signal=name, delivery=sender, content=signal.model_dump_json())
        async with self._asking:
            return not any(await find_signal_problems([claim], after))

    def note_message(self, note: str) -> None:
        """Note in the state, for people, that a message did not count."""
        Inbox(self.state).add_note(note)
        self.refresh_details()

    def refresh_details(self) -> None:
        """Bring what the Web UI shows up to date after a message has changed the state; it would not be otherwise."""
        self.runner.refresh_details()

    def _record_decision(self, name: str, decision: Any) -> str:
        """Record a decision in the state, bring what the Web UI shows up to date, and return the answer for the
        decision's sender.

        The decision is checked again: between validator and handler another one may have decided the same. Raises
        ApplicationError NotCounted when it does not count any more.
        """
        try:
            answer = Inbox(self.state, workflow.now()).apply_decision(name, decision)
            self.refresh_details()
            return answer
        except NotCounted as error:
            raise _not_counted_error(error) from None

    def _validate_decision(self, name: str, decision: Any) -> None:
        """Raise ApplicationError NotCounted, with the reason, for a decision that cannot count; change nothing."""
        try:
            Inbox(self.state).check_decision(name, decision)
        except NotCounted as error:
            raise _not_counted_error(error) from None


def _not_counted_error(error: NotCounted) -> ApplicationError:
    return ApplicationError(error.what, type="NotCounted", non_retryable=True)
