"""Reading a delivery for a report: what the server has, what its workflow answers, what its history tells, what its
host (the machine that works on it) keeps. Used by `perdure report`, the page and comparisons; nothing is changed and
nothing is shown here."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio.service import RPCError

from perdure.client import Delivery, RunDescription
from perdure.client.history.fold import ActivityRecord, DeliveryHistory
from perdure.client.history.state import progress_from, request_of, state_of, steps_so_far, turn_result_of
from perdure.client.server.calls import HostRefused, HostSilent
from perdure.models.base import read_as
from perdure.models.checks.report import Findings, Review, Screenshots, TestReport
from perdure.models.delivery.conversation import ConversationTurn
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import DeliveryResult, StepRecord
from perdure.models.delivery.state import DeliveryState, Progress
from perdure.models.delivery.steps import AGENTIC, Plan
from perdure.models.delivery.summary import result_of
from perdure.models.delivery.turn import PAGE_CHARS_MOST, TextPage
from perdure.models.errors import PerdureError
from perdure.render.report.facts import DeliveryReport, ReportTurn, ReportWait, WorkerDeath
from perdure.text import shorten

REPORT_DIFF_CHARS = 400_000
"""Characters of the change in a report: 10,000 lines, which is more than anybody reads on one page."""

DIFF_CUT_NOTE = "\n… and more: perdure diff shows all of it\n"
"""The end of a change in a report that does not hold all of it."""

REPORT_PICTURES_BYTES = 24_000_000
"""Bytes of all screenshots in one page, before base64: mail takes it, and browsers open it without a pause."""

REPORT_PATIENCE = timedelta(seconds=15)
"""Limit for a host to begin with what a report asks of it: a living one does so in milliseconds, unless all its slots
are full; a person waits for it, and the rest of the report does not need it."""


HOST_PARTS = frozenset({"plan", "tests", "review", "change", "turns"})
"""Parts of a report that come from the delivery's host; `review` with the screenshots."""

CONVERSATION_PATIENCE = timedelta(seconds=5)
"""Likewise for the turns of a page that is shown live: what is late can be asked for again on the page."""

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

PNG = b"\x89PNG\r\n\x1a\n"


