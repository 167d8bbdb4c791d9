"""One request becomes one pull request. `deliver` is the whole business process; read it first."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from perdure.models import fold
from perdure.models.decisions import Gate
from perdure.models.ids import delivery_key
from perdure.models.phases import Phase, Step
from perdure.models.request import DeliveryRequest, ResumePoint
from perdure.models.result import SUCCESSES, DeliveryResult, Reason, Status, TestsStatus
from perdure.models.rules.fixing import given_up, hopeless
from perdure.models.rules.gates import CANNOT_TELL
from perdure.models.state import DeliveryState, Progress
from perdure.models.summary import progress_of, result_of
from perdure.models.webui.details import refused
from perdure.models.work import TestVerdict
from workflows.attempts import Attempts
from workflows.endings import Stopped, accepted, doubts, heed_cancellation, not_delivered
from workflows.inbox import TakesMessages
from workflows.landing import Landing
from workflows.publishing import Publishing
from workflows.stage import Stage
from workflows.steps import Steps


@workflow.defn
class Delivery(TakesMessages):
    """Takes a DeliveryRequest as JSON, returns a DeliveryResult; see docs/phases.md."""

    @workflow.init
    def __init__(self, raw: Any = None, *more: Any) -> None:
        """Before any message is taken: what people send at once, or before a worker runs, is meant for this state."""
        self.request, self.state = DeliveryRequest.model_construct(repository="", request=""), DeliveryState()
        self._refused: ApplicationError | None = None
        try:
            self.request, self.state = accepted(raw, more)
        except ApplicationError as error:
            self._refused = error
        self.stage = Stage(delivery_key(workflow.info().workflow_id), self.request, self.state)
        resume = self.request.resume
        self.forge = Publishing(self.stage, begun=resume is not None and resume.continued)
        self.steps = Steps(self.stage, self.forge)
        self.landing = Landing(self.stage, self.forge, self.steps)
        self.attempts = Attempts(self.stage, self.steps, self.landing.tell_words if self.request.landing else None)

    @workflow.run
    async def run(self, raw: Any = None, *more: Any) -> DeliveryResult:
        """Accept the request, deliver it, and end in one of the ways a delivery can end."""
        if self._refused is not None:
            workflow.set_current_details(refused(self._refused.message))
            raise self._refused
        try:
            await self.deliver()
        except Stopped as stop:
            self.state.status, self.state.reason, self.state.message = stop.status, stop.reason, stop.message
        except asyncio.CancelledError:
            self.state.status = Status.CANCELLED
        except ApplicationError as error:
            await self.stage.close(keep=False)  # the request was wrong after all: nothing is left behind
            workflow.set_current_details(refused(error.message))
            raise
        return await self._end()

    async def deliver(self) -> None:
        """The business process, in order. Each line is safe to reach again: what is done is not done twice."""
        await self.prepare()
        if self.landing.decomposes:
            self.enter(Phase.PLAN)
            return await self.landing.decompose()
        if self.selected(Phase.PLAN):
            await self.plan()
        if self.selected(Phase.BUILD):
            await self.build()
        if self.selected(Phase.TEST):
            await self.test_until_green()
        if self.selected(Phase.REVIEW):
            await self.review_until_clean()
        if self.prepared.landing:
            await self.land()
        elif self.selected(Phase.SHIP):
            await self.open_pull_request()
        else:
            await self.hand_over()
        return None

    async def prepare(self) -> None:
        """Before a cent is spent: a workspace, setup and preflight behind it; a forge that would take the result."""
        previous = self.state.prepared
        if previous is not None and self.request.resume and self.request.resume.continued:
            self.prepared = previous
            return
        self.stage.enter(None)
        self.prepared = await self.steps.prepare()
        await self.landing.room()

    async def plan(self) -> None:
        """Bug, feature or chore; then a plan, unless one came with the request; again until a person agrees."""
        self.enter(Phase.PLAN)
        if not self.state.kind:
            await self.steps.classify()
        if not self.state.plan:
            await self.steps.plan()
        while not self.state.built and (words := await self.steps.decision(Gate.PLAN)):
            await self.steps.plan(words)
        await self.landing.planned()

    async def build(self) -> None:
        """Build what was planned, and commit it; a delivery that changes nothing ends here."""
        self.enter(Phase.BUILD)
        if not self.state.built:
            if await self.attempts.build():
                await self.attempts.commit()
            elif (left := await self.steps.specialists.build()) is not None:
                outcome = await self.steps.implement(left)
                if not await self.steps.commit(Step.IMPLEMENT, 1, outcome.summary) and not self.steps.specialists.built:
                    raise Stopped(Status.NO_CHANGES, None, "the agent changed nothing: " + outcome.summary)
            self.state.built = True
        if self.state.conflicts:  # it goes on in the middle of a landing
            await self.landing.mend()
        if self.prepared.document and not self.state.documented:
            await self.steps.document()
            self.state.documented = True

    async def test_until_green(self) -> None:
        """The repository's own tests decide; each fix sees the last failure and is tested again, while that helps."""
        self.enter(Phase.TEST)
        left: list[TestVerdict] = []  # by each attempt here; first, what there was before any
        while (verdict := await self.steps.run_tests()).status is TestsStatus.RED:
            if verdict.undecidable:
                if not (words := await self.told_apart(verdict)):
                    break
                await self.steps.fix_tests(verdict, words)
            elif words := hopeless(left, verdict, self.state.test_fixes, self.prepared.test_fixes):
                if not await self.another(words):
                    return await self._undeliverable(Reason.TAMPERED if verdict.tampered else Reason.TESTS_RED, words)
                left.clear()
            else:
                left.append(verdict)
                self.state.test_fixes += 1
                await self.steps.fix_tests(verdict, last=self.state.test_fixes == self.prepared.test_fixes)
        return None

    async def another(self, words: str) -> bool:
        """This change has failed: let further attempts at the plan be made, and go on with one that is better."""
        if better := await self.attempts.after_red(words):
            self.enter(Phase.BUILD)
            await self.attempts.commit()
            self.enter(Phase.TEST)
        return better

    async def told_apart(self, verdict: TestVerdict) -> str:
        """Red as the base was, and only exit codes: a person says whether that is new, and with which words it is to
        be mended; otherwise it is published as it is, as a draft where nobody was asked or decided."""
        if not self.selected(Phase.SHIP):
            raise not_delivered(Reason.TESTS_RED, f"{CANNOT_TELL}: {verdict.summary}")  # no draft could say so
        return await self.steps.decision(Gate.TESTS)

    async def review_until_clean(self) -> None:
        """Only blockers block; every fix is tested before it is reviewed again."""
        self.enter(Phase.REVIEW)
        while (await self.steps.review()).blockers:
            if words := given_up(self.state.review_fixes, self.prepared.review_fixes):
                if not await self.another(words):
                    return await self._undeliverable(Reason.BLOCKERS, words)
            else:
                self.state.review_fixes += 1
                blockers = {"review": self.state.review, "findings": self.state.findings}
                told = {name: artifact for name, artifact in blockers.items() if artifact}
                last = self.state.review_fixes == self.prepared.review_fixes
                await self.steps.fix(Step.FIX_REVIEW, told, last=last)
            if self.selected(Phase.TEST):
                await self.test_until_green()
            self.enter(Phase.REVIEW)
        return None

    async def open_pull_request(self) -> None:
        """Exactly one: for a tree tested green and free of blockers, or as a draft that says what is missing."""
        self.enter(Phase.SHIP)
        found = await self.steps.inspect()
        if found.blockers and not self.selected(Phase.REVIEW):
            return await self._undeliverable(Reason.BLOCKERS, found.summary)
        await self.publishable()
        await self.steps.ship("; ".join(doubts(self.state, self.prepared)))
        if self.state.pull_request is None:
            self.state.status = Status.COMPLETED  # pushed, where no forge is spoken to yet: the message says so
        else:
            self.state.status = Status.DRAFT if self.state.pull_request.draft else Status.DELIVERED
        return None

    async def land(self) -> None:
        """One commit of the backlog's branch, tested exactly as it lands; what stands in its way is its own to mend."""
        self.enter(Phase.LAND)
        if words := "; ".join(doubts(self.state, self.prepared)):
            raise not_delivered(Reason.TESTS_RED, f"this cannot land: {words}")
        await self.publishable()
        while not await self.landing.landed():
            await self.make_landable()
        self.state.status = Status.COMPLETED

    async def make_landable(self) -> None:
        """Twice by itself, and twice more each time a person says so; and through all checks again."""
        if words := await self.landing.given_up():
            raise not_delivered(Reason.LIMITS, words)
        await self.landing.mend()
        if self.selected(Phase.TEST):
            await self.test_until_green()
        if self.selected(Phase.REVIEW):
            await self.review_until_clean()
        self.enter(Phase.LAND)
        await self.publishable()

    async def publishable(self) -> None:
        """Nothing secret is in it, and a person agrees, where that was asked for; what they say is mended first."""
        await self._without_secrets()
        while words := await self.steps.decision(Gate.PULL_REQUEST):
            await self.mend(words)
            await self._without_secrets()

    async def mend(self, words: str) -> None:
        """Send back with a person's words what they do not want published as it is, through all checks again."""
        await self.steps.mend(words)
        if self.selected(Phase.TEST):
            await self.test_until_green()
        if self.selected(Phase.REVIEW):
            await self.review_until_clean()
        self.enter(Phase.SHIP)

    async def hand_over(self) -> None:
        """The phases asked for are done; new commits go where the branch came from, if that was asked for."""
        if self.request.push and self.state.head not in ("", self.prepared.head):
            self.enter(Phase.SHIP)
            await self.publishable()
            await self.steps.push()
        self.state.status = Status.COMPLETED

    async def _without_secrets(self) -> None:
        """A secret that was pushed is no secret any more: not even a draft may hold one."""
        found = await self.steps.inspect()
        if found.secrets:
            raise not_delivered(Reason.BLOCKERS, f"nothing was pushed: {found.summary}")

    def enter(self, phase: Phase) -> None:
        """A phase begins; in a new run when this one's history has grown long. The state is all that goes along."""
        heed_cancellation()  # a new run would not know of it
        if workflow.info().is_continue_as_new_suggested():
            state = self.stage.left_behind().model_dump(mode="json", exclude_defaults=True)
            resume = ResumePoint(run_id=workflow.info().run_id, state=state, continued=True)
            request = self.request.model_copy(update={"resume": resume})
            workflow.continue_as_new(request.model_dump(mode="json", exclude_defaults=True))
        self.stage.enter(phase)

    def selected(self, phase: Phase) -> bool:
        return phase in self.prepared.phases

    async def _undeliverable(self, reason: Reason, message: str) -> None:
        """Red tests or blockers that remain: no pull request, or a draft with the report where that is asked for."""
        if self.prepared.on_failure == "draft" and self.selected(Phase.SHIP) and not self.prepared.landing:
            self.enter(Phase.SHIP)
            await self._without_secrets()
            if words := await self.steps.decision(Gate.PULL_REQUEST):
                raise not_delivered(reason, f"{message}; rejected: {words}")
            await self.steps.ship(message)
            raise Stopped(Status.DRAFT, reason, message)
        raise not_delivered(reason, message)

    async def _end(self) -> DeliveryResult:
        """Tidy up, write the receipt, and end the workflow the way the delivery ended."""
        state, info = self.state, workflow.info()
        await self.forge.tell(info.workflow_id)
        closed = await self.stage.close(keep=state.status not in SUCCESSES)
        booked = state.usage
        fold.closed(state, closed)
        await self.stage.allowance.give_back()
        self.stage.show()
        if state.status not in SUCCESSES:
            left = self.stage.left_behind().again(booked).model_dump(mode="json", exclude_defaults=True)
            resume = ResumePoint(run_id=info.run_id, state=left)
            workflow.upsert_memo({"resume": resume.model_dump(mode="json")})
        result = result_of(state, self.request, info.workflow_id, info.run_id)
        await self.stage.notices.ended(result, notifies=closed.notifies)
        await self.landing.ended(result)
        if state.status is Status.CANCELLED:
            raise asyncio.CancelledError
        if state.status in SUCCESSES:
            return result
        words = state.message or str(state.status)
        raise ApplicationError(words, result.model_dump(mode="json"), type="NotDelivered", non_retryable=True)

    @workflow.query(description="Where the delivery stands: perdure.models.state.Progress")
    def progress(self) -> Progress:
        info = workflow.info()
        return progress_of(self.state, self.request, info.workflow_id, info.run_id, workflow.now())
