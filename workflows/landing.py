"""A delivery's side of landing on its backlog's branch: it asks for the turn to land, rebases, tests and moves the
branch, gives the turn back, and tells the backlog what it waits for and how it ended.

The branch moves by compare-and-swap: the turn only keeps two deliveries from testing the same place in vain. So
whatever gets lost here costs time, never a commit.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow

from perdure.models.backlog import landing
from perdure.models.backlog.request import LandingPlace
from perdure.models.delivery import fold
from perdure.models.delivery.decisions import Gate, PendingDecision
from perdure.models.delivery.result import DeliveryResult, Status, TestsStatus
from perdure.models.delivery.work import PreparedWorkspace
from perdure.models.limits import END_MESSAGE_CHARS
from perdure.models.phases import Phase, Step
from perdure.models.rules.dependencies import stackable_commit
from perdure.models.rules.gates import landing_obstacle, red_tests_approval
from perdure.models.rules.scheduling import LIMIT_GATE
from perdure.text import shell_word, shorten
from workflows.endings import DeliveryStopped, raise_if_cancelled
from workflows.publishing import ForgeSteps, wait_for_room
from workflows.signals import send_signal
from workflows.step_runner import StepRunner
from workflows.steps import Steps, decompose_request

TURN_SHOWN_AFTER = timedelta(seconds=10)
"""Time after which a missing turn is shown as waiting. It comes in a fraction of a second unless somebody else
lands."""

REQUEST_TURN_AGAIN = timedelta(minutes=5)
"""Time after which the turn is requested once more: the backlog may have begun again from before it heard the
request."""


LANDING_FIXES = 2
"""Rounds of fixing what cannot land, before a person is asked: who conflicts twice with what lands needs one. In the
last of them the turn is kept: somebody may land while the first fix is made, nobody during the second."""


class Landing:
    """The landing of a delivery on the branch of its backlog. `decomposes` and `wait_for_room` serve every delivery,
    and the methods named `tell_…` do nothing when the delivery is no item of a backlog; the others are for items only.
    """

    def __init__(self, runner: StepRunner, forge: ForgeSteps, steps: Steps) -> None:
        self._runner, self._forge, self._steps = runner, forge, steps
        self._grant: landing.LandingGranted | None = None
        self._is_landed_already = False
        self._keeps_turn = False
        self._last_signal_number = 0
        if (parent := runner.request.parent_delivery) is not None:
            runner.state.planning.kind = parent.kind

    @property
    def _place(self) -> LandingPlace:
        assert self._runner.request.landing is not None
        return self._runner.request.landing

    @property
    def _prepared(self) -> PreparedWorkspace:
        assert self._runner.state.prepared is not None
        return self._runner.state.prepared

    @property
    def decomposes(self) -> bool:
        """Return True when the request is not for a change, but a large one to be made into items of the backlog."""
        return self._runner.request.landing is not None and self._place.decompose is not None

    async def decompose_request(self) -> None:
        await decompose_request(self._runner, self._steps)

    async def wait_for_room(self) -> None:
        """Wait until the limits leave room for one more of the repository's deliveries, in a backlog or not, and tell
        the backlog what is waited for. Raises DeliveryStopped when the forge refuses."""
        await wait_for_room(self._runner, self.tell_wait_reason)

    async def tell_planned_files(self) -> None:
        """Tell the backlog which files the plan names, so that others that change them do not start beside it; do
        nothing when there are none, or they were told before."""
        if touches := self._runner.state.landing.planned_touches:
            self._runner.state.landing.planned_touches = ()
            signal = landing.ItemPlanned(item=self._place.item, delivery=workflow.info().workflow_id, touches=touches)
            await self._signal_backlog("item_planned", signal)

    async def try_landing(self) -> bool:
        """Wait for the turn to land; then rebase the change onto the branch's head, test it there and move the branch,
        again when somebody else moved the branch meanwhile. Return True when it has landed, False when conflicts or red
        tests keep it from landing.

        After a False the delivery has to fix it. The turn is given back, except before the last round of fixes, which
        keeps it. Raises DeliveryStopped when all of the change is on the branch already, or the forge refuses;
        CancelledError when the delivery was cancelled.
        """
        grant, reason = await self._wait_for_turn(), ""
        while not self._runner.state.landing.landed_commit:
            rebased = await self._rebase(grant.head, grant.seq)
            if rebased.landed:
                break
            if rebased.conflicts:
                reason = f"conflicts in {', '.join(rebased.conflicts[:3])}"
            elif not await self._passes_tests(rebased, grant):
                reason = f"red on {rebased.onto[:7]}"
            if reason:
                break
            await self._land_commit(rebased)  # moves nothing where somebody was faster: then once more
        self._keeps_turn = bool(reason) and self._round + 1 == LANDING_FIXES
        if not self._keeps_turn:
            await self._give_turn_back(grant, reason)
        return not reason

    async def ask_to_go_on(self) -> str:
        """Ask a person, after the last round of fixes, whether there is another one. Return why the delivery ends;
        empty when it goes on.

        While rounds are left, it returns empty text without asking. When the delivery has no gate `landing`, nobody is
        asked and it ends.
        """
        if self._runner.state.landing.fixes == 0 or self._round:
            return ""
        note = await self._steps.ask_gate(Gate.LANDING)
        if not note and Gate.LANDING in self._prepared.decisions.gates:
            return ""
        return f"it could not land: {landing_obstacle(self._runner.state)}" + (f"; rejected: {note}" if note else "")

    async def fix_landing(self) -> None:
        """Have an agent fix what could not land, conflicts with what landed meanwhile or tests that are red together
        with it, commit that and count the round. Raises DeliveryStopped with NO_CHANGES when nothing of the change is
        left then."""
        state = self._runner.state
        materials = {"conflict": state.landing.landed_changes} if state.landing.landed_changes else {}
        if not state.landing.conflicts and state.testing.verdict is not None:
            materials["report"] = state.testing.verdict.report
        commits = (
            {"base": self._prepared.base_commit.sha, "head": state.landing.unlanded_commit}
            if state.landing.conflicts
            else {}
        )
        await self._steps.run_fix(Step.FIX_LANDING, materials | commits, is_last=self._round + 1 == LANDING_FIXES)
        if not state.building.head:
            raise DeliveryStopped(
                Status.NO_CHANGES, None, "nothing of the change was left once its conflicts were mended"
            )
        state.landing.fixes += 1
        state.landing.conflicts, state.landing.unlanded_commit = (), ""

    async def tell_end(self, result: DeliveryResult) -> None:
        """Send the backlog signal `item_ended`: how this run ended, its cost, commit, branch and pull request. Does
        nothing without a backlog. A cancellation that comes meanwhile is swallowed: it does not change the end."""
        if self._runner.request.landing is None:
            return
        ships = self._place.ships
        signal = landing.ItemEnded(
            item=self._place.item,
            delivery=result.delivery_id,
            run_id=workflow.info().first_execution_run_id,
            status=result.status,
            reason=result.reason or "",
            message=shorten(result.message, END_MESSAGE_CHARS),
            usd=result.usage.cost_usd,
            commit=stackable_commit(result) if ships else self._runner.state.landing.landed_commit,
            branch=(result.branch or "") if ships else "",
            pull_request=result.pull_request.url if ships and result.pull_request else "",
            items=self._runner.state.planning.items,
            already_on_branch=self._is_landed_already,
        )
        sending = asyncio.create_task(self._signal_backlog("item_ended", signal))
        with suppress(asyncio.CancelledError):
            await workflow.wait([sending])
        with suppress(asyncio.CancelledError):
            await sending

    async def _rebase(self, newest_landed: str, number: int) -> landing.RebaseResult:
        """Rebase the change onto the integration branch's head, as a recorded step, and return the result: one commit,
        the files that conflict, or that it has landed already. Raises DeliveryStopped with NO_CHANGES when all of it is
        on the branch already.

        newest_landed  a commit that the branch has to have; empty: nothing has landed
        number         counts the landings tried
        """
        state, prepared, place = self._runner.state, self._prepared, self._place
        work = landing.RebaseInput(
            delivery=self._runner.delivery,
            contract=prepared.contract,
            place=place,
            head=state.building.head,
            checkpoint=state.turns.checkpoint,
            landed=newest_landed,
            subject=state.planning.title
            or prepared.request.title
            or shorten(" ".join(self._runner.request.request.split()), 60),
            kind=state.planning.kind,
            plan=state.planning.plan,
            number=number,
        )
        rebased = await self._runner.run_step(Step.REBASE, work, landing.RebaseResult, attempt=number)
        fold.apply_rebase(state, rebased)
        if not (rebased.commit or rebased.conflicts or rebased.landed):
            self._is_landed_already = True
            raise DeliveryStopped(Status.NO_CHANGES, None, f"all of it is on {place.branch} already")
        return rebased

    async def _passes_tests(self, rebased: landing.RebaseResult, grant: landing.LandingGranted) -> bool:
        """Return True when the verdict on exactly this tree lets it land: none, not red, or red and let through by a
        person. Run the tests first when the phase is selected and there is no such verdict.

        A verdict that was reached on this tree, on the same base, stands; but not when landed items have named checks
        to run with this landing, so that a regression cannot land.
        """
        state, prepared = self._runner.state, self._prepared
        is_known = (
            state.testing.verdict is not None
            and state.testing.verdict.tree == rebased.tree
            and not rebased.moved
            and not grant.check
        )
        if Phase.TEST in prepared.phases and not is_known:
            await self._steps.run_tests(grant.check)
        return (
            state.testing.verdict is None
            or state.testing.verdict.status is not TestsStatus.RED
            or red_tests_approval(state) is not None
        )

    async def _land_commit(self, rebased: landing.RebaseResult) -> None:
        """Move the integration branch to the rebased commit, in the vault for a plan's task, else at the forge, and
        record the commit as landed. When somebody else moved the branch first, nothing is moved and none is recorded.
        """
        work = landing.LandInput(
            delivery=self._runner.delivery,
            contract=self._prepared.contract,
            workflow_id=workflow.info().workflow_id,
            place=self._place,
            commit=rebased.commit,
            onto=rebased.onto,
            tests=self._runner.state.testing.verdict,
        )
        if self._runner.request.parent_delivery is not None:  # its branch is in the vault, which this host alone has
            fold.apply_landing(self._runner.state, await self._runner.run_step(Step.LAND, work, landing.LandResult))
        else:
            fold.apply_landing(self._runner.state, await self._forge.land_commit(work))

    @property
    def _round(self) -> int:
        """Return how many rounds of fixes were made since the first landing, or since a person last let it go on."""
        return self._runner.state.landing.fixes % LANDING_FIXES

    async def _wait_for_turn(self) -> landing.LandingGranted:
        """Ask the backlog for the turn to land, wait until it is granted, without a limit, and return the grant; a turn
        that was kept is returned at once. The request is repeated every REQUEST_TURN_AGAIN. A longer wait is shown, and
        does not count as the delivery's time."""
        state, info = self._runner.state, workflow.info()
        if self._keeps_turn and self._grant is not None:
            return self._grant
        state.landing.turn_requests += 1
        request = landing.LandingRequested(
            item=self._place.item,
            delivery=info.workflow_id,
            run_id=info.first_execution_run_id,
            seq=state.landing.turn_requests,
        )
        backlog_runs = await self._signal_backlog("landing_asked", request)
        is_granted = await self._wait_for_grant(state.landing.turn_requests, TURN_SHOWN_AFTER)
        while not is_granted:
            with self._runner.gates.show_waiting(self._turn_wait_reason(backlog_runs)):
                if not (is_granted := await self._wait_for_grant(state.landing.turn_requests, REQUEST_TURN_AGAIN)):
                    backlog_runs = await self._signal_backlog("landing_asked", request)
        assert self._grant is not None
        return self._grant

    def _turn_wait_reason(self, backlog_runs: bool) -> str:
        """Return, in words for people, what the delivery waits for: its turn to land; or, when `backlog_runs` is False,
        its backlog, which has ended and grants nothing until somebody retries it."""
        place = self._place
        if backlog_runs:
            return f"for its turn to land on {place.branch}"
        retry_command = f"perdure backlog retry {shell_word(place.backlog)} {shell_word(place.item)}"
        return f"for backlog {place.backlog}, which has ended: {retry_command}"

    async def _wait_for_grant(self, seq: int, patience: timedelta) -> bool:
        """Wait until request number `seq` is granted, and return True; False when it is not within `patience`."""
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: self._grant is not None and self._grant.seq == seq,
                timeout=patience,
                timeout_summary=shorten(f"its turn to land on {self._place.branch}", 100),
            )
            return True
        return False

    def record_grant(self, grant: landing.LandingGranted) -> None:
        """Handle signal `landing_granted`: keep the grant."""
        self._grant = grant

    async def _give_turn_back(self, grant: landing.LandingGranted, reason: str) -> None:
        """Tell the backlog by signal `landing_over` that the turn to land is over: what landed, or why nothing did,
        what was paid, and which checks were not run."""
        signal = landing.LandingEnded(
            item=self._place.item,
            delivery=workflow.info().workflow_id,
            seq=grant.seq,
            commit=self._runner.state.landing.landed_commit,
            reason=reason,
            usd=self._runner.state.spending.usage.cost_usd,
            unchecked=self._unchecked_items(grant),
        )
        await self._signal_backlog("landing_over", signal)

    def _unchecked_items(self, grant: landing.LandingGranted) -> tuple[str, ...]:
        """Return the ids of landed items whose checks were to run with this landing and did not."""
        tests = self._runner.state.testing.verdict
        return tests.unchecked if tests is not None and Phase.TEST in self._prepared.phases else tuple(grant.check)

    def _next_signal_number(self) -> int:
        """Return the number of the next signal `item_waits`, higher than all before: the time in milliseconds, so that
        a later run goes on counting."""
        self._last_signal_number = max(self._last_signal_number + 1, round(workflow.now().timestamp() * 1000))
        return self._last_signal_number

    async def tell_backlog(self, pending: PendingDecision | None) -> None:
        """Tell the backlog, by signal `item_waits`, that a person has to decide something in this delivery, with the
        text of its items at that gate; None: somebody has decided. Planned files are told first. Does nothing without a
        backlog. Raises CancelledError when the delivery was cancelled."""
        if self._runner.request.landing is None:
            return
        await self.tell_planned_files()
        signal = landing.ItemWaits(
            item=self._place.item, delivery=workflow.info().workflow_id, number=self._next_signal_number()
        )
        if pending is not None:
            excerpt = self._runner.state.planning.plan_text if pending.gate is Gate.ITEMS else ""
            fields = {
                "waiting_for": shorten(pending.summary, 200),
                "gate": str(pending.gate),
                "target": pending.target,
                "since": pending.since,
            }
            signal = signal.model_copy(update=fields | {"about": excerpt, "pending_decision": pending})
        await self._signal_backlog("item_waits", signal)

    async def tell_wait_reason(self, reason: str) -> None:
        """Tell the backlog, by signal `item_waits`, that the delivery waits for something that no person decides here;
        empty: it goes on. Does nothing without a backlog. Raises CancelledError when the delivery was cancelled."""
        if self._runner.request.landing is None:
            return
        item, delivery = self._place.item, workflow.info().workflow_id
        gate = LIMIT_GATE if reason else ""
        signal = landing.ItemWaits(
            item=item,
            delivery=delivery,
            number=self._next_signal_number(),
            waiting_for=shorten(reason, 200),
            gate=gate,
        )
        await self._signal_backlog("item_waits", signal)

    async def tell_conflicts(self, conflicts: dict[str, str]) -> None:
        """Tell the backlog which other open deliveries the newest commit would conflict with, and remember that. Does
        nothing without a backlog, or when they are the same as told last."""
        if self._runner.request.landing is None or conflicts == self._runner.state.landing.foreseen_conflicts:
            return
        self._runner.state.landing.foreseen_conflicts = conflicts
        delivery = workflow.info().workflow_id
        signal = landing.ItemForeseen(item=self._place.item, delivery=delivery, conflicts=conflicts)
        await self._signal_backlog("item_foreseen", signal)

    async def _signal_backlog(self, signal: str, payload: Any) -> bool:
        """Send a signal to the backlog, and return True; False when the backlog has ended: the delivery goes on all the
        same.

        After signals `item_waits` and `landing_asked`, which a long wait may follow, it raises CancelledError when the
        delivery was cancelled; after others the next step notices that.
        """
        raises_cancel = signal == "item_waits"  # days of waiting may follow
        backlog_runs = await send_signal(
            workflow.get_external_workflow_handle(self._place.backlog), signal, payload, raises_cancel=raises_cancel
        )
        if signal == "landing_asked":
            raise_if_cancelled()  # a cancellation that came meanwhile
        return backlog_runs