class HostReader:
    """Reads from a delivery's host through Temporal.

    What cannot be read is noted in `unread`, and a host that is silent is not asked again.
    """

    def __init__(self, delivery: Delivery, queue: str) -> None:
        self._delivery, self._queue = delivery, queue
        self._silent: bool | None = None if queue else True
        self._unanswered: list[str] = []
        self._problems: list[str] = []

    @property
    def unread(self) -> list[str]:
        """Return what could not be read and why, one sentence for each reason."""
        if not self._unanswered:
            return self._problems
        host = f"the delivery's host does not answer (task queue {self._queue}): it is busy, or has no worker; "
        host += "perdure up --detach, or perdure worker, there starts one"
        return [f"{_join_names(self._unanswered)}: {host if self._queue else 'it has no host yet'}", *self._problems]

    async def read_document(self, sha256: str, what: str, model: type[T]) -> T | None:
        """Read an artifact and parse it as this model's JSON; None where the hash is empty.

        None, too, where it cannot be read or parsed, which is noted in `unread` under the name `what`.
        """
        if not sha256 or (data := await self._read_artifact(sha256, what)) is None:
            return None
        try:
            return model.model_validate_json(data)
        except ValidationError:
            self._problems.append(f"{what}: written by a release that this one does not know")
            return None

    async def read_text(self, sha256: str, what: str) -> str:
        """Read an artifact as text; empty where the hash is empty, or it cannot be read, which is noted in `unread`."""
        data = await self._read_artifact(sha256, what) if sha256 else None
        return data.decode(errors="replace") if data is not None else ""

    async def read_pictures(self, shots: Screenshots) -> dict[str, bytes]:
        """Read the screenshots and return them as PNG by SHA-256.

        Left out, and noted in `unread`, are those that cannot be read, are no PNG, or would make the page too large.
        """
        pictures: dict[str, bytes] = {}
        for shot in shots.pictures:
            what = f"the picture of {shorten(shot.page, 80)}"
            if (
                not shot.artifact
                or shot.artifact in pictures
                or (data := await self._read_artifact(shot.artifact, what)) is None
            ):
                continue
            if not data.startswith(PNG):
                self._problems.append(f"{what}: it is no PNG")
            elif sum(map(len, pictures.values())) + len(data) > REPORT_PICTURES_BYTES:
                self._problems.append(f"{what}: left out, the page would be too large")
            else:
                pictures[shot.artifact] = data
        return pictures

    async def read_diff(self) -> str:
        """Read the change against the base: its beginning, with a line that says so, when a page cannot hold all of it.

        Empty when a part cannot be read, which is noted in `unread`.
        """
        text, offset = "", 0
        while len(text) < REPORT_DIFF_CHARS:
            if (page := await self._read_page("diff", offset, "the change")) is None:
                return ""
            text += page.text
            if page.next is None:
                return text
            offset = page.next
        return text + DIFF_CUT_NOTE

    async def add_transcripts(self, turns: list[ReportTurn]) -> list[ReportTurn]:
        """Return the turns with their transcripts, read from the host; empty in those of which the host has none.

        What cannot be read is noted in `unread`.
        """
        transcripts: dict[str, str] = {}
        offset: int | None = 0 if turns else None
        while offset is not None:
            if (page := await self._read_page("turns_json", offset, "what was said in the turns")) is None:
                break
            entries = [json.loads(line) for line in page.text.splitlines()]
            transcripts |= {turn["checkpoint"]: turn["said"] for turn in entries}
            offset = page.next
        return [turn.model_copy(update={"transcript": transcripts.get(turn.checkpoint, "")}) for turn in turns]

    async def read_conversation(self, checkpoint: str) -> list[ConversationTurn]:
        """Read the turn that ended with this checkpoint and those right before it, the newest first, as many as fit one
        page; none where they cannot be read, which is noted in `unread`."""
        what = "what was said in the turns"
        page = await self._ask_host(
            lambda: self._delivery.read_page(
                "conversation", 0, self._queue, checkpoint, CONVERSATION_PATIENCE, PAGE_CHARS_MOST
            ),
            what,
        )
        try:
            lines = page.text.split("\n") if page else []  # not at all that Python takes for ends of lines
            return [ConversationTurn.model_validate_json(line) for line in lines if line]
        except ValidationError:
            self._problems.append(f"{what}: written by a release that this one does not know")
            return []

    async def _read_artifact(self, sha256: str, what: str) -> bytes | None:
        """Read an artifact by its SHA-256; None where it cannot be read."""
        return await self._ask_host(lambda: self._delivery.artifact(sha256, self._queue, REPORT_PATIENCE), what)

    async def _read_page(self, name: str, offset: int, what: str) -> TextPage | None:
        """Read one page from the host; None where it cannot be read."""
        return await self._ask_host(
            lambda: self._delivery.read_page(name, offset, self._queue, patience=REPORT_PATIENCE), what
        )

    async def _ask_host(self, fetch: Callable[[], Awaitable[R]], what: str) -> R | None:
        """Call `fetch` and return its result; None where the host is silent or refuses, which is noted under the name
        `what`.

        Where no worker takes work from the host's queue, or the host was silent before, `fetch` is not called.
        """
        if self._silent is None:
            self._silent = not await self._delivery.has_pollers(self._queue)
        if self._silent:
            self._unanswered.append(what)
            return None
        try:
            return await fetch()
        except HostSilent:
            self._silent = True
            self._unanswered.append(what)
        except HostRefused as error:
            self._problems.append(f"{what}: {error.failure_message}")
        except PerdureError as error:
            self._problems.append(f"{what}: {error.what}")
        return None


def _parse_json(text: str) -> object:
    """Parse JSON; None for any other text."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _join_names(names: list[str]) -> str:
    """Join names with commas, and `and` before the last."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_SLACK = timedelta(seconds=2)
"""Records of steps have whole seconds, and an activity is scheduled a moment after its step began."""


