"""Watching a delivery or a backlog until it ends: live on a terminal, elsewhere the same lines one by one; and the exit
codes of commands that do. Used by the commands that submit, retry or watch, and by the demo."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import typer
from rich.text import Text
from temporalio.exceptions import TemporalError

from perdure.cli.decide.gate import decide_at_gate, gate_choices
from perdure.cli.keys import is_at_terminal
from perdure.cli.look.follower import LOOK_RARELY_S, LOOK_S, WATCH_LOST_S, RunFollower
from perdure.cli.screen import Screen
from perdure.local.connect import WORKER_STARTING, no_worker_reason
from perdure.models.backlog.state import BacklogProgress
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.delivery.result import SUCCESSES, DeliveryResult, Status
from perdure.models.delivery.state import Progress
from perdure.models.errors import PerdureError, not_begun_text
from perdure.models.limits import WATCH_SILENCE_S
from perdure.render.backlog.text import change_lines, headline, status_lines, waiting_item_rows
from perdure.render.decision_lines import pending_lines
from perdure.render.progress_lines import ProgressReporter, closing_lines
from perdure.render.step_lines import WARN, format_row, phase_bar
from perdure.text import one_line, shell_word

if TYPE_CHECKING:
    from rich.live import Live

    from perdure.client import Backlog, Delivery, RunDescription


TURNS_SHOWN = 4
"""Turns shown above the line about this moment: the current one and those before it."""

ASK_AGAIN_S = 5.0
"""Seconds after which a workflow is queried again although its history has not grown: its worker may have died."""


EXIT_MISSING, EXIT_WAITS, EXIT_CANCELLED, EXIT_DETACHED = 1, 4, 5, 130


def exit_code(result: DeliveryResult) -> int:
    """Return the exit code: 0 where what was asked for exists, 1 where it does not, 5 where it was cancelled."""
    if result.status in SUCCESSES:
        return 0
    return EXIT_CANCELLED if result.status == Status.CANCELLED else EXIT_MISSING


async def follow_delivery(delivery: Delivery, screen: Screen, *, wait: bool = True) -> int:
    """Show a delivery until it ends, print how it ended, and return the exit code: 0, 1, or 5 when it was cancelled.

    With `wait` False, prints how to come back and returns 4 as soon as it waits for something. Raises
    TemporalUnreachable when the server has been away for WATCH_LOST_S, PerdureError when the delivery ended without a
    result.
    """
    watcher = DeliveryWatcher(delivery, screen)
    result = await watcher.watch(wait=wait)
    if result is None:
        for line in come_back_lines(delivery.id, "Left", "waits"):
            screen.say(line)
        return EXIT_WAITS
    if screen.json:
        screen.print_json(result.model_dump_json(indent=2))
    else:
        screen.print_lines(["", *closing_lines(result, watcher.elapsed_s)])
    return exit_code(result)


def print_detached(screen: Screen, id: str) -> typer.Exit:
    """Print that the work goes on after Ctrl-C, and how to come back; return the exit to raise."""
    for line in ["", *come_back_lines(id, "Left")]:
        screen.say(line)
    return typer.Exit(EXIT_DETACHED)


def come_back_lines(id: str, word: str, state: str = "goes on") -> list[str]:
    """Return what happened (`word`), that the delivery goes on or waits (`state`), and the commands to come back or
    cancel."""
    quoted_id = shell_word(id)
    return [
        f"{word}: {id} {state}",
        f"  come back  perdure watch {quoted_id}",
        f"  cancel     perdure cancel {quoted_id}",
    ]


class DeliveryWatcher:
    """Looks at one delivery again and again, and shows it. Survives servers and workers that go away and come back.

    reporter   one that has reported the beginning already
    transform  applied to each description before it is shown: to see it, or to change what of it is shown
    look_s     seconds between two looks at what changes, at least
    """

    def __init__(
        self,
        delivery: Delivery,
        screen: Screen,
        *,
        reporter: ProgressReporter | None = None,
        transform: Callable[[RunDescription], RunDescription] | None = None,
        look_s: float = LOOK_S,
    ) -> None:
        self._delivery, self._screen = delivery, screen
        self._look_s = look_s
        self._reporter = reporter or ProgressReporter(width=screen.width)
        self._transform = transform
        self._described: RunDescription | None = None
        self._progress: Progress | None = None
        self._news = asyncio.Event()
        self._printed_decision = ""
        self._postponed: set[str] = set()
        self._turn_lines: dict[str, str] = {}
        self._answered_at = time.monotonic()
        self.elapsed_s: float | None = None

    async def watch(self, *, wait: bool = True) -> DeliveryResult | None:
        """Show the delivery until it ends, and return its result; None with `wait` False, as soon as it waits for
        somebody or something.

        On a terminal the person is asked for decisions that a key can take. Raises TemporalUnreachable when the server
        has been away for WATCH_LOST_S, and PerdureError when the delivery ended without a result.
        """
        is_shown = not (self._screen.json and wait)
        follower = RunFollower(
            self._delivery,
            self._screen,
            f"perdure watch {shell_word(self._delivery.id)}",
            self._look_s if is_shown else LOOK_RARELY_S,
        )
        look_task = asyncio.create_task(self._look_forever(follower))
        query_task = asyncio.create_task(self._query_forever()) if is_shown else None
        try:
            with self._screen.live_display() as live:
                while True:
                    if look_task.done():
                        look_task.result()
                    if (described := self._described) is not None:
                        self._show_state(described, live)
                        if described.closed is not None:
                            self.elapsed_s = (described.closed - described.started).total_seconds()
                        if not described.running:
                            return await self._print_rest()
                        if not wait and self._is_waiting(described):
                            return None
                        if wait and live is not None and (decision := self._decision_to_ask(described)) is not None:
                            await self._ask_for_decision(decision, live)
                            follower.look_soon()
                    await self._wait_for_news()
        finally:
            look_task.cancel()
            follower.stop_waiting()
            if query_task is not None:
                query_task.cancel()

    async def _look_forever(self, follower: RunFollower[Delivery]) -> None:
        """Look at the delivery until it has ended. Raises TemporalUnreachable when the server is away for too long."""
        try:
            while self._described is None or self._described.running:
                described = await follower.describe()
                self._delivery = follower.workflow
                if described is not None:
                    self._described = self._transform(described) if self._transform is not None else described
                    self._news.set()
                    if not described.running:
                        return
                await follower.wait_for_next_look()
        finally:
            self._news.set()

    async def _wait_for_news(self) -> None:
        """Wait until something was learned, a second at most: what is shown counts seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._look_s):
                await self._news.wait()
        self._news.clear()

    def _decision_to_ask(self, described: RunDescription) -> PendingDecision | None:
        """Return the decision to ask the person for now: one that a key can take and that was not asked before; else
        None."""
        decision = self._progress.pending_decision if self._progress is not None else None
        if (
            decision is None
            or described.pending_decision is None
            or decision.key != described.pending_decision.key
            or decision.key in self._postponed
        ):
            return None
        return decision if gate_choices(decision) and is_at_terminal() else None

    async def _ask_for_decision(self, decision: PendingDecision, live: Live) -> None:
        """Stop the live view, ask the person for the decision, once, and start the view again.

        Where they leave it for later, the command for it is printed.
        """

        async def open() -> bool:
            current = self._progress.pending_decision if self._progress is not None else None
            return current is not None and current.key == decision.key

        live.stop()
        self._postponed.add(decision.key)
        if not await decide_at_gate(self._delivery, decision, self._screen, is_open=open):
            self._screen.print_line(f"  left for later: perdure approve {shell_word(self._delivery.id)}; Ctrl-C leaves")
        live.start()

    def _is_waiting(self, described: RunDescription) -> bool:
        """Return whether the delivery waits: by the workflow's own word; where no worker answers, by the decision it
        last recorded."""
        if time.monotonic() - self._answered_at > WATCH_SILENCE_S:
            return described.pending_decision is not None
        return self._progress is not None and bool(self._progress.waiting)

    def _show_state(self, described: RunDescription, live: Live | None) -> None:
        """Print the lines that are new while it runs, and draw the live view: phase, last turns, the line about this
        moment.

        With --json only what it waits for is said.
        """
        if self._screen.json or self._progress is None:
            self._say_pending_decision(described)
        if self._screen.json:
            return
        now = time.monotonic()
        silence = self._silence_reason(described.begins, now - self._answered_at)
        if described.running:
            self._screen.print_lines(self._reporter.new_lines(self._progress, described.pending, silent=silence))
        if live is not None:
            line = self._reporter.current_line(self._progress, described.pending, now) if described.running else None
            last_line = self._screen.colour_mark(format_row(line, self._screen.width) if line else "")
            live.update(Text("\n").join([*map(Text, self._lines_above(described)), last_line]), refresh=True)

    def _lines_above(self, described: RunDescription) -> list[str]:
        """Return title, bar of phases and the turns before the current one, for above the line about this moment.

        Empty before a phase is known and once it has ended. Otherwise notes the turns in flight for later calls.
        """
        if not described.running or self._progress is None or not self._progress.phase:
            return []
        for activity in described.pending:
            turn, action = activity.details.get("turn"), activity.details.get("doing")
            if turn and action:
                text = one_line(str(action), min(60, self._screen.width - 12))
                self._turn_lines[f"{activity.activity} {turn}"] = f"  turn {turn}: {text}"
        self._turn_lines = dict(list(self._turn_lines.items())[-TURNS_SHOWN:])
        titles = [one_line(described.title, self._screen.width)] if described.title else []
        return [*titles, phase_bar(self._progress.phase), *list(self._turn_lines.values())[:-1]]

    def _silence_reason(self, begins: datetime | None, seconds: float) -> str:
        """Return the reason why no worker has answered for that many seconds; empty while that is too short to be
        reported. One that has not begun, and `begins` later, says so at once."""
        if begins is not None:
            return not_begun_text("it", begins)
        if seconds <= WATCH_SILENCE_S:
            return ""
        reason = no_worker_reason()
        return reason if reason != WORKER_STARTING or seconds > WATCH_LOST_S else ""

    def _say_pending_decision(self, described: RunDescription) -> None:
        """Print what it waits for, once a decision, where nothing else says so: before any worker has answered, and to
        programs."""
        key = described.pending_decision.key if described.pending_decision is not None else ""
        if described.pending_decision is not None and key != self._printed_decision:
            for line in pending_lines(described.pending_decision, self._delivery.id):
                self._screen.say(line)
            self._reporter.decision_key = key
        self._printed_decision = key

    async def _query_forever(self) -> None:
        """Query the workflow for its progress until cancelled, whenever its history has grown, and to see whether a
        worker answers: a query waits for seconds when none takes it."""
        queried_state: object = None
        while True:
            state = (self._described.run_id, self._described.events) if self._described is not None else None
            is_due = state != queried_state or time.monotonic() - self._answered_at >= ASK_AGAIN_S
            if state is not None and is_due and await self._query_progress():
                queried_state = state
            await asyncio.sleep(self._look_s)

    async def _query_progress(self) -> bool:
        """Query the workflow for its progress, keep the answer and return True; False without one: errors are ignored,
        and so is an answer about another run than the one that this home's server has described."""
        with suppress(PerdureError, TemporalError):  # seen by the time that has passed since the last answer
            progress = await self._delivery.progress(once=True)
            if self._described is not None and progress.run_id == self._described.run_id:
                self._progress, self._answered_at = progress, time.monotonic()
                self._news.set()
                return True
        return False

    async def _print_rest(self) -> DeliveryResult:
        """Wait for the result and return it, once the steps that ended between the last look and the end are printed.

        With --json nothing is printed. Raises PerdureError when the delivery ended without a result.
        """
        result = await self._delivery.result()
        if not self._screen.json:
            self._screen.print_lines(self._reporter.last_lines(result.steps, self._progress))
        return result


