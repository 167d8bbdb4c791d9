"""Kills the demo's worker, by itself or when a key is pressed, and tells every death and who took over."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from perdure.adapters.system.home import Home
from perdure.cli.look.chapters import BAD, LEFT
from perdure.cli.look.story import AGAIN
from perdure.client import Described, Pending
from perdure.local.places import Places, read_supervisor
from perdure.local.processes import last_lines, signal_holder
from perdure.models.errors import PerdureError
from perdure.models.limits import DEMO_KILLS_MOST, WORKER_QUICK_DEATHS
from perdure.models.phases import Step
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from perdure.text import one_line

KILLER_LOOK_S = 0.02
"""Seconds between the demo's looks for the moment to kill: a reply is to be cut in its middle, not at its end."""


@dataclass(frozen=True)
class Strike:
    """A moment to kill at: while the reply of a turn arrives, or while the tools it asked for run."""

    step: Step
    turn: int
    during: Literal["reply", "tool"]


STRIKES = (
    Strike(Step.IMPLEMENT, 2, "reply"),
    Strike(Step.FIX_TESTS, 3, "tool"),
    Strike(Step.PLAN, 3, "reply"),
    Strike(Step.FIX_REVIEW, 2, "reply"),
)
"""In the order in which they are chosen; turns of examples/durations.toml that take long enough to be hit."""

assert len(STRIKES) == DEMO_KILLS_MOST


@dataclass(frozen=True)
class Moment:
    """A worker's work at one moment. `turn` 0: no turn; `half`: a reply is half received."""

    step: str = ""
    turn: int = 0
    half: bool = False
    doing: str = ""

    @property
    def place(self) -> str:
        return f"{self.step}, turn {self.turn}" if self.turn else self.step

    def death(self) -> str:
        if not self.step:
            return "between two steps"
        if self.half:
            return f"in the middle of {self.place}: the reply was half received"
        return f"in the middle of {self.place}" + (f": {one_line(self.doing, 60)}" if self.doing else "")

    def takeover(self) -> str:
        if not self.turn:
            return f"{self.step} again" if self.step else "nothing was cut off"
        kept = "" if self.half else ("; its reply was kept and is not paid for again" if self.doing else "")
        return f"turn {self.turn} again from its checkpoint{kept}"


def paced(screenplay: Screenplay, strikes: Sequence[Strike]) -> Screenplay:
    """The same screenplay without waiting, but for the replies that are to be cut: those take a second."""
    slow = {(strike.step, strike.turn) for strike in strikes if strike.during == "reply"}
    lines = tuple(
        line.model_copy(update={"seconds": 1.0 if (line.step, line.turn) in slow else 0.0}) for line in screenplay.lines
    )
    return replace(screenplay, script=screenplay.script.model_copy(update={"line": lines}))


class Killer:
    """Watches one home's worker, at first the process `worker`.

    `say` gets a line for each death and one for each takeover.
    `saw` wants every look at the delivery; `run` works until it is cancelled.
    """

    def __init__(
        self, home: Home, worker: int, rehearsal: Rehearsal, strikes: Sequence[Strike], say: Callable[[str], None]
    ) -> None:
        self._home, self._rehearsal, self._say = home, rehearsal, say
        self._strikes = list(strikes)
        self._pending: Sequence[Pending] = ()
        self._worker = worker
        self._killed: dict[int, str] = {}
        self._dead: Moment | None = None
        self._half_from: tuple[int, float] = (0, 0.0)
        self._calls_told = 0
        self._unborn = 0

    @property
    def killed(self) -> int:
        """Workers that were killed here, not such as died by themselves."""
        return sum(1 for how in self._killed.values() if how != "died")

    def saw(self, described: Described) -> Described:
        """Remember what is in flight, and pass on the same without deaths: those are told here, with names."""
        self._pending = described.pending
        self._tell_takeover()
        told = tuple(replace(p, died=False, failure="") if p.died else p for p in described.pending)
        return replace(described, pending=told)

    def strike(self, by: str = "killed") -> None:
        """SIGKILL for the worker that lives now."""
        worker, moment = self._worker, self._moment()
        if worker in self._killed:
            self._say(f"{LEFT} worker {worker} is dead already, the next one is not there yet")
        elif signal_holder(worker, Places(self._home).worker_lock, signal.SIGKILL):
            self._killed[worker] = by
            self._tell_death(worker, moment)

    async def run(self) -> None:
        """Raises PerdureError when workers die again and again without having begun: then none can start."""
        while self._unborn < WORKER_QUICK_DEATHS:
            self._look_at_worker()
            if self._strikes and (strike := self._due()):
                self._strikes.remove(strike)
                self.strike()
            await asyncio.sleep(KILLER_LOOK_S)
        log = Places(self._home).worker_log
        raise PerdureError(f"the worker does not start: {last_lines(log, lines=3)}", fix="perdure doctor")

    def _look_at_worker(self) -> None:
        record = read_supervisor(self._home)
        if record is None or record.worker_pid in (None, self._worker):
            return
        before, self._worker = self._worker, record.worker_pid
        if before not in self._killed:
            self._killed[before] = "died"
            self._unborn += 1
            self._tell_death(before, self._moment())

    def _due(self) -> Strike | None:
        now = self._moment()
        for strike in self._strikes:
            if (strike.step, strike.turn) == (now.step, now.turn):
                if strike.during == "reply" and now.half and self._is_halfway():
                    return strike
                if strike.during == "tool" and now.doing:
                    return strike
        return None

    def _is_halfway(self) -> bool:
        """True where half of the time that the latest reply takes is over."""
        call, now = self._rehearsal.calls[-1], asyncio.get_running_loop().time()
        if self._half_from[0] != call.number:
            self._half_from = (call.number, now)
        line = self._rehearsal.screenplay.lines[(call.line or 1) - 1]
        return now - self._half_from[1] >= line.seconds / 2

    def _moment(self) -> Moment:
        """Return what goes on; for a worker that has just died, what went on."""
        calls = self._rehearsal.calls
        last = calls[-1] if calls else None
        if last and last.step and last.number > self._calls_told and (not last.ended or last.dropped):
            return Moment(last.step, last.turn, half=True)
        step = next((p for p in self._pending if p.activity in tuple(Step)), None)
        if step is None:
            return Moment()
        turn = step.details.get("turn")
        return Moment(step.activity, turn if isinstance(turn, int) else 0, doing=str(step.details.get("doing") or ""))

    def _tell_death(self, worker: int, moment: Moment) -> None:
        self._dead = moment
        self._calls_told = max((call.number for call in self._rehearsal.calls[-1:]), default=0)
        self._say(f"{BAD} worker {worker} {self._killed[worker]} {moment.death()}")

    def _tell_takeover(self) -> None:
        """Once the new worker is seen to have something in hand."""
        if self._dead is None or self._worker in self._killed:
            return
        if any(p.worker.partition("@")[0] == str(self._worker) for p in self._pending):
            self._unborn = 0
            self._say(f"{AGAIN} worker {self._worker} took over: {self._dead.takeover()}")
            self._dead = None