def step_start_times(steps: Sequence[StepRecord], acts: Sequence[ActivityRecord]) -> tuple[datetime | None, ...]:
    """Return when each step began, to the millisecond where history has its first activity, else as its record says;
    None: unknown."""
    starts: list[datetime | None] = []
    remaining = list(acts)
    for record in steps:
        stamp = parse_time(record.started_at)
        first_act = next(
            (
                act
                for act in remaining
                if act.activity == record.step and stamp and stamp - _SLACK / 2 <= act.scheduled <= stamp + _SLACK
            ),
            None,
        )
        if first_act is not None:
            remaining = remaining[remaining.index(first_act) + 1 :]
        starts.append(first_act.scheduled if first_act else stamp)
    return tuple(starts)


def parse_time(stamp: str | None) -> datetime | None:
    """Parse a time in RFC 3339, as UTC where it names no zone; None for anything else."""
    try:
        time = datetime.fromisoformat(stamp or "")
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def turns_of(acts: Iterable[ActivityRecord]) -> list[ReportTurn]:
    """Return each turn that ended well or still runs."""
    return [_turn_of(act) for act in acts if act.activity in AGENTIC and (act.result is not None or act.ended is None)]


def _turn_of(act: ActivityRecord) -> ReportTurn:
    """Convert the record of an agentic activity to a turn of the report, without its transcript."""
    result = turn_result_of(act)
    return ReportTurn(
        step=act.activity,
        attempt=max(act.attempt, 1),
        turn=max(act.turn, 1),
        summary=result.summary,
        checkpoint=result.checkpoint,
        started=act.scheduled,
        seconds=(act.ended - act.scheduled).total_seconds() if act.ended else None,
        tries=max(act.tries, 1),
        died=act.died,
        prompt_tokens=result.usage.prompt_tokens,
        output_tokens=result.usage.output_tokens,
        cost_usd=result.usage.cost_usd,
    )


def deaths_of(acts: Iterable[ActivityRecord]) -> list[WorkerDeath]:
    """Return the deaths of workers that these activities survived."""
    return [
        WorkerDeath(at=act.began, activity=act.activity, tries=act.tries, silent=act.silent)
        for act in acts
        if act.died and act.began
    ]


def waits_of(past: DeliveryHistory) -> list[ReportWait]:
    """Return the times in which nothing was done."""
    return [ReportWait(since=wait.since, until=wait.until, reason=wait.reason) for wait in past.waits]


async def gather_report(
    delivery: Delivery, *, passive: bool = False, parts: Collection[str] = HOST_PARTS
) -> DeliveryReport:
    """Read everything about a delivery that can be known now. What cannot be read is named in the report's `unread`;
    once its host was silent for REPORT_PATIENCE, nothing more is read from there.

    passive  for who only looks, again and again: no workflow is asked, which would wake one that waits, and the bytes
    of the screenshots are left out
    parts    of HOST_PARTS, those that are read from its host; the others stay empty

    Raises BadInput when there is no such delivery, and RPCError when the server does not give its history.
    """
    described = await delivery.describe()
    past = await delivery.past()
    state = state_of(past)
    unread = [] if past.complete else ["Temporal does not have the first runs any more: their turns are missing"]
    facts = await _read_facts(delivery, described, past, state, unread, ask=not passive)
    reader = HostReader(delivery, state.prepared.queue if state.prepared else "")
    tests, review = facts["tests"], facts["review"]

    def wanted_artifact(part: str, sha256: str | None) -> str:
        """Return the hash of an artifact where its part is wanted, else none."""
        return sha256 or "" if part in parts else ""

    written_plan = await reader.read_text(wanted_artifact("plan", state.planning.plan), "the plan")
    plan = read_as(Plan, _parse_json(written_plan))
    test_report = await reader.read_document(wanted_artifact("tests", tests.report), "the test report", TestReport)
    reviewed = await reader.read_document(wanted_artifact("review", review.report), "the review", Review)
    findings = await reader.read_document(wanted_artifact("review", review.findings), "the engine's findings", Findings)
    screenshots = await reader.read_document(
        wanted_artifact("review", state.publishing.screenshots), "the screenshots", Screenshots
    )
    pictures = await reader.read_pictures(screenshots) if screenshots and not passive else {}
    has_change = bool(state.building.head or facts["head_sha"])
    diff = await reader.read_diff() if has_change and "change" in parts else ""
    turns = turns_of(past.activities)
    if "turns" in parts:
        turns = await reader.add_transcripts(turns)
    try:
        untold = await delivery.failed_notices()
    except RPCError:
        untold = []
        unread.append("the server does not say who was told")
    return DeliveryReport(
        **facts,
        delivery_id=delivery.id,
        run_id=described.run_id,
        queue=state.prepared.queue if state.prepared else "",
        has_change=has_change,
        kind=state.planning.kind,
        title=plan.title if plan else state.planning.title,
        ended=described.closed,
        taken=datetime.now(UTC),
        began=step_start_times(facts["steps"], past.activities),
        turns=tuple(turns),
        deaths=tuple(deaths_of(past.activities)),
        waits=tuple(waits_of(past)),
        plan=plan,
        written_plan=written_plan,
        test_report=test_report,
        reviewed=reviewed,
        findings=findings,
        screenshots=screenshots,
        pictures=pictures,
        diff=diff,
        untold=tuple(untold),
        unread=(*unread, *reader.unread),
    )


