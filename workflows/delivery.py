"""Workflow `Delivery`, which turns one request into one pull request. Its method `deliver` is the whole business
process; read it first."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from perdure.models.delivery import fold
from perdure.models.delivery.decisions import Gate, PendingDecision
from perdure.models.delivery.request import DeliveryRequest, ResumePoint
from perdure.models.delivery.result import SUCCESSES, DeliveryResult, Reason, Status, TestsStatus
from perdure.models.delivery.state import Progress
from perdure.models.delivery.summary import progress_of, result_of
from perdure.models.delivery.work import TestVerdict
from perdure.models.ids import delivery_key
from perdure.models.phases import Phase, Step
from perdure.models.rules.gates import (
    CANNOT_TELL,
    draft_reasons,
    red_tests_approval,
    stop_review_fixing_reason,
    stop_test_fixing_reason,
)
from perdure.models.webui.details import render_refused
from workflows.attempts import PlanAttempts
from workflows.endings import (
    DeliveryStopped,
    not_delivered,
    parse_submission,
    raise_if_cancelled,
    readable_text,
    refusal_reason,
    refused_state,
)
from workflows.inbox import DeliveryInbox
from workflows.landing import Landing
from workflows.notification import has_subscribers
from workflows.publishing import ForgeSteps
from workflows.step_runner import StepRunner
from workflows.steps import Steps


@workflow.defn
class Delivery(DeliveryInbox):
    """Workflow of one delivery: takes a DeliveryRequest as JSON, returns a DeliveryResult; see docs/phases.md."""

    @workflow.init
    def __init__(self, raw: Any = None, *extra_args: Any) -> None:
        """Parse the request and build the parts, before any message is handled: what people send at once, or before a
        worker runs, is meant for this state. The error of a bad request is kept, and raised by `run`."""
        self._submission_error: ApplicationError | None = None
        self._asking = asyncio.Lock()
        try:
            self.request, self.state = parse_submission(raw, extra_args)
        except ApplicationError as error:
            self.request = DeliveryRequest.model_construct(
                repository=readable_text(raw, "repository"), request=readable_text(raw, "request")
            )
            self.state = refused_state(refusal_reason(error))
            self._submission_error = error
        delivery = delivery_key(workflow.info().workflow_id)
        self.runner = StepRunner(delivery, self.request, self.state, self.announce_wait)
        resume = self.request.resume
        self.forge = ForgeSteps(self.runner, has_commented=resume is not None and resume.continued)
        self.steps = Steps(self.runner, self.forge, self.tell_conflicts)
        self.landing = Landing(self.runner, self.forge, self.steps)
        self.attempts = PlanAttempts(self.runner, self.steps, self.landing.tell_wait_reason)

    @workflow.run
    async def run(self, raw: Any = None, *extra_args: Any) -> DeliveryResult:
        """Run the delivery of the request, tidy up, and return the result of a success.

        Raises ApplicationError: InvalidRequest for a bad request, NotDelivered with the result as details when nothing
        was delivered. Raises CancelledError when the delivery was cancelled.
        """
        if self._submission_error is not None:
            await self._end_refused(self._submission_error, notifies=await has_subscribers())
        try:
            await self.deliver()
        except DeliveryStopped as stop:
            self.state.status, self.state.reason, self.state.message = stop.status, stop.reason, stop.message
        except asyncio.CancelledError:
            self.state.status = Status.CANCELLED
        except ApplicationError as error:
            closed = await self.runner.close_delivery(keep=False)  # the request was wrong after all: nothing is kept
            refused = refused_state(refusal_reason(error))
            self.state.status, self.state.reason, self.state.message = refused.status, refused.reason, refused.message
            await self._end_refused(error, notifies=closed.notifies and workflow.patched("refusals_told"))
        return await self._end_delivery()

    async def deliver(self) -> None:
        """Carry out the business process, in order, and set the status. Each line is safe to reach again: what is done
        is not done twice. Raises DeliveryStopped when the delivery ends without success, CancelledError when it is
        cancelled."""
        await self.prepare_workspace()
        if self.landing.decomposes:
            self.enter_phase(Phase.PLAN)
            return await self.landing.decompose_request()
        if self.is_selected(Phase.PLAN):
            await self.make_plan()
        if self.is_selected(Phase.BUILD):
            await self.build_change()
        if self.is_selected(Phase.TEST):
            await self.test_until_green()
        if self.is_selected(Phase.REVIEW):
            await self.review_until_clean()
        if self.prepared.publishing.landing:
            await self.land_change()
        elif self.is_selected(Phase.SHIP):
            await self.open_pull_request()
        else:
            await self.hand_over_branch()
        return None

    async def prepare_workspace(self) -> None:
        """Make the workspace ready, before a cent is spent: setup and preflight, and a check that the forge would take
        the result; then wait for room among the repository's deliveries. When this run continues another one, that
        one's workspace is used and nothing else is done."""
        previous = self.state.prepared
        if previous is not None and self.request.resume and self.request.resume.continued:
            self.prepared = previous
            return
        self.runner.enter_phase(None)
        self.prepared = await self.steps.prepare()
        await self.landing.wait_for_room()

    async def make_plan(self) -> None:
        """Classify the request (bug, feature or chore), then plan it; either only when it is not done yet. Until the
        change is built, ask a person to approve the plan, when configured, and plan again with the note of each
        rejection. Then tell the backlog, if any, which files the plan names. Raises DeliveryStopped when nobody decides
        in time."""
        self.enter_phase(Phase.PLAN)
        if not self.state.planning.kind:
            await self.steps.classify()
        if not self.state.planning.plan:
            await self.steps.plan()
        while not self.state.building.built and (note := await self.steps.ask_gate(Gate.PLAN)):
            await self.steps.plan(note)
        await self.landing.tell_planned_files()

    async def build_change(self) -> None:
        """Build what was planned and commit it: by several attempts, by several agents at once, or by one. Then
        document the change, when that is configured. What an earlier run has done is not done again.

        A run that goes on in the middle of a landing fixes its conflicts here. Raises DeliveryStopped with status
        NO_CHANGES when nothing was changed.
        """
        self.enter_phase(Phase.BUILD)
        if not self.state.building.built:
            if self.prepared.agents.unpriced:  # attempts and specialists ask nobody: what they cost is asked about here
                await self.runner.gates.wait_until_ready(paying=True)
            if await self.attempts.build_best():
                await self.attempts.commit_best()
            elif (materials := await self.steps.plan_tasks.build_tasks()) is not None:
                outcome = await self.steps.implement(materials)
                if (
                    not await self.steps.commit(Step.IMPLEMENT, 1, outcome.summary)
                    and not self.steps.plan_tasks.has_commits
                ):
                    raise DeliveryStopped(Status.NO_CHANGES, None, "the agent changed nothing: " + outcome.summary)
            self.state.building.built = True
        if self.state.landing.conflicts:  # this run goes on in the middle of a landing
            await self.landing.fix_landing()
        if self.prepared.building.document and not self.state.building.documented:
            await self.steps.document()
            self.state.building.documented = True

    async def test_until_green(self) -> None:
        """Run the repository's own tests until they are green; fix what fails, as long as fixes help.

        When they help no more, other attempts at the plan are tried, when configured; when none is better, the delivery
        ends by DeliveryStopped. When nothing can tell the failures from those of the base, a person decides whether
        they are fixed or published as they are; a delivery that publishes nothing ends there by DeliveryStopped.
        """
        self.enter_phase(Phase.TEST)
        earlier_verdicts: list[TestVerdict] = []  # the red verdicts that were followed by a fix, the oldest first
        while (verdict := await self.steps.run_tests()).status is TestsStatus.RED:
            if verdict.undecidable:
                if not (message := await self.ask_about_failures(verdict)):
                    break
                await self.steps.fix_tests(verdict, message)
            elif message := stop_test_fixing_reason(
                earlier_verdicts, verdict, self.state.fixing.test_fixes, self.prepared.limits.test_fixes
            ):
                if not await self.try_other_attempts(message):
                    return await self._end_with_failure(
                        Reason.TAMPERED if verdict.tampered else Reason.TESTS_RED, message
                    )
                earlier_verdicts.clear()
            else:
                earlier_verdicts.append(verdict)
                self.state.fixing.test_fixes += 1
                await self.steps.fix_tests(
                    verdict, is_last=self.state.fixing.test_fixes == self.prepared.limits.test_fixes
                )
        return None

    async def try_other_attempts(self, reason: str) -> bool:
        """Make other attempts at the plan after this change has failed for `reason`, when configured. When one of them
        is better than this change, commit it and return True; else return False. Raises DeliveryStopped when too little
        money is left."""
        if is_better := await self.attempts.try_others(reason):
            self.enter_phase(Phase.BUILD)
            await self.attempts.commit_best()
            self.enter_phase(Phase.TEST)
        return is_better

    async def ask_about_failures(self, verdict: TestVerdict) -> str:
        """Ask a person whether red tests are new, when the base was red too and only exit codes are known; return their
        note, by which to fix them.

        Empty: the tests are not fixed and the change is published, as a draft unless a person approved that. Raises
        DeliveryStopped (TESTS_RED) when no pull request is to come that could say so.
        """
        if not self.is_selected(Phase.SHIP):
            raise not_delivered(Reason.TESTS_RED, f"{CANNOT_TELL}: {verdict.summary}")  # no draft could say so
        return await self.steps.ask_gate(Gate.TESTS)

    async def review_until_clean(self) -> None:
        """Review the change until no blockers remain; fix them, and test each fix before it is reviewed again. Other
        findings do not block.

        When no fix is left, other attempts at the plan are tried; when none is better, the delivery ends by
        DeliveryStopped.
        """
        self.enter_phase(Phase.REVIEW)
        while (await self.steps.review()).blockers:
            if reason := stop_review_fixing_reason(self.state.fixing.review_fixes, self.prepared.limits.review_fixes):
                if not await self.try_other_attempts(reason):
                    return await self._end_with_failure(Reason.BLOCKERS, reason)
            else:
                self.state.fixing.review_fixes += 1
                blockers = {"review": self.state.reviewing.review, "findings": self.state.reviewing.findings}
                materials = {name: artifact for name, artifact in blockers.items() if artifact}
                is_last = self.state.fixing.review_fixes == self.prepared.limits.review_fixes
                await self.steps.run_fix(Step.FIX_REVIEW, materials, is_last=is_last)
            if self.is_selected(Phase.TEST):
                await self.test_until_green()
            self.enter_phase(Phase.REVIEW)
        return None

    async def open_pull_request(self) -> None:
        """Open exactly one pull request, for a tree tested green and free of blockers, or as a draft that says what is
        missing, once a person agrees where one is asked. Set the status to DELIVERED, DRAFT, or COMPLETED when only the
        branch was pushed. Raises DeliveryStopped for a secret, for blockers when no review is selected (after a draft
        was opened, when that is configured), when nobody decides in time, and when the forge refuses."""
        self.enter_phase(Phase.SHIP)
        inspection = await self.steps.inspect_change()
        if inspection.blockers and not self.is_selected(Phase.REVIEW):
            return await self._end_with_failure(Reason.BLOCKERS, inspection.summary)
        await self.ensure_publishable()
        await self.steps.open_pull_request("; ".join(self._draft_reasons()))
        if self.state.publishing.pull_request is None:
            self.state.status = Status.COMPLETED  # only the branch is pushed: the message says so
        else:
            self.state.status = Status.DRAFT if self.state.publishing.pull_request.draft else Status.DELIVERED
        return None

    async def land_change(self) -> None:
        """Land the change as one commit on the backlog's branch, tested exactly as it lands; fix what stands in its
        way, and try again; then set status COMPLETED.

        Raises DeliveryStopped when the change is not tested, not reviewed or red, holds a secret, or cannot be made to
        land.
        """
        self.enter_phase(Phase.LAND)
        if reasons := "; ".join(self._draft_reasons()):
            raise not_delivered(Reason.TESTS_RED, f"this cannot land: {reasons}")
        await self.ensure_publishable()
        while not await self.landing.try_landing():
            await self.make_landable()
        self.state.status = Status.COMPLETED

    async def make_landable(self) -> None:
        """Fix what could not land, then test and review it again: LANDING_FIXES times without asking, and as many more
        each time a person says so. Raises DeliveryStopped when a person rejects that, or nobody is asked."""
        if reason := await self.landing.ask_to_go_on():
            raise not_delivered(Reason.LIMITS, reason)
        await self.landing.fix_landing()
        if self.is_selected(Phase.TEST):
            await self.test_until_green()
        if self.is_selected(Phase.REVIEW):
            await self.review_until_clean()
        self.enter_phase(Phase.LAND)
        await self.ensure_publishable()

    async def ensure_publishable(self) -> None:
        """Check that the change holds no secret, and ask a person whether it may be published, when configured; fix
        what they reject by their note, until they agree. Raises DeliveryStopped for a secret, or when nobody decides in
        time."""
        await self._refuse_secrets()
        while note := await self.steps.ask_gate(Gate.PULL_REQUEST):
            await self.fix_rejected(note)
            await self._refuse_secrets()

    async def fix_rejected(self, note: str) -> None:
        """Have an agent fix what a person does not want published, as their note says, then test and review it again,
        as far as these phases are selected. Raises DeliveryStopped when tests stay red or blockers remain."""
        await self.steps.fix_rejected(note)
        if self.is_selected(Phase.TEST):
            await self.test_until_green()
        if self.is_selected(Phase.REVIEW):
            await self.review_until_clean()
        self.enter_phase(Phase.SHIP)

    async def hand_over_branch(self) -> None:
        """Complete a delivery without a pull request. When the request asks for it and there are new commits, push them
        to the branch they started from, once a person agrees where one is asked. Raises DeliveryStopped for a secret,
        when nobody decides in time, or when the push is refused."""
        if self.request.push and self.state.building.head not in ("", self.prepared.head):
            self.enter_phase(Phase.SHIP)
            await self.ensure_publishable()
            await self.steps.push_branch()
        self.state.status = Status.COMPLETED

    async def announce_wait(self, pending: PendingDecision | None) -> None:
        """Tell the issue, the backlog and the delivery that this is an attempt for, as far as there are any, what a
        person has to decide here; None: it is decided."""
        summary, gate = (pending.summary, pending.gate) if pending is not None else ("", "")
        await self.forge.tell_issue(summary, gate)
        await self.landing.tell_backlog(pending)
        await self.attempts.tell_plan_delivery(pending)

    async def tell_conflicts(self, conflicts: dict[str, str]) -> None:
        """Tell the backlog, if any, which open deliveries a new commit would conflict with."""
        await self.landing.tell_conflicts(conflicts)

    def _draft_reasons(self) -> list[str]:
        """Return why the change can only be a draft or not land; empty: nothing speaks against it."""
        return draft_reasons(
            self.state.testing.verdict,
            self.state.reviewing.result.status,
            allow_untested=self.prepared.publishing.allow_untested,
            is_accepted=red_tests_approval(self.state) is not None,
        )

    async def _refuse_secrets(self) -> None:
        """Raise DeliveryStopped when the change holds a secret; else do nothing. What was pushed is no secret any more,
        so not even a draft may hold one."""
        inspection = await self.steps.inspect_change()
        if inspection.secrets:
            raise not_delivered(Reason.BLOCKERS, f"nothing was pushed: {inspection.summary}")

    def enter_phase(self, phase: Phase) -> None:
        """Begin a phase and show it. When this run's history has grown long, continue in a new run instead, with the
        state, which ends this one. Raises CancelledError when the delivery was cancelled."""
        raise_if_cancelled()  # a new run would not know of it
        if workflow.info().is_continue_as_new_suggested():
            state = self.runner.state_for_next_run().model_dump(mode="json", exclude_defaults=True)
            resume = ResumePoint(run_id=workflow.info().run_id, state=state, continued=True)
            request = self.request.model_copy(update={"resume": resume})
            workflow.continue_as_new(request.model_dump(mode="json", exclude_defaults=True))
        self.runner.enter_phase(phase)

    def is_selected(self, phase: Phase) -> bool:
        """Return whether the request selects a phase."""
        return phase in self.prepared.phases

    async def _end_with_failure(self, reason: Reason, message: str) -> None:
        """End a delivery whose tests stay red or whose blockers remain: open a draft with the report when `on_failure`
        says so, the ship phase is selected and it does not land on a backlog's branch. Always raises DeliveryStopped:
        with status DRAFT then, else NOT_DELIVERED.

        Before a draft, the change is checked for secrets and a person agrees, where one is asked; a rejection ends it
        as not delivered.
        """
        if (
            self.prepared.publishing.on_failure == "draft"
            and self.is_selected(Phase.SHIP)
            and not self.prepared.publishing.landing
        ):
            self.enter_phase(Phase.SHIP)
            await self._refuse_secrets()
            if note := await self.steps.ask_gate(Gate.PULL_REQUEST):
                raise not_delivered(reason, f"{message}; rejected: {note}")
            await self.steps.open_pull_request(message)
            raise DeliveryStopped(Status.DRAFT, reason, message)
        raise not_delivered(reason, message)

    async def _end_refused(self, error: ApplicationError, *, notifies: bool) -> NoReturn:
        """Show that and why the request was refused, send the last notice where somebody wants to hear of it, and raise
        the error."""
        workflow.set_current_details(render_refused(error.message))
        info = workflow.info()
        if notifies:
            result = result_of(self.state, self.request, info.workflow_id, info.run_id)
            await self.runner.notices.send_end_notice(result, notifies=True)
        raise error

    async def _end_delivery(self) -> DeliveryResult:
        """Tidy up, write the receipt, update the issue's comment, give back reserved money, send the last notice, tell
        the backlog, and end the workflow the way the delivery ended.

        Returns the result of a success. Otherwise the state for a retry is kept in the memo, and ApplicationError
        NotDelivered or CancelledError is raised.
        """
        state, info = self.state, workflow.info()
        await self.forge.update_issue_comment(info.workflow_id)
        closed = await self.runner.close_delivery(keep=state.status not in SUCCESSES)
        usage_before = state.spending.usage
        fold.apply_close(state, closed)
        await self.runner.allowance.release()
        self.runner.show_state()
        if state.status not in SUCCESSES:
            state_left = (
                self.runner.state_for_next_run().for_retry(usage_before).model_dump(mode="json", exclude_defaults=True)
            )
            resume = ResumePoint(run_id=info.run_id, state=state_left)
            workflow.upsert_memo({"resume": resume.model_dump(mode="json")})
        result = result_of(state, self.request, info.workflow_id, info.run_id)
        await self.runner.notices.send_end_notice(result, notifies=closed.notifies)
        await self.landing.tell_end(result)
        if state.status is Status.CANCELLED:
            raise asyncio.CancelledError
        if state.status in SUCCESSES:
            return result
        message = state.message or str(state.status)
        raise ApplicationError(message, result.model_dump(mode="json"), type="NotDelivered", non_retryable=True)

    @workflow.query(description="Where the delivery stands: perdure.models.delivery.state.Progress")
    def progress(self) -> Progress:
        info = workflow.info()
        return progress_of(self.state, self.request, info.workflow_id, info.run_id, workflow.now())
