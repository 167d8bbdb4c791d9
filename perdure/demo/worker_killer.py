"""The killer of the worker in the demo of one delivery: it kills by itself or when a key is pressed, and reports every
death and who took over. The demo of a backlog kills in `perdure.demo.demos`, and uses only `without_waiting` of
this."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from perdure.adapters.system.home import Home
from perdure.client import PendingActivity, RunDescription
from perdure.local.places import Places, read_running_supervisor
from perdure.local.processes import last_lines, signal_lock_holder
from perdure.models.errors import PerdureError
from perdure.models.limits import DEMO_KILLS_MOST, WORKER_QUICK_DEATHS
from perdure.models.phases import Step
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from perdure.render.progress_lines import RETRY
from perdure.render.step_lines import BAD, NEUTRAL
from perdure.text import one_line

KILLER_POLL_S = 0.02
"""Seconds between the demo's looks for the moment to kill: a reply is to be cut in its middle, not at its end."""


@dataclass(frozen=True)
class KillPoint:
    """A moment to kill at: while the reply of a turn arrives, or while the tools it asked for run."""

    step: Step
    turn: int
    during: Literal["reply", "tool"]


KILL_POINTS = (
    KillPoint(Step.IMPLEMENT, 2, "reply"),
    KillPoint(Step.FIX_TESTS, 3, "tool"),
    KillPoint(Step.PLAN, 3, "reply"),
    KillPoint(Step.FIX_REVIEW, 2, "reply"),
)
"""The moments to kill at, in the order in which they are chosen: turns of examples/durations.toml that take long enough
to be hit."""

assert len(KILL_POINTS) == DEMO_KILLS_MOST


@dataclass(frozen=True)
class WorkMoment:
    """The activity of a worker at one moment.

    step, turn     the step, empty between two; the turn, 0 where it does no turn
    half_received  a reply is received in part
    doing          the tool call that runs, if any
    """

    step: str = ""
    turn: int = 0
    half_received: bool = False
    doing: str = ""

    @property
    def turn_name(self) -> str:
        """Return step and turn, `plan, turn 3`; the step alone where there is no turn."""
        return f"{self.step}, turn {self.turn}" if self.turn else self.step

    def death_text(self) -> str:
        """Return where a worker died, as the end of a sentence: between two steps, in the middle of a turn's reply, or
        while a tool ran."""
        if not self.step:
            return "between two steps"
        if self.half_received:
            return f"in the middle of {self.turn_name}: the reply was half received"
        return f"in the middle of {self.turn_name}" + (f": {one_line(self.doing, 60)}" if self.doing else "")

    def takeover_text(self) -> str:
        """Return what the next worker does again, as the end of a sentence, and whether the turn's reply was kept."""
        if not self.turn:
            return f"{self.step} again" if self.step else "nothing was cut off"
        reply_note = (
            "" if self.half_received else ("; its reply was kept and is not paid for again" if self.doing else "")
        )
        return f"turn {self.turn} again from its checkpoint{reply_note}"


def without_waiting(screenplay: Screenplay, kill_points: Sequence[KillPoint]) -> Screenplay:
    """Return the screenplay with replies that come at once, but for those that are to be cut: they take a second."""
    slow_turns = {(kill_point.step, kill_point.turn) for kill_point in kill_points if kill_point.during == "reply"}
    script_lines = tuple(
        line.model_copy(update={"seconds": 1.0 if (line.step, line.turn) in slow_turns else 0.0})
        for line in screenplay.lines
    )
    return replace(screenplay, script=screenplay.script.model_copy(update={"line": script_lines}))