async def _read_facts(
    delivery: Delivery,
    described: RunDescription,
    past: DeliveryHistory,
    state: DeliveryState,
    unread: list[str],
    *,
    ask: bool,
) -> dict[str, Any]:
    """Read the fields of a report that result or progress have; of a running delivery without a worker from history.

    `ask` False: a running workflow is not asked. Adds to `unread` what could not be read, and to `state` the steps and
    what the workflow itself says of costs and change. When no worker said how a delivery ended, its result is made from
    `state`, with Temporal's word as its status.
    """
    request = request_of(past)
    status, message, waiting = "", "", ""
    steps: Sequence[StepRecord] = ()
    if described.running:
        progress = await _query_progress(delivery, unread) if ask else None
        progress = progress or progress_from(past, delivery.id, described.run_id, state)
        status, message, waiting, steps = progress.status, progress.message, progress.waiting, progress.steps
        result = _result_so_far(progress, state, request, delivery.id, described.run_id)
    else:
        try:
            result = await delivery.result()
            status = result.status
        except PerdureError as error:  # Terminated, or a request that was never valid: no worker said how it ended.
            state.steps = steps_so_far(state, past)
            result = result_of(state, request, delivery.id, described.run_id)
            status = described.status.name.lower().replace("canceled", "cancelled")
            message = str(error)
        message, steps = message or result.message, result.steps
    start_times = [time for record in steps if (time := parse_time(record.started_at))]
    return {
        "status": status,
        "reason": (result.reason or "") if status == result.status else "",
        "message": message,
        "waiting": waiting,
        "repository": request.repository,
        "request": request.request,
        "issue": request.issue or "",
        "base": result.base or "",
        "base_sha": result.base_sha or "",
        "branch": result.branch or (state.prepared.branch if state.prepared and described.running else ""),
        "head_sha": result.head_sha or "",
        "pull_request": result.pull_request,
        "started": min([described.started, *start_times]),
        "budget_usd": state.prepared.limits.budget_usd if state.prepared else request.budget_usd,
        "usage": result.usage,
        "receipt": result.receipt,
        "tests": result.tests,
        "review": result.review,
        "decisions": result.decisions,
        "attempts": result.attempts,
        "steps": tuple(steps),
    }


async def _query_progress(delivery: Delivery, unread: list[str]) -> Progress | None:
    """Query the workflow for its progress; None where no worker answers, which is added to `unread`."""
    try:
        return await delivery.progress()
    except PerdureError:
        unread.append("no worker answers: steps and costs are as history has them")
        return None


def _result_so_far(
    progress: Progress, state: DeliveryState, request: DeliveryRequest, id: str, run_id: str
) -> DeliveryResult:
    """Return a result of what there is so far: the workflow's own numbers over those in `state`, which is changed."""
    state.steps, state.spending.usage, state.spending.spend = progress.steps, progress.usage, progress.spend
    state.publishing.pull_request, state.building.head = progress.pull_request, progress.head_sha or state.building.head
    result = result_of(state, request, id, run_id)
    return result.model_copy(update={"decisions": tuple(progress.decisions)})
