"""A branch that many land on, without git: the activities of landing, and how a test sees a backlog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError

from activities.workflow_lookup import look_for as really_look
from activities.workflow_lookup import prioritise_delivery
from perdure.models.backlog.following import (
    FollowInput,
    FollowResult,
    LandedChecksResult,
    MoveBranchInput,
    MoveBranchResult,
    PullRequestState,
    StackInput,
    StackState,
)
from perdure.models.backlog.landing import (
    CloseBacklogInput,
    CloseBacklogResult,
    DeliveryLookup,
    DeliveryLookupInput,
    DeliveryStatus,
    LandInput,
    LandResult,
    OpenBacklogInput,
    RebaseInput,
    RebaseResult,
    ResumeInput,
    ResumeResult,
    SignRequestInput,
    SignRequestResult,
)
from perdure.models.backlog.state import OpenBacklogResult
from perdure.models.delivery.result import PullRequest, TestsStatus
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.delivery.work import PreparedWorkspace, TestVerdict
from perdure.models.ids import MORE_ATTRIBUTES
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase, Step
from tests.deliveries import Script, at
from tests.homes import origin_activities
from tests.states import with_fields
from tests.waiting import patient


class Branch(Script):
    """What lands, in order. `changes`: the files each item changes; two that change the same one conflict, once.

    red      items whose tests are red as they land, so many times
    refuses  the branch cannot be landed on, in these words
    there    items of which somebody else has pushed the same change
    moves    how often somebody else pushes between a rebase and the push
    real_looks   where set, deliveries are looked for on the server
    refused  by item: `prepare` refuses its request with these words
    fails    items whose tests stay red
    base     what `follow` finds, one after the other: words are a problem, empty ones that the base has moved; when
             there are no more it stands there. None: the branch does not follow. follows: whenever it looked
    pulls    in a stack, pull requests as the forge shows them; stacked: whenever they were looked at
    pushes   how often somebody pushes between a look at the base and the move
    proposals   what `close_backlog` was given, each time
    signing, closing   where set: what `sign_item_request` waits for, before an item begins; `close_backlog`, at the end
    unopened   the type and the words with which opening it fails; unproposed: the words with which its end does
    called   how often each of these two was asked
    left_out item → a landed one whose checks have no time as it lands; checked: whose it was given each time, in order
    lists    the server knows the search attributes
    last     what `check_landed` finds, one after the other: words are a problem; when there are no more all hold.
             last_time: of how many it runs the checks at once; last_refused: the words with which it fails;
             lasts: what it was given each time
    """

    def __init__(self, **changes: str) -> None:
        super().__init__(Phase.BUILD, Phase.TEST, Phase.REVIEW, Phase.SHIP, test_fixes=0)
        self.changes = {item: set(files.split()) for item, files in changes.items()}
        self.landed: list[str] = []
        self.seen_by: dict[str, int] = {}
        self.rebases: list[tuple[str, str]] = []
        self.moves = 0
        self.refuses = ""
        self.there: set[str] = set()
        self.fails: set[str] = set()
        self.red: dict[str, int] = {}
        self.proposals: list[CloseBacklogInput] = []
        self.notifies = self.lists = False
        self.issues: tuple[int, ...] = ()
        self.found: tuple[int, ...] = ()
        self.proposed: dict[int, int] = {}
        self.holding: dict[str, asyncio.Event] = {}
        self.looks: list[DeliveryLookupInput] = []
        self.real_looks: Client | None = None
        self.most = self.now = 0
        self.refused: dict[str, str] = {}
        self.base: list[str] | None = None
        self.follows: list[FollowInput] = []
        self.pushes = 0
        self.looking: asyncio.Event | None = None
        self.pulls: dict[str, PullRequestState] = {}
        self.stacked: list[StackInput] = []
        self.signing: asyncio.Event | None = None
        self.closing: asyncio.Event | None = None
        self.unopened: tuple[str, str] | None = None
        self.unproposed = ""
        self.called = {"sign_item_request": 0, "close_backlog": 0}
        self.left_out: dict[str, str] = {}
        self.checked: dict[str, list[list[str]]] = {}
        self.last: list[str] = []
        self.last_time, self.last_refused = 99, ""
        self.lasts: list[FollowInput] = []

    async def plays(self, work: TurnInput) -> TurnResult:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if event := next((event for item, event in self.holding.items() if f"-{item}-" in work.delivery), None):
                await event.wait()
            return await super().plays(work)
        finally:
            self.now -= 1

    def item(self, delivery: str) -> str:
        return next(item for item in self.changes if f"-{item}-" in delivery)

    def stack_look(self) -> Callable[..., Any]:
        @activity.defn
        async def look_at_stack(work: StackInput) -> StackState:
            self.stacked.append(work)
            for pull in work.pulls:
                self.pulls[pull.item] = self.pulls.get(pull.item) or PullRequestState(state="open", into="main")
                if pull.reopen and not self.pulls[pull.item].base_gone:
                    self.pulls[pull.item] = self.pulls[pull.item].model_copy(update={"state": "open"})
                if pull.to:
                    self.pulls[pull.item] = self.pulls[pull.item].model_copy(update={"into": pull.to})
            return StackState(pull_requests={pull.item: self.pulls[pull.item] for pull in work.pulls})

        return look_at_stack

    def activities(self) -> list[Callable[..., Any]]:
        kept = [one for one in super().activities() if getattr(one, "__name__", "") not in ("run_tests",)]
        base = {getattr(one, "__name__", ""): one for one in kept}

        @activity.defn(name=Step.PREPARE)
        async def prepare(work: Any) -> PreparedWorkspace:
            from perdure.models.delivery.work import PrepareInput

            given = PrepareInput.model_validate(work)
            made: PreparedWorkspace = await base["prepare"](given)
            assert given.request.landing is not None
            if words := self.refused.get(given.request.landing.item):
                raise ApplicationError(words, type="InvalidRequest", non_retryable=True)
            self.seen_by.setdefault(given.delivery, len(self.landed))
            place = given.request.landing
            if place.ships:
                return made.with_changes({"base_commit": {"branch": given.request.base}}, branch=f"p/{place.item}")
            return with_fields(made, landing=place.branch)

        @activity.defn(name=Step.RUN_TESTS)
        async def run_tests(work: Any) -> TestVerdict:
            item, attempt = self.item(work["delivery"]), work["attempt"]
            red = item in self.fails
            if self.red.get(item) and (item, "rebased") in self.rebases:
                self.red[item] -= 1
                red = True
            status = TestsStatus.RED if red else TestsStatus.GREEN
            given = [other for other in work.get("check", {}) if other != item]
            self.checked[item] = [*self.checked.get(item, ()), *([given] if given else ())]
            return TestVerdict(
                status=status,
                tree=f"t-{item}-{attempt}",
                report="r",
                summary="1 failed" if red else "",
                unchecked=tuple(other for other in given if self.left_out.get(item) == other),
            )

        @activity.defn(name=Step.FIX_LANDING)
        async def fix_landing(work: TurnInput) -> TurnResult:
            self.seen_by[work.delivery] = len(self.landed)
            self.seen.append(work)
            return await self.turn(work)

        @activity.defn(name=Step.REBASE)
        async def rebase(work: RebaseInput) -> RebaseResult:
            item = work.place.item
            if self.refuses:
                raise ApplicationError(self.refuses, type="ForgeRefused", non_retryable=True)
            if item in self.there:
                return RebaseResult(onto="b", contract=work.contract, checkpoint=work.checkpoint)
            since = self.landed[self.seen_by[work.delivery] :]
            met = sorted(self.changes[item] & {file for one in since for file in self.changes.get(one, ())})
            onto = self.landed[-1] if self.landed else "b"
            about = {"onto": onto, "policy": "p2", "checkpoint": "c9", "landed_changes": "s" if met else ""}
            self.rebases.append((item, "conflict" if met else "rebased"))
            if met:
                return RebaseResult(**about, conflicts=tuple(met))
            self.seen_by[work.delivery] = len(self.landed)
            return RebaseResult(**about, commit=f"c-{item}", tree=f"t-{item}", moved=bool(since))

        @activity.defn(name=Step.LAND)
        async def land(work: LandInput) -> LandResult:
            if self.moves:
                self.moves -= 1
                self.landed.append("somebody")
                return LandResult(head="somebody")
            assert work.onto == (self.landed[-1] if self.landed else "b"), "nobody else has landed meanwhile"
            self.landed.append(work.place.item)
            return LandResult(commit=work.place.item, head=work.place.item, summary=f"landed as {work.commit}")

        @activity.defn
        async def open_backlog(work: OpenBacklogInput) -> OpenBacklogResult:
            if self.unopened is not None:
                type, words = self.unopened
                raise ApplicationError(words, type=type, non_retryable=True)
            return OpenBacklogResult(
                base="main",
                base_sha="b",
                branch=work.branch or "perdure/night",
                queue=TASK_QUEUE,
                follows_base=self.base is not None,
                frees_waiting_slots=True,
                notifies=self.notifies,
                sets_search_attributes=self.lists,
                extra_attributes=tuple(MORE_ATTRIBUTES) if self.lists else (),
                issues=self.found,
                issue_pull_requests=self.proposed,
            )

        @activity.defn
        async def make_branch(work: OpenBacklogInput) -> OpenBacklogResult:
            return await open_backlog(work)

        @activity.defn
        async def follow(work: FollowInput) -> FollowResult:
            self.follows.append(work)
            if self.looking is not None:
                await self.looking.wait()
            found = self.base.pop(0) if self.base else None
            if found:
                return FollowResult(problem=found)
            number = len(self.follows)
            at = {"onto": work.landed, "queue": TASK_QUEUE, "host": TASK_QUEUE}
            if found is None:
                return FollowResult(base_sha=work.base_sha, head=work.landed, **at)
            return FollowResult(base_sha=f"b{number}", head=f"h{number}", summary=f"stands on b{number}", **at)

        @activity.defn
        async def check_landed(work: FollowInput) -> LandedChecksResult:
            self.lasts.append(work)
            if self.last_refused:
                raise ApplicationError(self.last_refused, type="ForgeRefused", non_retryable=True)
            problem = self.last.pop(0) if self.last else ""
            held = () if problem else tuple(work.check)[: self.last_time]
            return LandedChecksResult(
                head=work.landed,
                passed_items=held,
                failed_items=tuple(work.check) if problem else (),
                problem=problem,
                host=TASK_QUEUE,
            )

        @activity.defn
        async def move_branch(work: MoveBranchInput) -> MoveBranchResult:
            if self.pushes:
                self.pushes -= 1
                self.base = ["", *(self.base or [])]
                return MoveBranchResult()
            self.landed = [f"{one}'" for one in self.landed]
            return MoveBranchResult(head=work.head, commits={one.rstrip("'"): one for one in self.landed})

        @activity.defn
        async def look_for(work: DeliveryLookupInput) -> DeliveryLookup:
            self.looks.append(work)
            if self.real_looks is not None:
                return await really_look(work)
            return DeliveryLookup(
                statuses={one: DeliveryStatus(status="terminated", message="terminated") for one in work.deliveries}
            )

        @activity.defn
        async def resume_point(work: ResumeInput) -> ResumeResult:
            return ResumeResult()

        @activity.defn
        async def sign_item_request(work: SignRequestInput) -> SignRequestResult:
            self.called["sign_item_request"] += 1
            if self.signing is not None:
                await self.signing.wait()
            return SignRequestResult()

        @activity.defn
        async def close_backlog(work: CloseBacklogInput) -> CloseBacklogResult:
            self.called["close_backlog"] += 1
            self.proposals.append(work)
            if self.unproposed:
                raise ApplicationError(self.unproposed, type="ForgeRefused", non_retryable=True)
            if self.closing is not None:
                await self.closing.wait()
            self.issues = work.issues
            return CloseBacklogResult(pull_request=PullRequest(number=1, url="http://forge/1", title=work.backlog))

        others = [one for one in kept if one is not base["prepare"]]
        landing = [
            rebase,
            land,
            fix_landing,
            open_backlog,
            make_branch,
            look_for,
            resume_point,
            sign_item_request,
            close_backlog,
        ]
        landing += [follow, check_landed, move_branch, self.stack_look(), *origin_activities(), prioritise_delivery]
        return [*others, prepare, run_tests, *landing]


def night(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A backlog's request; an item without words asks for itself."""
    return {"repository": "/r", "items": [{"request": f"Do {item['id']}", **item} for item in items], **more}


async def backlog(client: Client, id: str, request: dict[str, Any]) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow("Backlog", request, id=id, task_queue=TASK_QUEUE)


async def until(handle: WorkflowHandle[Any, Any], what: Callable[[dict[str, str]], Any]) -> dict[str, dict[str, Any]]:
    """Its items by id, as soon as `what` is true of their phases."""
    progress = await at(handle, lambda progress: what(phases(progress)))
    return {item["id"]: item for item in progress["items"]}


async def ended(handle: Any) -> dict[str, Any]:
    async with asyncio.timeout(patient(50)):
        return dict(await handle.result())


def phases(progress: dict[str, Any]) -> dict[str, str]:
    return {item["id"]: item["phase"] for item in progress["items"]}