def backlog_exit_code(progress: BacklogProgress) -> int:
    """Return the exit code for an ended backlog: 0 if every item landed, was skipped or was decomposed, 1 if not, 5 if
    it was cancelled."""
    if progress.status == "cancelled":
        return EXIT_CANCELLED
    return 0 if all(view.phase in ("landed", "skipped", "decomposed") for view in progress.items) else EXIT_MISSING


def leave_backlog(screen: Screen, id: str) -> typer.Exit:
    """Print that the backlog goes on and the commands to come back or cancel it; return the exit to raise after
    Ctrl-C."""
    quoted_id = shell_word(id)
    for line in ("", f"Left: {id} goes on", f"  come back  perdure backlog status {quoted_id} --watch"):
        screen.say(line)
    screen.say(f"  cancel     perdure backlog cancel {quoted_id}")
    return typer.Exit(EXIT_DETACHED)


async def follow_backlog(backlog: Backlog, screen: Screen) -> int:
    """Show the backlog until it ends, print its result and return the exit code: 0, 1, or 5 when it was cancelled.

    Servers and workers may go away and come back meanwhile; both are reported. Raises TemporalUnreachable when the
    server has been away for WATCH_LOST_S, and PerdureError when the backlog failed without a result.
    """
    previous: BacklogProgress | None = None
    answered_at, asked_events = time.monotonic(), 0
    is_silence_reported = False
    come_back = f"perdure backlog status {shell_word(backlog.id)} --watch"
    follower = RunFollower(backlog, screen, come_back, LOOK_RARELY_S if screen.json else LOOK_S)
    try:
        with screen.live_display() as live:
            while (described := await follower.describe()) is None or described.running:
                now = time.monotonic()
                if described is not None and (described.events != asked_events or now - answered_at >= ASK_AGAIN_S):
                    try:
                        progress = await follower.workflow.progress(once=True)
                    except (PerdureError, TemporalError):
                        if not is_silence_reported and now - answered_at > WATCH_SILENCE_S:
                            is_silence_reported = True
                            begins = described.begins
                            reason = not_begun_text("it", begins) if begins is not None else no_worker_reason()
                            screen.say(f"{WARN} {reason}")
                    else:
                        answered_at, is_silence_reported, asked_events = now, False, described.events
                        _show_progress(screen, live, previous, progress)
                        previous = progress
                await follower.wait_for_next_look()
    finally:
        follower.stop_waiting()
    backlog = follower.workflow
    result = await backlog.result()
    if screen.json:
        screen.print_json(result.model_dump_json(indent=2))
    else:
        screen.print_lines(change_lines(previous, result))
        quoted_id = shell_word(backlog.id)
        screen.print_lines(["", *status_lines(result), "", f"next  perdure backlog report {quoted_id}"])
        if backlog_exit_code(result):
            screen.print_line(f"      perdure backlog retry {quoted_id}   goes on with what did not land")
    return backlog_exit_code(result)


def _show_progress(
    screen: Screen, live: Live | None, previous: BacklogProgress | None, progress: BacklogProgress
) -> None:
    """Print what has changed since `previous`, and update the live lines with headline and waiting items."""
    if not screen.json:
        screen.print_lines(change_lines(previous, progress))
    if live is not None:
        live.update("\n".join([headline(progress), *waiting_item_rows(progress, {})]), refresh=True)
