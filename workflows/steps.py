"""The steps of a delivery's process, one method each: the input of its activity, and what the delivery's state keeps of
the result. The order of steps is decided in workflows/delivery.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow

from perdure.models.delivery import fold
from perdure.models.delivery.decisions import (
    CheckPlanInput,
    CheckPlanResult,
    DecisionRecord,
    Gate,
    GateVerdict,
    UserMessage,
)
from perdure.models.delivery.publishing import CaptureInput, CaptureResult, PushInput, ShipInput
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import Reason, ReviewResult, Status
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.turn import Outcome
from perdure.models.delivery.work import (
    CommitInput,
    CommitResult,
    InspectInput,
    InspectResult,
    PreparedWorkspace,
    PrepareInput,
    TestInput,
    TestVerdict,
)
from perdure.models.limits import NOTES_KEPT
from perdure.models.phases import Phase, Step
from perdure.models.rules import gates
from perdure.models.rules.gates import gate_question, red_tests_approval_text
from perdure.text import shorten
from workflows.endings import DeliveryStopped, not_delivered
from workflows.plan_tasks import PlanTasks
from workflows.publishing import ForgeSteps
from workflows.step_runner import StepRunner


class Steps:
    """A delivery's steps; `prepare` comes first. Each raises DeliveryStopped when it fails for good, unless it says
    otherwise, and CancelledError.

    tell_conflicts   tells others which open deliveries a new commit would conflict with
    reviewed_before  the commit whose review an earlier run has paid for, which `review` does not repeat
    plan_tasks       the tasks of the plan, when several agents build them
    """

    def __init__(
        self,
        runner: StepRunner,
        forge: ForgeSteps,
        tell_conflicts: Callable[[dict[str, str]], Awaitable[None]],
    ) -> None:
        self._runner, self._forge, self._tell_conflicts = runner, forge, tell_conflicts
        self.plan_tasks = PlanTasks(runner)
        self.reviewed_before, self._verdict_before = (
            runner.state.reviewing.reviewed_commit,
            runner.state.testing.verdict,
        )

    @property
    def _request(self) -> DeliveryRequest:
        return self._runner.request

    @property
    def _state(self) -> DeliveryState:
        return self._runner.state

    @property
    def _prepared(self) -> PreparedWorkspace:
        assert self._state.prepared is not None
        return self._state.prepared

    async def prepare(self) -> PreparedWorkspace:
        """Make the workspace ready, with setup and preflight run, and record and return what was prepared. When a pull
        request or push is to come, check that the forge would take it; for a pull request, also comment on the issue.
        """
        previous = self._state.prepared
        work = PrepareInput(
            delivery=self._runner.delivery,
            request=self._request.model_copy(update={"resume": None}),
            previous=previous,
            checkpoint=self._state.turns.checkpoint,
        )
        # What an ended run has made is on its host: another one has no record of its workspace.
        queue = self._request.prepare_queue if previous is None else previous.queue
        prepared = await self._runner.run_step(Step.PREPARE, work, PreparedWorkspace, queue=queue)
        fold.apply_prepare(self._state, prepared, branch=bool(self._request.branch))
        if Phase.SHIP in prepared.phases or self._request.push:
            await self._forge.check_access()
        if Phase.SHIP in prepared.phases:
            await self._forge.update_issue_comment(workflow.info().workflow_id)
        return prepared

    async def classify(self) -> None:
        """Classify the request as bug, feature or chore, by turns of an agent, and record that."""
        fold.apply_step_end(self._state, Step.CLASSIFY, 1, await self._runner.run_turns(Step.CLASSIFY, 1, {}))

    async def plan(self, note: str = "", step: Step = Step.PLAN) -> None:
        """Make a plan, or with step `decompose` the items of a large request, by turns of an agent, and record it.
        `note`: why a person has rejected the plan before; it counts as delivered afterwards."""
        rejected = {"words": note} if note else {}
        attempt = self._state.planning.plan_count + 1
        fold.apply_step_end(
            self._state, step, attempt, await self._runner.run_turns(step, attempt, self._materials() | rejected)
        )
        if note:
            self._state.messages.add_delivered(UserMessage(id=f"plan-{attempt}", text=note))

    async def ask_gate(self, gate: Gate) -> str:
        """Ask a person to decide at a gate, and wait for it; return their note when they reject. Empty when they
        approve, when the delivery does not have this gate, or at gate `tests` when nobody decides in time.

        When they edit the plan, the edited one is put before them again. Raises DeliveryStopped when nobody decides in
        time at any other gate.
        """
        state, prepared = self._state, self._prepared
        while gate in prepared.decisions.gates:
            subject, prompt, options = gate_question(gate, state)
            after = timedelta(seconds=prepared.decisions.expiry_s) if prepared.decisions.expiry_s else None
            decided = await self._runner.gates.ask_person(gate, subject, prompt, options, expires_after=after)
            match decided.verdict:
                case GateVerdict.REJECTED:
                    return decided.note
                case GateVerdict.EXPIRED if gate is Gate.TESTS:
                    break  # the change can still become a draft
                case GateVerdict.EXPIRED:
                    reason = Reason.PLAN_REJECTED if gate in (Gate.PLAN, Gate.ITEMS) else Reason.LIMITS
                    raise not_delivered(reason, f"nobody decided in time: {prompt}")
                case GateVerdict.EDITED:
                    await self._apply_edited_plan(decided, items=gate is Gate.ITEMS)
                case _:
                    break
        return ""

    async def check_plan(self, plan: str, summary: str, *, items: bool = False, title: str = "") -> CheckPlanResult:
        """Check, by activity `check_plan`, that an edited plan or list of items can be used; the result names the
        problem, if there is one. `title`: what the person named it."""
        work = CheckPlanInput(delivery=self._runner.delivery, plan=plan, items=items, title=title)
        return await self._runner.run_unrecorded("check_plan", work, CheckPlanResult, summary)

    async def _apply_edited_plan(self, edited: DecisionRecord, *, items: bool) -> None:
        """Replace the plan that waits for approval by an edited one when that can be used; else keep the old one, and
        add a note that says why. The edit is counted, so that the gate is asked again either way."""
        state, checked = self._state, CheckPlanResult()
        if self._prepared.decisions.checks_plans:
            checked = await self.check_plan(edited.artifact, "the edited plan", items=items, title=edited.note)
        if checked.problem:
            note = shorten(f"the edited plan {edited.artifact[:8]} was not taken: {checked.problem}", 300)
            state.notes = (*state.notes, note)[-NOTES_KEPT:]
        fold.apply_edited_plan(state, edited.artifact, checked, edited.note)
        state.planning.edit_count += 1

    async def implement(self, tasks: dict[str, str]) -> Outcome:
        """Build the plan, or of it the `tasks` that are left, by turns of one agent; return the outcome. It is not
        committed here."""
        return await self._runner.run_turns(Step.IMPLEMENT, 1, self._materials() | tasks)

    async def document(self) -> None:
        """Bring the documentation up to date with the change, and commit that."""
        await self._run_and_commit(Step.DOCUMENT, 1, {})

    async def _run_and_commit(self, step: Step, attempt: int, materials: dict[str, str], effort: str = "") -> None:
        """Run an agentic step that changes files, and commit what it changed, if anything. The agent begins a fresh
        conversation with `materials`, the plan and the commits of the change."""
        change = self._change_commits() if self._state.building.head else {}
        outcome = await self._runner.run_turns(step, attempt, self._materials() | change | materials, effort)
        await self.commit(step, attempt, outcome.summary)

    async def run_fix(self, step: Step, materials: dict[str, str], *, is_last: bool = False) -> None:
        """Run a fix, commit and count it. The agent is given the fixes tried before; the last fix that is allowed
        (`is_last`) runs with the effort configured for it.

        Fixes are numbered by step, apart from the counts that the limits are about: a retry that goes on in the middle
        of a fix finds it by its number.
        """
        state, fixes_done = self._state, self._state.fixing.counts.get(step, 0)
        commit_before, effort = (
            state.building.head or self._prepared.head,
            self._prepared.agents.efforts.get(step, "") if is_last else "",
        )
        await self._run_and_commit(
            step, fixes_done + 1, materials | gates.fix_attempts_material(state.fixing.attempts), effort
        )
        state.fixing.attempts = gates.with_fix_attempt(
            state.fixing.attempts,
            step,
            fixes_done + 1,
            (commit_before, state.building.head or commit_before),
            materials,
        )
        state.fixing.counts = {**state.fixing.counts, step: fixes_done + 1}

    async def fix_tests(self, verdict: TestVerdict, note: str = "", *, is_last: bool = False) -> None:
        """Fix what failed in the tests, and commit that. `note`: what a person says about failures that they know are
        new; it counts as delivered afterwards."""
        await self.run_fix(
            Step.FIX_TESTS, {"report": verdict.report} | ({"words": note} if note else {}), is_last=is_last
        )
        if note:
            self._state.fixing.requested_fixes += 1
            self._state.messages.add_delivered(UserMessage(id=f"tests-{self._state.fixing.requested_fixes}", text=note))

    async def fix_rejected(self, note: str) -> None:
        """Fix what a person does not want published, as their note says, and commit that; the note counts as delivered
        afterwards."""
        await self.run_fix(Step.FIX_REVIEW, {"words": note})
        self._state.fixing.rejection_rounds += 1
        self._state.messages.add_delivered(
            UserMessage(id=f"publishing-{self._state.fixing.rejection_rounds}", text=note)
        )

    async def commit(self, step: Step, attempt: int, summary: str) -> bool:
        """Commit what a step has changed, record the commit and return True; False when the step has changed nothing.

        A review fix that removes a secret replaces all commits so far by one. Conflicts with other open deliveries are
        told to `tell_conflicts`; a cancellation meanwhile is left to the next step.
        """
        state = self._state
        replaces_all = step is Step.FIX_REVIEW and state.reviewing.inspection.secrets > 0
        subject = state.planning.title if (step is Step.IMPLEMENT or replaces_all) and state.planning.title else summary
        work = CommitInput(
            delivery=self._runner.delivery,
            contract=self._prepared.contract,
            step=step,
            attempt=attempt,
            checkpoint=state.turns.checkpoint,
            parent=self._prepared.head if replaces_all else state.building.head or self._prepared.head,
            subject=subject,
            kind=state.planning.kind,
        )
        result = await self._runner.run_step(Step.COMMIT, work, CommitResult, attempt=attempt)
        state.turns.resume_at = state.turns.outcome = None
        if not result.commit:
            return False
        fold.apply_commit(state, result)
        self._runner.record_commit(result.commit, result.summary)
        with suppress(asyncio.CancelledError):  # the next step notices it: this commit has to be counted first
            await self._tell_conflicts(result.conflicts)
        return True

    async def run_tests(self, check: dict[str, tuple[str, ...]] | None = None) -> TestVerdict:
        """Run the tests on the newest commit, record the verdict and return it. A first verdict that equals the one an
        earlier run has left is replaced by that, report included. `check`: when it lands, the commands that items of
        its backlog named, its own among them, by item."""
        attempt = self._state.testing.runs + 1
        work = TestInput(
            delivery=self._runner.delivery,
            contract=self._prepared.contract,
            commit=self._state.building.head,
            attempt=attempt,
            baseline=self._prepared.base_commit.baseline,
            check=check or {},
            item=self._request.landing.item if check and self._request.landing else "",
        )
        verdict = await self._runner.run_step(
            Step.RUN_TESTS, work, TestVerdict, attempt=attempt, queue=self._prepared.command_queue or None
        )
        verdict_before, self._verdict_before = self._verdict_before, None
        if verdict_before is not None and verdict.same_as(verdict_before):
            verdict = verdict_before  # what a retry goes on with was begun with this verdict's report
        fold.apply_verdict(self._state, verdict, attempt)
        self._runner.record_verdict(verdict.summary)
        return verdict

    async def inspect_change(self) -> InspectResult:
        """Return the engine's own findings in the change: secrets, protected paths, size. The same commit is inspected
        only once; the findings are kept in the state. When the delivery is not to be inspected, the state's empty ones
        are returned."""
        state = self._state
        if self._prepared.building.inspects and state.reviewing.inspected_commit != state.building.head:
            work = InspectInput(
                delivery=self._runner.delivery,
                contract=self._prepared.contract,
                commit=state.building.head,
                report=state.testing.verdict.report if state.testing.verdict else "",
                kind=state.planning.kind,
            )
            inspection = await self._runner.run_unrecorded(
                "inspect_change", work, InspectResult, "secrets, protected paths, size"
            )
            fold.apply_inspection(state, inspection, state.building.head)
        return state.reviewing.inspection

    async def capture_pages(self) -> None:
        """Make screenshots of the application at the newest commit, and record them; do nothing when none are wanted,
        or there are some of this commit. A failure becomes a note; it does not raise DeliveryStopped."""
        state = self._state
        if not self._prepared.publishing.screenshots or state.publishing.captured_commit == state.building.head:
            return
        work = CaptureInput(
            delivery=self._runner.delivery, contract=self._prepared.contract, commit=state.building.head
        )
        try:
            captured = await self._runner.run_step(
                "capture_pages", work, CaptureResult, queue=self._prepared.command_queue or None
            )
        except DeliveryStopped as stop:
            captured = CaptureResult()
            state.notes += (f"no screenshots: {shorten(stop.message.partition(chr(10))[0], 200)}",)
        fold.apply_screenshots(state, captured, state.building.head)

    async def review(self) -> ReviewResult:
        """Review the change by turns of an agent, after the engine's own inspection and screenshots, and return the
        result, in which the findings of both are counted. A review of this commit that an earlier run has paid for is
        returned, not made again."""
        state, attempt = self._state, self._state.reviewing.runs + 1
        bought_commit, self.reviewed_before = self.reviewed_before, ""
        if (
            bought_commit and bought_commit == state.building.head
        ):  # an earlier run has bought it: a retry goes on with that
            return state.reviewing.result
        inspection = await self.inspect_change()
        await self.capture_pages()
        evidence = {
            "report": state.testing.verdict.report if state.testing.verdict else "",
            "screenshots": state.publishing.screenshots,
        }
        materials = {name: value for name, value in (evidence | {"findings": inspection.findings}).items() if value}
        outcome = await self._runner.run_turns(
            Step.REVIEW, attempt, self._materials() | self._change_commits() | materials
        )
        fold.apply_step_end(state, Step.REVIEW, attempt, outcome)
        self._runner.record_verdict(outcome.summary)
        return state.reviewing.result

    async def push_branch(self) -> None:
        """Push the branch to the remote branch it came from, without a pull request; the result's summary becomes the
        delivery's message."""
        work = PushInput(
            delivery=self._runner.delivery,
            contract=self._prepared.contract,
            workflow_id=workflow.info().workflow_id,
            branch=self._prepared.branch,
            head=self._state.building.head,
            tests=self._state.testing.verdict,
        )
        self._state.message = (await self._forge.push_branch(work)).summary

    async def open_pull_request(self, draft_reason: str) -> None:
        """Open exactly one pull request, with screenshots and links to plan, tests and review, and record it; as a
        draft when configured or with a `draft_reason`, which it then states."""
        state, prepared = self._state, self._prepared
        await self.capture_pages()
        report = state.testing.verdict.report if state.testing.verdict else ""
        links = await self._forge.publish_artifacts(
            state.planning.plan, report, state.reviewing.review, state.reviewing.findings, state.publishing.screenshots
        )
        work = ShipInput(
            delivery=self._runner.delivery,
            contract=prepared.contract,
            workflow_id=workflow.info().workflow_id,
            base=prepared.base_commit.branch,
            branch=prepared.branch,
            head=state.building.head,
            title=state.planning.title
            or prepared.request.title
            or shorten(" ".join(self._request.request.split()), 60),
            kind=state.planning.kind,
            draft=prepared.publishing.draft or bool(draft_reason),
            draft_reason=draft_reason,
            plan=state.planning.plan,
            tests=state.testing.verdict,
            review=state.reviewing.review,
            review_result=state.reviewing.result,
            spend=state.spending.spend,
            artifacts=links,
            findings=state.reviewing.findings,
            screenshots=state.publishing.screenshots,
            assumptions=state.turns.assumptions,
            accepted=red_tests_approval_text(state),
        )
        fold.apply_pull_request(state, await self._forge.open_pull_request(work))

    def _materials(self) -> dict[str, str]:
        """Return what every agentic step is given of the ones before it: the request's kind, the plan and the task, by
        name, without empty ones."""
        materials = (
            ("kind", self._state.planning.kind),
            ("plan", self._state.planning.plan),
            ("task", self._request.task_text),
        )
        return {name: value for name, value in materials if value}

    def _change_commits(self) -> dict[str, str]:
        """Return the commits between which the change lies, as materials of a step."""
        return {"base": self._prepared.base_commit.sha, "head": self._state.building.head}


async def decompose_request(runner: StepRunner, steps: Steps) -> None:
    """Make the request into items of its backlog instead of a change, and complete the delivery with them.

    A person approves the items, when configured; they are made again with the note of each rejection. The backlog adds
    them when the delivery has ended. Raises DeliveryStopped when nobody decides in time.
    """
    state = runner.state
    if not state.planning.plan:
        await steps.plan(step=Step.DECOMPOSE)
    while note := await steps.ask_gate(Gate.ITEMS):
        await steps.plan(note, Step.DECOMPOSE)
    state.planning.items = (await steps.check_plan(state.planning.plan, "the items", items=True)).items
    state.status, state.message = Status.COMPLETED, f"decomposed into {state.planning.title}"
