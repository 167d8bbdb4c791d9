"""The messages a delivery takes while it runs, from any Temporal client and from the Web UI.

Decisions are updates: whoever sends one is told at once whether it counts, and what does not is refused before it
enters history. Words and holds are signals: kept even while no worker runs.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from perdure.models.request import DeliveryRequest
from perdure.models.rules.attaching import Attached, attached, refusal
from perdure.models.rules.inbox import Inbox, NotCounted
from perdure.models.state import DeliveryState
from workflows.stage import Stage

ATTACHES = 200
"""Times one run takes update `attach` under different ids: a run takes 2,000 updates, and decisions need room."""


class TakesMessages:
    """`attach`; `approve`, `reject`, `edit_plan`, `answer`, `add_budget`; `say`, `hold`, `resume`, `decide`."""

    state: DeliveryState
    request: DeliveryRequest
    stage: Stage
    _refused: ApplicationError | None = None
    _attached = 0

    @workflow.update(description="Submit or attach in one call, by update-with-start: {} or the request again")
    def attach(self, sent: Any = None) -> Attached:
        self._attached += 1
        info = workflow.info()
        return attached(self.request, info.workflow_id, info.run_id)

    @attach.validator
    def _attach(self, sent: Any = None) -> None:
        if self._refused is not None:
            raise self._refused
        if words := refusal(self.request, sent):
            raise ApplicationError(f"InvalidRequest: {words}", type="InvalidRequest", non_retryable=True)
        if self._attached >= ATTACHES:
            words = f"attached {ATTACHES} times: give the update the id attach, or ask query progress"
            raise _refusal(NotCounted(words))

    @workflow.update(description='Approve what it waits for: {"of": "…"} as its details say, or {}')
    def approve(self, said: Any = None) -> str:
        return self._decide("approve", said)

    @approve.validator
    def _approve(self, said: Any = None) -> None:
        self._check("approve", said)

    @workflow.update(description='Send it back, with words: {"note": "what is wrong, and what instead"}')
    def reject(self, said: Any = None) -> str:
        return self._decide("reject", said)

    @reject.validator
    def _reject(self, said: Any = None) -> None:
        self._check("reject", said)

    @workflow.update(description="Put another plan in its place: perdure approve ID --edit, in a terminal, sends it")
    def edit_plan(self, said: Any = None) -> str:
        return self._decide("edit_plan", said)

    @edit_plan.validator
    def _edit_plan(self, said: Any = None) -> None:
        self._check("edit_plan", said)

    @workflow.update(description='Answer the question it waits with: {"answer": "…"}')
    def answer(self, said: Any = None) -> str:
        return self._decide("answer", said)

    @answer.validator
    def _answer(self, said: Any = None) -> None:
        self._check("answer", said)

    @workflow.update(description='More to spend, at any time: {"usd": 5}, {"tokens": 500000} or {"time": "1h"}')
    def add_budget(self, said: Any = None) -> str:
        return self._decide("add_budget", said)

    @add_budget.validator
    def _add_budget(self, said: Any = None) -> None:
        self._check("add_budget", said)

    @workflow.signal(description='Words for the next turn: {"text": "…"}')
    def say(self, said: Any = None) -> None:
        Inbox(self.state).hear(said)
        self.refresh()

    @workflow.signal(description='Begin no further turn until resume: {} or {"note": "why"}')
    def hold(self, said: Any = None) -> None:
        Inbox(self.state).hold(said)
        self.refresh()

    @workflow.signal(description="Go on after a hold: {}")
    def resume(self, said: Any = None) -> None:
        Inbox(self.state).resume()
        self.refresh()

    @workflow.signal(description="Sent by perdure rewind just before its reset: no further turn begins meanwhile")
    def rewind(self, said: Any = None) -> None:
        if (since := Inbox(self.state).rewind(said, workflow.info().run_id)) is not None:
            self.stage.people.forget(since)
        self.refresh()

    @workflow.signal(description='For when no worker runs: {"update": "approve", "said": {"of": "…"}}')
    def decide(self, sent: Any = None) -> None:
        Inbox(self.state, workflow.now()).hear_decision(sent)
        self.refresh()

    def refresh(self) -> None:
        """Bring what the Web UI shows up to date; nothing else tells it of what came by a message."""
        self.stage.refresh()

    def _decide(self, name: str, said: Any) -> str:
        """The same checks again: between validator and handler something else may have decided it."""
        try:
            counted = Inbox(self.state, workflow.now()).decide(name, said)
            self.refresh()
            return counted
        except NotCounted as error:
            raise _refusal(error) from None

    def _check(self, name: str, said: Any) -> None:
        try:
            Inbox(self.state).check(name, said)
        except NotCounted as error:
            raise _refusal(error) from None


def _refusal(error: NotCounted) -> ApplicationError:
    return ApplicationError(error.what, type="NotCounted", non_retryable=True)
