"""The steps of the process: what each is given, and what of its result the delivery keeps. Nothing is decided here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow

from perdure.models import fold
from perdure.models.decisions import CheckedPlan, CheckPlanInput, Decided, Gate, Said, Verdict
from perdure.models.limits import NOTES_KEPT
from perdure.models.phases import Phase, Step
from perdure.models.publishing import Captured, CaptureInput, PushInput, ShipInput
from perdure.models.request import DeliveryRequest
from perdure.models.result import Reason, ReviewResult
from perdure.models.rules import fixing
from perdure.models.rules.gates import accepted, put
from perdure.models.state import DeliveryState
from perdure.models.turn import Outcome
from perdure.models.work import (
    CommitInput,
    Committed,
    Inspected,
    InspectInput,
    Prepared,
    PrepareInput,
    TestInput,
    TestVerdict,
)
from workflows.endings import Stopped, not_delivered
from workflows.publishing import Publishing
from workflows.specialists import Specialists
from workflows.stage import Stage


class Steps:
    """One delivery's steps; `prepare` comes first. `foresees`: hears of conflicts with other open deliveries;
    `reviewed_before`: the commit whose review is bought and stands."""

    def __init__(self, stage: Stage, forge: Publishing) -> None:
        self._stage, self._forge, self.specialists = stage, forge, Specialists(stage)
        self.foresees: Callable[[dict[str, str]], Awaitable[None]] | None = None
        self.reviewed_before, self._tested_before = stage.state.reviewed, stage.state.tests

    @property
    def _request(self) -> DeliveryRequest:
        return self._stage.request

    @property
    def _state(self) -> DeliveryState:
        return self._stage.state

    @property
    def _prepared(self) -> Prepared:
        assert self._state.prepared is not None
        return self._state.prepared

    async def prepare(self) -> Prepared:
        """A workspace, setup and preflight behind it; a forge that would take the result."""
        work = PrepareInput(
            delivery=self._stage.delivery,
            request=self._request.model_copy(update={"resume": None}),
            previous=self._state.prepared,
            checkpoint=self._state.checkpoint,
        )
        prepared = await self._stage.once(Step.PREPARE, work, Prepared, queue=self._request.host)
        fold.prepared(self._state, prepared, branch=bool(self._request.branch))
        if Phase.SHIP in prepared.phases or self._request.push:
            await self._forge.check_access()
        if Phase.SHIP in prepared.phases:
            await self._forge.tell(workflow.info().workflow_id)
        return prepared

    async def classify(self) -> None:
        fold.ended(self._state, Step.CLASSIFY, 1, await self._stage.turns(Step.CLASSIFY, 1, {}))

    async def plan(self, words: str = "", step: Step = Step.PLAN) -> None:
        """A plan, or items; with `words`, another one than the person who said them had before them."""
        rejected = {"words": words} if words else {}
        attempt = self._state.plans + 1
        fold.ended(self._state, step, attempt, await self._stage.turns(step, attempt, self._materials() | rejected))
        if words:
            self._state.remember(Said(id=f"plan-{attempt}", text=words))

    async def decision(self, gate: Gate) -> str:
        """Let a person decide, if that was asked for. The words it was rejected with; empty when it goes on.

        Raises Stopped when nobody decided in time.
        """
        state, prepared = self._state, self._prepared
        while gate in prepared.gates:
            of, words, options = put(gate, state)
            after = timedelta(seconds=prepared.gate_expiry_s) if prepared.gate_expiry_s else None
            decided = await self._stage.people.ask(gate, of, words, options, expires_after=after)
            match decided.verdict:
                case Verdict.REJECTED:
                    return decided.note
                case Verdict.EXPIRED if gate is Gate.TESTS:
                    break  # nobody said so, but it can still be a draft
                case Verdict.EXPIRED:
                    reason = Reason.PLAN_REJECTED if gate in (Gate.PLAN, Gate.ITEMS) else Reason.LIMITS
                    raise not_delivered(reason, f"nobody decided in time: {words}")
                case Verdict.EDITED:
                    await self._take_plan(decided, items=gate is Gate.ITEMS)
                case _:
                    break
        return ""

    async def check_plan(self, plan: str, what: str, *, items: bool = False) -> CheckedPlan:
        work = CheckPlanInput(delivery=self._stage.delivery, plan=plan, items=items)
        return await self._stage.aside("check_plan", work, CheckedPlan, what)

    async def _take_plan(self, edited: Decided, *, items: bool) -> None:
        """An edited plan takes the place of the one that waits, if it can be worked by; and is put for approval."""
        state, checked = self._state, CheckedPlan()
        if self._prepared.checks_plans:
            checked = await self.check_plan(edited.artifact, "the edited plan", items=items)
        if checked.problem:
            note = f"the edited plan {edited.artifact[:8]} was not taken: {checked.problem}"[:300]
            state.notes = (*state.notes, note)[-NOTES_KEPT:]
        fold.edited(state, edited.artifact, checked, edited.note)
        state.edits += 1

    async def implement(self, left: dict[str, str]) -> Outcome:
        return await self._stage.turns(Step.IMPLEMENT, 1, self._materials() | left)

    async def document(self) -> None:
        """The documentation brought up to date with the change."""
        await self._write(Step.DOCUMENT, 1, {})

    async def _write(self, step: Step, attempt: int, found: dict[str, str], effort: str = "") -> None:
        """One fresh conversation about the change and what was found in it, and a commit of its own."""
        change = self._change() if self._state.head else {}
        outcome = await self._stage.turns(step, attempt, self._materials() | change | found, effort)
        await self.commit(step, attempt, outcome.summary)

    async def fix(self, step: Step, found: dict[str, str], *, last: bool = False) -> None:
        """Likewise, as often as there is something to be mended; each is told of those before it, and the last one that
        is allowed thinks harder. A retry that goes on in the middle of one finds it by its number, whatever counts
        against the limits."""
        state, done = self._state, self._state.fixed.get(step, 0)
        before, effort = state.head or self._prepared.head, self._prepared.efforts.get(step, "") if last else ""
        await self._write(step, done + 1, found | fixing.as_material(state.tries), effort)
        state.tries = fixing.tried(state.tries, step, done + 1, (before, state.head or before), found)
        state.fixed = {**state.fixed, step: done + 1}

    async def fix_tests(self, verdict: TestVerdict, words: str = "", *, last: bool = False) -> None:
        """Mend what failed; with `words`, as the person says who knows it for new."""
        await self.fix(Step.FIX_TESTS, {"report": verdict.report} | ({"words": words} if words else {}), last=last)
        if words:
            self._state.asked_fixes += 1
            self._state.remember(Said(id=f"tests-{self._state.asked_fixes}", text=words))

    async def mend(self, words: str) -> None:
        """Change what is not to be published as it is, as the person says."""
        await self.fix(Step.FIX_REVIEW, {"words": words})
        self._state.mends += 1
        self._state.remember(Said(id=f"publishing-{self._state.mends}", text=words))

    async def commit(self, step: Step, attempt: int, summary: str) -> bool:
        """Commit; False where there was nothing to. The fix that takes a secret out replaces all commits so far."""
        state = self._state
        anew = step is Step.FIX_REVIEW and state.found.secrets > 0
        subject = state.title if (step is Step.IMPLEMENT or anew) and state.title else summary
        work = CommitInput(
            delivery=self._stage.delivery,
            contract=self._prepared.contract,
            step=step,
            attempt=attempt,
            checkpoint=state.checkpoint,
            parent=self._prepared.head if anew else state.head or self._prepared.head,
            subject=subject,
            kind=state.kind,
        )
        made = await self._stage.once(Step.COMMIT, work, Committed, attempt=attempt)
        state.at = state.outcome = None
        if not made.commit:
            return False
        fold.committed(state, made)
        self._stage.committed(made.commit, made.summary)
        if self.foresees is not None:
            with suppress(asyncio.CancelledError):  # the next step heeds it: this one has to be counted first
                await self.foresees(made.conflicts)
        return True

    async def run_tests(self, check: dict[str, tuple[str, ...]] | None = None) -> TestVerdict:
        """The verdict on the newest commit. `check`: what items of its backlog named, when it lands."""
        attempt = self._state.test_runs + 1
        work = TestInput(
            delivery=self._stage.delivery,
            contract=self._prepared.contract,
            commit=self._state.head,
            attempt=attempt,
            baseline=self._prepared.baseline,
            check=check or {},
            item=self._request.landing.item if check and self._request.landing else "",
        )
        verdict = await self._stage.once(Step.RUN_TESTS, work, TestVerdict, attempt=attempt)
        before, self._tested_before = self._tested_before, None
        if before is not None and verdict.same_as(before):
            verdict = before  # what a retry goes on with was begun with this report
        fold.tested(self._state, verdict, attempt)
        self._stage.judge(verdict.summary)
        return verdict

    async def inspect(self) -> Inspected:
        """Let the engine itself look at the change; the same commit is not looked at twice."""
        state = self._state
        if self._prepared.inspects and state.inspected != state.head:
            work = InspectInput(
                delivery=self._stage.delivery,
                contract=self._prepared.contract,
                commit=state.head,
                report=state.tests.report if state.tests else "",
                kind=state.kind,
            )
            found = await self._stage.aside("inspect_change", work, Inspected, "secrets, protected paths, size")
            fold.inspected(state, found, state.head)
        return state.found

    async def capture(self) -> None:
        """Pictures of the application, where they are wanted; without them the delivery goes on all the same."""
        state = self._state
        if not self._prepared.app or state.captured == state.head:
            return
        work = CaptureInput(delivery=self._stage.delivery, contract=self._prepared.contract, commit=state.head)
        try:
            captured = await self._stage.once("capture_pages", work, Captured)
        except Stopped as stop:
            captured = Captured()
            state.notes += (f"no screenshots: {stop.message.partition(chr(10))[0][:200]}",)
        fold.captured(state, captured, state.head)

    async def review(self) -> ReviewResult:
        """Review the change; what the reviewer says and what the engine found are counted together."""
        state, attempt = self._state, self._state.reviews + 1
        before, self.reviewed_before = self.reviewed_before, ""
        if before and before == state.head:  # the run before has bought it: a retry goes on with that
            return state.review_result
        found = await self.inspect()
        await self.capture()
        seen = {"report": state.tests.report if state.tests else "", "screenshots": state.screenshots}
        told = {name: value for name, value in (seen | {"findings": found.findings}).items() if value}
        outcome = await self._stage.turns(Step.REVIEW, attempt, self._materials() | self._change() | told)
        fold.ended(state, Step.REVIEW, attempt, outcome)
        self._stage.judge(outcome.summary)
        return state.review_result

    async def push(self) -> None:
        """The branch as it is, where it came from; no pull request."""
        work = PushInput(
            delivery=self._stage.delivery,
            contract=self._prepared.contract,
            workflow_id=workflow.info().workflow_id,
            branch=self._prepared.branch,
            head=self._state.head,
            tests=self._state.tests,
        )
        self._state.message = (await self._forge.push_branch(work)).summary

    async def ship(self, doubt: str) -> None:
        """Exactly one pull request; a draft where there is a doubt."""
        state, prepared = self._state, self._prepared
        await self.capture()
        report = state.tests.report if state.tests else ""
        links = await self._forge.show_artifacts(state.plan, report, state.review, state.findings, state.screenshots)
        work = ShipInput(
            delivery=self._stage.delivery,
            contract=prepared.contract,
            workflow_id=workflow.info().workflow_id,
            base=prepared.base,
            branch=prepared.branch,
            head=state.head,
            title=state.title or prepared.title or " ".join(self._request.request.split())[:60],
            kind=state.kind,
            draft=prepared.draft or bool(doubt),
            draft_reason=doubt,
            plan=state.plan,
            tests=state.tests,
            review=state.review,
            review_result=state.review_result,
            spend=state.spend,
            artifacts=links,
            findings=state.findings,
            screenshots=state.screenshots,
            assumptions=state.assumptions,
            accepted=accepted(state),
        )
        fold.shipped(state, await self._forge.open_pull_request(work))

    def _materials(self) -> dict[str, str]:
        """Return what every agentic step is told about the ones before it."""
        told = (("kind", self._state.kind), ("plan", self._state.plan), ("task", self._request.task))
        return {name: value for name, value in told if value}

    def _change(self) -> dict[str, str]:
        return {"base": self._prepared.base_sha, "head": self._state.head}
