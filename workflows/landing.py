"""A delivery's side of its backlog: it asks for the turn to land, uses it and gives it back; it tells of its end.

The branch itself moves by compare-and-swap: the turn only keeps two from testing the same place in vain. So whatever
gets lost here costs time, never a commit.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow

from perdure.models import fold, landing
from perdure.models.backlog import LandingPlace
from perdure.models.decisions import Asked, Gate
from perdure.models.limits import END_CHARS
from perdure.models.phases import Phase, Step
from perdure.models.result import DeliveryResult, Status, TestsStatus
from perdure.models.rules.gates import in_the_way, let_through
from perdure.models.rules.slots import ROOM
from perdure.models.rules.stack import proposed
from perdure.models.work import Prepared
from workflows.decomposing import decompose
from workflows.endings import Stopped, heed_cancellation
from workflows.publishing import Publishing
from workflows.room import find_room
from workflows.stage import Stage
from workflows.steps import Steps
from workflows.telling import tell

TURN_SOON = timedelta(seconds=10)
"""The turn comes, unless somebody else lands, in a fraction of a second; only what takes longer is shown as waiting."""

ASK_AGAIN = timedelta(minutes=5)
"""Until it is asked for once more: the backlog may have begun again from before it heard the question."""


LANDING_FIXES = 2
"""Rounds of mending what cannot land, before a person is asked: who conflicts twice with what lands needs one. In the
last of them the turn is kept: whoever mends the first time may be overtaken, the second time nobody lands meanwhile."""


class Landing:
    """One delivery's landing; does nothing where the delivery is no item of a backlog."""

    def __init__(self, stage: Stage, forge: Publishing, steps: Steps) -> None:
        self._stage, self._forge, self._steps = stage, forge, steps
        self._granted: landing.LandingGranted | None = None
        self._there = False
        self._kept = False
        self._waits = 0
        self._within = stage.request.landing.within if stage.request.landing is not None else None
        if self._within is not None:
            stage.state.kind = self._within.kind
        if stage.request.landing is not None:
            workflow.set_signal_handler("landing_granted", self._hear)
            stage.people.backlog = self._tell_waiting
            steps.foresees = self._tell_foreseen

    @property
    def _place(self) -> LandingPlace:
        assert self._stage.request.landing is not None
        return self._stage.request.landing

    @property
    def _prepared(self) -> Prepared:
        assert self._stage.state.prepared is not None
        return self._stage.state.prepared

    @property
    def decomposes(self) -> bool:
        """Its request is no change, but a large one whose parts are to be found."""
        return self._stage.request.landing is not None and self._place.decompose is not None

    async def decompose(self) -> None:
        await decompose(self._stage, self._steps)

    async def room(self) -> None:
        """Wait until there is room for one more among the repository's deliveries, of backlogs or not."""
        await find_room(self._stage, self.tell_words)

    async def planned(self) -> None:
        """Tell the backlog of the files the plan names, once: others that change them do not begin beside it."""
        if touches := self._stage.state.touches:
            self._stage.state.touches = ()
            said = landing.ItemPlanned(item=self._place.item, delivery=workflow.info().workflow_id, touches=touches)
            await self._tell("item_planned", said)

    async def landed(self) -> bool:
        """In its turn: brought onto the branch's head, tested as it lands, pushed. False where it cannot land as it is:
        then it is its own to mend, and others land meanwhile, the first time."""
        granted, words = await self._turn(), ""
        while not self._stage.state.landed:
            rebased = await self._rebased(granted.head, granted.seq)
            if rebased.landed:
                break
            if rebased.conflicts:
                words = f"conflicts in {', '.join(rebased.conflicts[:3])}"
            elif not await self._holds(rebased, granted):
                words = f"red on {rebased.onto[:7]}"
            if words:
                break
            await self._land(rebased)  # moves nothing where somebody was faster: once more, on what they pushed
        self._kept = bool(words) and self._round + 1 == LANDING_FIXES
        if not self._kept:
            await self._give_back(granted, words)
        return not words

    async def given_up(self) -> str:
        """After the last round: ask a person whether it is mended once more. The words with which it ends, empty where
        it goes on."""
        if self._stage.state.landing_fixes == 0 or self._round:
            return ""
        words = await self._steps.decision(Gate.LANDING)
        if not words and Gate.LANDING in self._prepared.gates:
            return ""
        return f"it could not land: {in_the_way(self._stage.state)}" + (f"; rejected: {words}" if words else "")

    async def mend(self) -> None:
        """Mend what could not land: conflicts with what landed meanwhile, or tests that are red together with it."""
        state = self._stage.state
        found = {"conflict": state.since} if state.since else {}
        if not state.conflicts and state.tests is not None:
            found["report"] = state.tests.report
        before = {"base": self._prepared.base_sha, "head": state.unlanded} if state.conflicts else {}
        await self._steps.fix(Step.FIX_LANDING, found | before, last=self._round + 1 == LANDING_FIXES)
        if not state.head:
            raise Stopped(Status.NO_CHANGES, None, "nothing of the change was left once its conflicts were mended")
        state.landing_fixes += 1
        state.conflicts, state.unlanded = (), ""

    async def ended(self, result: DeliveryResult) -> None:
        """Tell the backlog how this run ended; whatever happens now does not change that."""
        if self._stage.request.landing is None:
            return
        ships = self._place.ships
        said = landing.ItemEnded(
            item=self._place.item,
            delivery=result.delivery_id,
            run_id=workflow.info().first_execution_run_id,
            status=result.status,
            reason=result.reason or "",
            message=result.message[:END_CHARS],
            usd=result.usage.cost_usd,
            commit=proposed(result) if ships else self._stage.state.landed,
            branch=(result.branch or "") if ships else "",
            pull_request=result.pull_request.url if ships and result.pull_request else "",
            items=self._stage.state.items,
            there=self._there,
        )
        telling = asyncio.create_task(self._tell("item_ended", said))
        with suppress(asyncio.CancelledError):
            await workflow.wait([telling])
        with suppress(asyncio.CancelledError):
            await telling

    async def _rebased(self, landed: str, number: int) -> landing.Rebased:
        """Bring the change onto the integration branch's head as one commit, or as files with conflicts to mend."""
        state, prepared, place = self._stage.state, self._prepared, self._place
        work = landing.RebaseInput(
            delivery=self._stage.delivery,
            contract=prepared.contract,
            place=place,
            head=state.head,
            checkpoint=state.checkpoint,
            landed=landed,
            subject=state.title or prepared.title or " ".join(self._stage.request.request.split())[:60],
            kind=state.kind,
            number=number,
        )
        rebased = await self._stage.once(Step.REBASE, work, landing.Rebased, attempt=number)
        fold.rebased(state, rebased)
        if not (rebased.commit or rebased.conflicts or rebased.landed):
            self._there = True
            raise Stopped(Status.NO_CHANGES, None, f"all of it is on {place.branch} already")
        return rebased

    async def _holds(self, rebased: landing.Rebased, granted: landing.LandingGranted) -> bool:
        """The verdict on exactly this tree lets it land. One that was reached where the branch still is stands, unless
        there is more to hold: what landed items named, so that a regression cannot land."""
        state, prepared = self._stage.state, self._prepared
        known = state.tests is not None and state.tests.tree == rebased.tree and not rebased.moved and not granted.check
        if Phase.TEST in prepared.phases and not known:
            await self._steps.run_tests(granted.check)
        return state.tests is None or state.tests.status is not TestsStatus.RED or let_through(state) is not None

    async def _land(self, rebased: landing.Rebased) -> None:
        work = landing.LandInput(
            delivery=self._stage.delivery,
            contract=self._prepared.contract,
            workflow_id=workflow.info().workflow_id,
            place=self._place,
            commit=rebased.commit,
            onto=rebased.onto,
            tests=self._stage.state.tests,
        )
        if self._within is not None:  # in the vault, which this host alone has
            fold.landed(self._stage.state, await self._stage.once(Step.LAND, work, landing.Landed))
        else:
            fold.landed(self._stage.state, await self._forge.land(work))

    @property
    def _round(self) -> int:
        """Rounds of mending that it has taken since it began, or since a person let it go on."""
        return self._stage.state.landing_fixes % LANDING_FIXES

    async def _turn(self) -> landing.LandingGranted:
        """The turn, asked for until it is granted, unless it was kept. It is not on the delivery's time."""
        state, info = self._stage.state, workflow.info()
        if self._kept and self._granted is not None:
            return self._granted
        state.landings += 1
        asked = landing.LandingAsked(
            item=self._place.item, delivery=info.workflow_id, run_id=info.first_execution_run_id, seq=state.landings
        )
        there = await self._tell("landing_asked", asked)
        heard = await self._heard(state.landings, TURN_SOON)
        while not heard:
            with self._stage.people.waits(self._waits_for(there)):
                if not (heard := await self._heard(state.landings, ASK_AGAIN)):
                    there = await self._tell("landing_asked", asked)
        assert self._granted is not None
        return self._granted

    def _waits_for(self, there: bool) -> str:
        """`there`: the backlog takes messages. One that has ended grants nothing until somebody takes it up again."""
        place = self._place
        if there:
            return f"for its turn to land on {place.branch}"
        return f"for backlog {place.backlog}, which has ended: perdure backlog retry {place.backlog} {place.item}"

    async def _heard(self, seq: int, patience: timedelta) -> bool:
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: self._granted is not None and self._granted.seq == seq,
                timeout=patience,
                timeout_summary=f"its turn to land on {self._place.branch}"[:100],
            )
            return True
        return False

    def _hear(self, granted: landing.LandingGranted) -> None:
        self._granted = granted

    async def _give_back(self, granted: landing.LandingGranted, words: str) -> None:
        over = landing.LandingOver(
            item=self._place.item,
            delivery=workflow.info().workflow_id,
            seq=granted.seq,
            commit=self._stage.state.landed,
            words=words,
            usd=self._stage.state.usage.cost_usd,
            unchecked=self._unchecked(granted),
        )
        await self._tell("landing_over", over)

    def _unchecked(self, granted: landing.LandingGranted) -> tuple[str, ...]:
        tests = self._stage.state.tests
        return tests.unchecked if tests is not None and Phase.TEST in self._prepared.phases else tuple(granted.check)

    def _number(self) -> int:
        """By the time, so that a run that goes on after this one is heard as well."""
        self._waits = max(self._waits + 1, round(workflow.now().timestamp() * 1000))
        return self._waits

    async def _tell_waiting(self, asked: Asked | None) -> None:
        """Tell the backlog that a person has to decide here; None: somebody has."""
        await self.planned()
        said = landing.ItemWaits(item=self._place.item, delivery=workflow.info().workflow_id, number=self._number())
        if asked is not None:
            what = self._stage.state.plan_words if asked.gate is Gate.ITEMS else ""
            about = {"words": asked.words[:200], "gate": str(asked.gate), "of": asked.of, "since": asked.since}
            said = said.model_copy(update=about | {"about": what, "asked": asked})
        await self._tell("item_waits", said)

    async def tell_words(self, words: str) -> None:
        """Tell the backlog what it waits for where nobody decides that here; empty: it goes on."""
        if self._stage.request.landing is None:
            return
        item, delivery = self._place.item, workflow.info().workflow_id
        gate = ROOM if words else ""
        said = landing.ItemWaits(item=item, delivery=delivery, number=self._number(), words=words[:200], gate=gate)
        await self._tell("item_waits", said)

    async def _tell_foreseen(self, conflicts: dict[str, str]) -> None:
        """Tell the backlog which others it would conflict with, where that is another thing than it was told last."""
        if conflicts == self._stage.state.foreseen:
            return
        self._stage.state.foreseen = conflicts
        delivery = workflow.info().workflow_id
        said = landing.ItemForeseen(item=self._place.item, delivery=delivery, conflicts=conflicts)
        await self._tell("item_foreseen", said)

    async def _tell(self, signal: str, said: Any) -> bool:
        """False: the backlog is not there any more. It hears nothing, and the delivery goes on."""
        heeds = signal == "item_waits"  # behind it there may be days of waiting
        there = await tell(workflow.get_external_workflow_handle(self._place.backlog), signal, said, heeds=heeds)
        forgotten = signal == "landing_asked" and workflow.cancellation_reason() is not None  # came meanwhile
        if forgotten and workflow.patched("cancelled-while-asking"):
            heed_cancellation()
        return there
