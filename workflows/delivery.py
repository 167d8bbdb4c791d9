"""One request becomes one pull request. `deliver` is the whole business process; read it first."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from perdure.models.errors import InvalidRequest
from perdure.models.fixing import hopeless, needs_a_fix
from perdure.models.ids import delivery_key
from perdure.models.phases import ALL_PHASES, Phase, Step, why_not
from perdure.models.report import Severity
from perdure.models.request import DeliveryRequest, ResumePoint, parse_request
from perdure.models.result import SUCCESSES, DeliveryResult, Reason, ReviewResult, ReviewStatus, Status, TestsStatus
from perdure.models.state import DeliveryState, Progress, parse_resume
from perdure.models.summary import progress_of, result_of
from perdure.models.work import (
    CommitInput,
    Committed,
    Prepared,
    PrepareInput,
    ShipInput,
    TestInput,
    TestVerdict,
)
from workflows.endings import CANNOT_TELL, Stopped, doubts, invalid, not_delivered
from workflows.publishing import Publishing
from workflows.stage import Stage, heed_cancellation


@workflow.defn
class Delivery:
    """Takes a DeliveryRequest as JSON, returns a DeliveryResult; see docs/phases.md."""

    def __init__(self) -> None:
        self.request = DeliveryRequest.model_construct(repository="", request="")
        self.state = DeliveryState()

    @workflow.run
    async def run(self, raw: Any = None) -> DeliveryResult:
        """Accept the request, deliver it, and end in one of the ways a delivery can end."""
        self.request, self.state = self._accept(raw)
        self.stage = Stage(delivery_key(workflow.info().workflow_id), self.request, self.state)
        resume = self.request.resume
        self.forge = Publishing(self.stage, begun=resume is not None and resume.continued)
        try:
            await self.deliver()
        except Stopped as stop:
            self.state.status, self.state.reason, self.state.message = stop.status, stop.reason, stop.message
        except asyncio.CancelledError:
            self.state.status = Status.CANCELLED
        except ApplicationError:
            await self.stage.close(keep=False)  # the request was wrong after all: nothing is left behind
            raise
        return await self._end()

    async def deliver(self) -> None:
        """The business process, in order. Each line is safe to reach again: what is done is not done twice."""
        await self.prepare()
        if self.selected(Phase.PLAN):
            await self.classify()
            await self.plan()
        if self.selected(Phase.BUILD):
            await self.implement()
        if self.selected(Phase.TEST):
            await self.test_until_green()
        if self.selected(Phase.REVIEW):
            await self.review_until_clean()
        if self.selected(Phase.SHIP):
            await self.open_pull_request()
        else:
            self.state.status = Status.COMPLETED

    async def prepare(self) -> None:
        """Before a cent is spent: a workspace, setup and preflight behind it; a forge that would take the result."""
        previous = self.state.prepared
        if previous is not None and self.request.resume and self.request.resume.continued:
            self.prepared = previous
            return
        work = PrepareInput(
            delivery=self.stage.delivery,
            request=self.request.model_copy(update={"resume": None}),
            previous=previous,
            checkpoint=self.state.checkpoint,
        )
        self.stage.enter(None)
        self.prepared = await self.stage.once(Step.PREPARE, work, Prepared, queue="perdure")
        self.state.begin(self.prepared)
        self.state.head = self.state.head or (self.prepared.head if self.request.branch else "")
        if self.selected(Phase.SHIP):
            await self.forge.check_access()
            await self.forge.tell(workflow.info().workflow_id)

    async def classify(self) -> None:
        """Bug, feature or chore: anything else is an error, not a guess."""
        self.enter(Phase.PLAN)
        if not self.state.kind:
            outcome = await self.stage.turns(Step.CLASSIFY, 1, {})
            self.state.kind = str(outcome.data.get("kind", ""))

    async def plan(self) -> None:
        """Fixed sections, kept as an artifact; a plan that came with the request is used as it is."""
        if not self.state.plan:
            outcome = await self.stage.turns(Step.PLAN, 1, self._materials())
            self.state.plan = outcome.artifact
            self.state.title = str(outcome.data.get("title", ""))

    async def implement(self) -> None:
        """Build what was planned, and commit it; a delivery that changes nothing ends here."""
        self.enter(Phase.BUILD)
        if self.state.built:
            return
        outcome = await self.stage.turns(Step.IMPLEMENT, 1, self._materials())
        if not await self.commit(Step.IMPLEMENT, 1, outcome.summary):
            raise Stopped(Status.NO_CHANGES, None, "the agent changed nothing: " + outcome.summary)
        self.state.built = True

    async def test_until_green(self) -> None:
        """The repository's own tests decide; each fix sees the last failure and is tested again, while that helps."""
        self.enter(Phase.TEST)
        left: list[TestVerdict] = []  # by each attempt here; first, what there was before any
        while needs_a_fix(verdict := await self.run_tests()):
            if words := hopeless(left, verdict, self.state.test_fixes, self.prepared.test_fixes):
                return await self._undeliverable(Reason.TESTS_RED, words)
            left.append(verdict)
            self.state.test_fixes += 1
            await self.fix(Step.FIX_TESTS, self.state.test_fixes, {"report": verdict.report})
        if verdict.undecidable and not self.selected(Phase.SHIP):
            raise not_delivered(Reason.TESTS_RED, f"{CANNOT_TELL}: {verdict.summary}")  # no draft could say so
        return None

    async def review_until_clean(self) -> None:
        """Only blockers block; every fix is tested before it is reviewed again."""
        self.enter(Phase.REVIEW)
        while (await self.review()).blockers:
            if self.state.review_fixes >= self.prepared.review_fixes:
                words = f"blockers remain after {self.state.review_fixes} fixes"
                return await self._undeliverable(Reason.BLOCKERS, words)
            self.state.review_fixes += 1
            await self.fix(Step.FIX_REVIEW, self.state.review_fixes, {"review": self.state.review})
            if self.selected(Phase.TEST):
                await self.test_until_green()
            self.enter(Phase.REVIEW)
        return None

    async def open_pull_request(self) -> None:
        """Exactly one: for a tree tested green and free of blockers, or as a draft that says what is missing."""
        self.enter(Phase.SHIP)
        await self._ship("; ".join(doubts(self.state, self.prepared)))
        if self.state.pull_request is None:
            self.state.status = Status.COMPLETED  # pushed, where no forge is spoken to yet: the message says so
        else:
            self.state.status = Status.DRAFT if self.state.pull_request.draft else Status.DELIVERED

    async def run_tests(self) -> TestVerdict:
        attempt = self.state.test_runs + 1
        work = TestInput(
            delivery=self.stage.delivery,
            policy=self.prepared.policy,
            commit=self.state.head,
            attempt=attempt,
            baseline=self.prepared.baseline,
        )
        verdict = await self.stage.once(Step.RUN_TESTS, work, TestVerdict, attempt=attempt)
        self.state.tests, self.state.test_runs = verdict, attempt
        if verdict.status is TestsStatus.RED:
            self.stage.fail()
        return verdict

    async def review(self) -> ReviewResult:
        attempt = self.state.reviews + 1
        materials = self._materials() | {"base": self.prepared.base_sha, "head": self.state.head}
        outcome = await self.stage.turns(Step.REVIEW, attempt, materials)
        blockers = int(outcome.data.get(Severity.BLOCKER, 0))
        self.state.review, self.state.reviews = outcome.artifact, attempt
        self.state.review_result = ReviewResult(
            status=ReviewStatus.BLOCKED if blockers else ReviewStatus.CLEAN,
            blockers=blockers,
            tech_debt=int(outcome.data.get(Severity.TECH_DEBT, 0)),
            skippable=int(outcome.data.get(Severity.SKIPPABLE, 0)),
        )
        if blockers:
            self.stage.fail()
        return self.state.review_result

    async def fix(self, step: Step, attempt: int, found: dict[str, str]) -> None:
        """One fresh conversation about one finding, and a commit of its own."""
        materials = self._materials() | {"base": self.prepared.base_sha, "head": self.state.head} | found
        outcome = await self.stage.turns(step, attempt, materials)
        await self.commit(step, attempt, outcome.summary)

    async def commit(self, step: Step, attempt: int, summary: str) -> bool:
        """Whether there was anything to commit."""
        subject = self.state.title if step is Step.IMPLEMENT and self.state.title else summary
        work = CommitInput(
            delivery=self.stage.delivery,
            policy=self.prepared.policy,
            step=step,
            attempt=attempt,
            checkpoint=self.state.checkpoint,
            parent=self.state.head or self.prepared.head,
            subject=subject,
            kind=self.state.kind,
        )
        made = await self.stage.once(Step.COMMIT, work, Committed, attempt=attempt)
        if not made.commit:
            return False
        self.state.head = made.commit
        self.stage.committed(made.commit, made.summary)
        return True

    def enter(self, phase: Phase) -> None:
        """A phase begins; in a new run when this one's history has grown long. The state is all that goes along."""
        heed_cancellation()  # a new run would not know of it
        if workflow.info().is_continue_as_new_suggested():
            state = self.state.model_dump(mode="json", exclude_defaults=True)
            resume = ResumePoint(run_id=workflow.info().run_id, state=state, continued=True)
            request = self.request.model_copy(update={"resume": resume})
            workflow.continue_as_new(request.model_dump(mode="json", exclude_defaults=True))
        self.stage.enter(phase)

    def selected(self, phase: Phase) -> bool:
        return phase in self.prepared.phases

    async def _undeliverable(self, reason: Reason, message: str) -> None:
        """Red tests or blockers that remain: no pull request, or a draft with the report where that is asked for."""
        if self.prepared.on_failure == "draft" and self.selected(Phase.SHIP):
            self.enter(Phase.SHIP)
            await self._ship(message)
            raise Stopped(Status.DRAFT, reason, message)
        raise not_delivered(reason, message)

    async def _ship(self, doubt: str) -> None:
        state, prepared = self.state, self.prepared
        report = state.tests.report if state.tests else ""
        links = await self.forge.show_artifacts(state.plan, report, state.review)
        work = ShipInput(
            delivery=self.stage.delivery,
            policy=prepared.policy,
            workflow_id=workflow.info().workflow_id,
            base=prepared.base,
            branch=prepared.branch,
            head=state.head,
            title=state.title or prepared.title or " ".join(self.request.request.split())[:60],
            kind=state.kind,
            draft=prepared.draft or bool(doubt),
            draft_reason=doubt,
            plan=state.plan,
            tests=state.tests,
            review=state.review,
            review_result=state.review_result,
            spend=state.spend,
            artifacts=links,
        )
        shipped = await self.forge.open_pull_request(work)
        state.pull_request, state.message = shipped.pull_request, shipped.message

    def _materials(self) -> dict[str, str]:
        """What every agentic step is told about the ones before it."""
        return {name: value for name, value in (("kind", self.state.kind), ("plan", self.state.plan)) if value}

    def _accept(self, raw: Any) -> tuple[DeliveryRequest, DeliveryState]:
        """The request and the state it begins from; a bad one fails the workflow at once and names the field."""
        try:
            request = parse_request(raw)
            state = parse_resume(request.resume) if request.resume else DeliveryState()
        except InvalidRequest as error:
            raise invalid(error.what) from None
        phases = request.phases if request.phases is not None else ALL_PHASES
        if problem := why_not(phases, request.branch):
            raise invalid(f"phases: {problem}")
        return request, state

    async def _end(self) -> DeliveryResult:
        """Tidy up, write the receipt, and end the workflow the way the delivery ended."""
        state, info = self.state, workflow.info()
        await self.forge.tell(info.workflow_id)
        closed = await self.stage.close(keep=state.status not in SUCCESSES)
        state.receipt, state.spend = closed.receipt, closed.spend
        self.stage.show()
        if state.status not in SUCCESSES:
            left = state.again().model_dump(mode="json", exclude_defaults=True)
            resume = ResumePoint(run_id=info.run_id, state=left)
            workflow.upsert_memo({"resume": resume.model_dump(mode="json")})
        if state.status is Status.CANCELLED:
            raise asyncio.CancelledError
        result = result_of(state, self.request, info.workflow_id, info.run_id)
        if state.status in SUCCESSES:
            return result
        words = state.message or str(state.status)
        raise ApplicationError(words, result.model_dump(mode="json"), type="NotDelivered", non_retryable=True)

    @workflow.query(description="Where the delivery stands: perdure.models.state.Progress")
    def progress(self) -> Progress:
        info = workflow.info()
        return progress_of(self.state, self.request, info.workflow_id, info.run_id)
