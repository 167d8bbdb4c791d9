"""A pace for all requests with a model's key on this machine, so that a pause which the API asks one request for holds
for all. Used by the turns of both kinds of agents, through `PaidReplies`.

A server that answers few requests at a time has a setting for how many of them may be under way (`[model] at_once`):
all others wait here, visibly, and not in the server's queue.

A small file keeps the pace, below PERDURE_HOME, so that it holds for all workers of a home and outlives them. The file
is there only from an answer 429 or 529 until requests may go freely again: without it a request costs one check of the
file. After the pause requests go one by one, `gap` seconds after each other; each reply that begins halves the gap,
each new refusal doubles it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from perdure.adapters.agents.builtin.errors import RETRY_AFTER_CAP_S
from perdure.adapters.sandbox.base import HostSlots
from perdure.adapters.system.backoff import doubled_pause, spread_pause
from perdure.adapters.system.files import hold_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.models.delivery.request import keyed_hash
from perdure.models.errors import ModelUnavailable
from perdure.models.limits import MODEL_PAUSE, MODEL_PAUSE_MAX

PACE_JITTER = 0.1
"""The most that is added to a pause, as a part of it: several hosts with one key do not come back at the same
moment."""

PACE_GAP_S = (0.05, 0.5, 10.0)
"""Seconds between two requests after a pause: the gap below which they go as they like, the first gap, the longest."""

PACE_WAIT_S = 1800.0
"""The most seconds one attempt at a turn waits; then it ends as one that failed for a passing reason, and is done
again."""

_LOOK_S = 1.0
"""Seconds between two looks of those who wait: a pause may be longer by now, and people are told how long it is."""


@dataclass(frozen=True)
class _PaceState:
    """The file's content. `until`, `next`: times before which no request goes; `gap`: seconds between two; `why`: what
    people are told; `refusals`: since a reply began."""

    until: float
    next: float
    gap: float
    why: str
    refusals: int = 0


class HasAccount(Protocol):
    """A model, or what is behind an agent's proxy: both have the same pace when key and address are the same."""

    @property
    def account(self) -> str: ...


class Pace:
    """The pace of requests with one key at one address. Its times are of the machine's clock, which every worker
    shares. `slots`: what a request holds while it is under way; None: any number may be."""

    def __init__(self, file: Path, slots: HostSlots | None = None) -> None:
        self._file, self._slots = file, slots

    @classmethod
    def for_model(cls, home: Home, model: HasAccount, at_once: int | None = None) -> Pace:
        """Return the pace of a model's key and address in this home, with `at_once` requests under way at the most."""
        file = home.root / "pace" / keyed_hash(home.key(), "pace", model.account.encode())[:32]
        users = "other requests to the model's server are under way"
        return cls(file, HostSlots(file.with_suffix(".slots"), at_once, users) if at_once else None)

    @asynccontextmanager
    async def hold_slot(self, say: Callable[[str], None]) -> AsyncIterator[float]:
        """Hold one of the slots for requests under way while the block runs, and yield the seconds waited for it. Waits
        as long as it takes; `say` is called with the reason meanwhile. The end of this process frees the slot."""
        started_at = time.monotonic()
        async with self._slots.acquire_slot(say) if self._slots else nullcontext():
            yield time.monotonic() - started_at

    async def wait_for_turn(self, say: Callable[[str], None]) -> float:
        """Wait until a request may go, put the next request off by the gap, and return the seconds waited; at once
        where no file says that requests have to wait. `say` is called with the reason at least once a second meanwhile.
        Raises ModelUnavailable after PACE_WAIT_S."""
        started_at = time.monotonic()
        while self._file.exists():
            wait, why = await in_thread(self._reserve_next)
            if wait <= 0:
                break
            if time.monotonic() - started_at > PACE_WAIT_S:
                message = f"the model's {why} has let nothing through for {PACE_WAIT_S / 60:g} minutes"
                raise ModelUnavailable(message, limit_reason=why)
            say(f"the model's {why}: goes on in {max(1, round(wait))} s")
            await asyncio.sleep(min(wait, _LOOK_S))
        return time.monotonic() - started_at

    def record_refusal(self, error: ModelUnavailable) -> None:
        """Record a refusal by the API, with its reason: no request goes before the time that the API has named, or
        before a pause that doubles where it named none; the gap between requests after that doubles, too. Refusals
        during a pause count as one."""
        least, first, most = PACE_GAP_S
        with hold_lock(self._lock_path):
            now, state = time.time(), self._read_state()
            if state is None:
                state = _PaceState(0.0, 0.0, first, error.limit_reason, 1)
            elif now >= state.until:  # answers of the same moment are one refusal
                state = replace(
                    state, gap=min(most, 2 * state.gap), why=error.limit_reason, refusals=state.refusals + 1
                )
            pause = doubled_pause(state.refusals, MODEL_PAUSE, MODEL_PAUSE_MAX)
            if error.retry_after is not None:
                pause = timedelta(seconds=max(least, error.retry_after))
            until = now + spread_pause(pause, PACE_JITTER).total_seconds()
            self._write_state(replace(state, until=max(until, state.until)))

    def record_reply(self) -> None:
        """Record that a reply has begun: the gap to the next requests is halved. Once it is small enough the file is
        deleted. Does nothing without a file, and during a pause, when the request was sent before the pause began."""
        if not self._file.exists():
            return
        with hold_lock(self._lock_path):
            state = self._read_state()
            if state is not None and time.time() >= state.until:  # else it was asked for before the pause
                gap = state.gap / 2
                faster = replace(state, next=state.next - gap, gap=gap, refusals=0)
                self._write_state(faster if gap >= PACE_GAP_S[0] else None)

    def _reserve_next(self) -> tuple[float, str]:
        """Return the seconds until a request may go, and the reason why it may not. 0 or less: this request goes, and
        the next one is put off by the gap. Without a readable file (0, ""), and a damaged one is deleted."""
        with hold_lock(self._lock_path):
            now, state = time.time(), self._read_state()
            if state is None:
                self._write_state(None)
                return 0.0, ""
            if (wait := max(state.until, state.next) - now) <= 0:
                self._write_state(replace(state, next=now + state.gap))
            return wait, state.why

    @property
    def _lock_path(self) -> Path:
        return self._file.with_suffix(".lock")

    def _read_state(self) -> _PaceState | None:
        """Return the file's content; None without a file, and for one that is damaged or of a clock that was set
        back."""
        with suppress(OSError, ValueError, TypeError):
            state = _PaceState(**json.loads(self._file.read_bytes()))
            if max(state.until, state.next) - time.time() <= (1 + PACE_JITTER) * RETRY_AFTER_CAP_S:
                return state
        return None

    def _write_state(self, state: _PaceState | None) -> None:
        """Write the file; delete it for None."""
        if state is None:
            self._file.unlink(missing_ok=True)
        else:
            write_whole(self._file, json.dumps(asdict(state)).encode(), sync=False)