class WorkerKiller:
    """The killer of one home's worker, at first the process `worker`.

    `say` gets a line for each death and one for each takeover. `observe` has to be called with every look at the
    delivery; `kill_until_cancelled` works until it is cancelled.
    """

    def __init__(
        self,
        home: Home,
        worker: int,
        rehearsal: Rehearsal,
        kill_points: Sequence[KillPoint],
        say: Callable[[str], None],
    ) -> None:
        self._home, self._rehearsal, self._say = home, rehearsal, say
        self._kill_points = list(kill_points)
        self._pending: Sequence[PendingActivity] = ()
        self._worker = worker
        self._killed: dict[int, str] = {}
        self._death_moment: WorkMoment | None = None
        self._reply_started: tuple[int, float] = (0, 0.0)
        self._last_reported_call = 0
        self._failed_starts = 0

    @property
    def kill_count(self) -> int:
        """Return how many workers were killed here, without those that died by themselves."""
        return sum(1 for how in self._killed.values() if how != "died")

    def observe(self, described: RunDescription) -> RunDescription:
        """Remember what the delivery has in flight, report a takeover, and return the description without deaths in it:
        those are reported here, with the workers' ids."""
        self._pending = described.pending
        self._report_takeover()
        without_deaths = tuple(replace(p, died=False, failure="") if p.died else p for p in described.pending)
        return replace(described, pending=without_deaths)

    def kill_worker(self, how: str = "killed") -> None:
        """Kill the worker that lives now with SIGKILL, and report where that cut it off.

        Says so when that worker was killed before and the next one is not there yet; does nothing when it has just
        ended by itself. `how` is for the line: `killed by you`.
        """
        worker, moment = self._worker, self._current_moment()
        if worker in self._killed:
            self._say(f"{NEUTRAL} worker {worker} is dead already, the next one is not there yet")
        elif signal_lock_holder(worker, Places(self._home).worker_lock, signal.SIGKILL):
            self._killed[worker] = how
            self._report_death(worker, moment)

    async def kill_until_cancelled(self) -> None:
        """Watch the worker and kill it at each of the kill points, until this is cancelled. Raises PerdureError when
        workers die again and again before they have begun: then none can start."""
        while self._failed_starts < WORKER_QUICK_DEATHS:
            self._notice_new_worker()
            if self._kill_points and (kill_point := self._due_kill_point()):
                self._kill_points.remove(kill_point)
                self.kill_worker()
            await asyncio.sleep(KILLER_POLL_S)
        log = Places(self._home).worker_log
        raise PerdureError(f"the worker does not start: {last_lines(log, lines=3)}", fix="perdure doctor")

    def _notice_new_worker(self) -> None:
        """Read the worker's pid from the supervisor's record. Where it is a new one, and the worker before it was not
        killed here, count that as a failed start and report its death."""
        record = read_running_supervisor(self._home)
        if record is None or record.worker_pid in (None, self._worker):
            return
        previous, self._worker = self._worker, record.worker_pid
        if previous not in self._killed:
            self._killed[previous] = "died"
            self._failed_starts += 1
            self._report_death(previous, self._current_moment())

    def _due_kill_point(self) -> KillPoint | None:
        """Return the kill point that is reached now, because half of its turn's reply has come or its tool runs; None:
        there is none."""
        now = self._current_moment()
        for kill_point in self._kill_points:
            if (kill_point.step, kill_point.turn) == (now.step, now.turn):
                if kill_point.during == "reply" and now.half_received and self._is_halfway():
                    return kill_point
                if kill_point.during == "tool" and now.doing:
                    return kill_point
        return None

    def _is_halfway(self) -> bool:
        """Return whether half of the time that the latest reply takes is over. The clock of a reply starts when this is
        first called for it."""
        call, now = self._rehearsal.calls[-1], asyncio.get_running_loop().time()
        if self._reply_started[0] != call.number:
            self._reply_started = (call.number, now)
        line = self._rehearsal.screenplay.lines[(call.line or 1) - 1]
        return now - self._reply_started[1] >= line.seconds / 2

    def _current_moment(self) -> WorkMoment:
        """Return what the worker does now; for a worker that has just died, what it did.

        The rehearsal's last model call counts first, as a reply half received, where it has not ended or was dropped
        and no death was reported since it began. Else it is the first step that the delivery's last description has in
        flight; an empty moment where there is none.
        """
        calls = self._rehearsal.calls
        last_call = calls[-1] if calls else None
        if (
            last_call
            and last_call.step
            and last_call.number > self._last_reported_call
            and (not last_call.ended or last_call.dropped)
        ):
            return WorkMoment(last_call.step, last_call.turn, half_received=True)
        step = next((p for p in self._pending if p.activity in tuple(Step)), None)
        if step is None:
            return WorkMoment()
        turn = step.details.get("turn")
        return WorkMoment(
            step.activity, turn if isinstance(turn, int) else 0, doing=str(step.details.get("doing") or "")
        )

    def _report_death(self, worker: int, moment: WorkMoment) -> None:
        """Remember where a worker died, and report it in a line."""
        self._death_moment = moment
        self._last_reported_call = max((call.number for call in self._rehearsal.calls[-1:]), default=0)
        self._say(f"{BAD} worker {worker} {self._killed[worker]} {moment.death_text()}")

    def _report_takeover(self) -> None:
        """Report, once after a death, that the new worker is seen to have something in hand."""
        if self._death_moment is None or self._worker in self._killed:
            return
        if any(p.worker.partition("@")[0] == str(self._worker) for p in self._pending):
            self._failed_starts = 0
            self._say(f"{RETRY} worker {self._worker} took over: {self._death_moment.takeover_text()}")
            self._death_moment = None
