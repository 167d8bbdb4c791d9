"""One pace for all requests with a model's key on this host: a pause that the API asks one for is everybody's.

A small file says so, below PERDURE_HOME, so that it holds for all workers of a home and outlives them. It is there only
from an answer 429 or 529 until requests go as they like again: else a request costs one look for it. After the pause
they go one by one, `gap` seconds after each other; each reply that begins halves the gap, each new refusal doubles it.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from perdure.adapters.agents.builtin.errors import RETRY_AFTER_CAP_S
from perdure.adapters.system.files import locked, write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import RETRY_PAUSE_MODEL_S
from perdure.models.errors import ModelUnavailable
from perdure.models.proof import seal

PACE_JITTER = 0.1
"""Of a pause, at most, on top of it: several hosts with one key do not come back at the same moment."""

PACE_GAP_S = (0.05, 0.5, 10.0)
"""Between two requests after a pause: the one below which they go as they like, the first, the longest."""

PACE_WAIT_S = 1800.0
"""The most one attempt at a turn waits; then it ends as one that failed for a passing reason, and is done again."""

_LOOK_S = 1.0
"""Between two looks of those who wait: a pause may be longer by now, and people are told how long it is."""


@dataclass(frozen=True)
class _Slow:
    """The file. `until`, `next`: no request before; `why` people are told; `refusals` since a reply began."""

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
    """That of one key at one address. Its times are of the machine's clock, which every worker shares."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @classmethod
    def of(cls, home: Home, model: HasAccount) -> Pace:
        return cls(home.root / "pace" / seal(home.key(), "pace", model.account.encode())[:32])

    async def turn(self, say: Callable[[str], None]) -> float:
        """Wait until a request may go; returns the seconds waited. `say` is told why, once a second.

        Raises ModelUnavailable after PACE_WAIT_S.
        """
        began = time.monotonic()
        while self._file.exists():
            wait, why = await in_thread(self._next)
            if wait <= 0:
                break
            if time.monotonic() - began > PACE_WAIT_S:
                what = f"the model's {why} has let nothing through for {PACE_WAIT_S / 60:g} minutes"
                raise ModelUnavailable(what, limited=why)
            say(f"the model's {why}: goes on in {max(1, round(wait))} s")
            await asyncio.sleep(min(wait, _LOOK_S))
        return time.monotonic() - began

    def refused(self, error: ModelUnavailable) -> None:
        """Nobody asks before the time the API has named, or a pause that doubles where it named none."""
        least, first, most = PACE_GAP_S
        shortest, longest = RETRY_PAUSE_MODEL_S
        with locked(self._lock):
            now, slow = time.time(), self._read()
            if slow is None:
                slow = _Slow(0.0, 0.0, first, error.limited, 1)
            elif now >= slow.until:  # answers of the same moment are one refusal
                slow = replace(slow, gap=min(most, 2 * slow.gap), why=error.limited, refusals=slow.refusals + 1)
            pause = error.retry_after
            if pause is None:
                pause = min(longest, shortest * 2 ** min(slow.refusals - 1, 10))
            until = now + max(least, pause) * (1 + random.uniform(0, PACE_JITTER))  # noqa: S311  # not a secret
            self._write(replace(slow, until=max(until, slow.until)))

    def answered(self) -> None:
        """A reply has begun: the next requests may come closer to each other."""
        if not self._file.exists():
            return
        with locked(self._lock):
            slow = self._read()
            if slow is not None and time.time() >= slow.until:  # else it was asked for before the pause
                gap = slow.gap / 2
                faster = replace(slow, next=slow.next - gap, gap=gap, refusals=0)
                self._write(faster if gap >= PACE_GAP_S[0] else None)

    def _next(self) -> tuple[float, str]:
        """Seconds until a request may go, and why it may not; 0: this one goes, and the next one after the gap."""
        with locked(self._lock):
            now, slow = time.time(), self._read()
            if slow is None:
                self._write(None)
                return 0.0, ""
            if (wait := max(slow.until, slow.next) - now) <= 0:
                self._write(replace(slow, next=now + slow.gap))
            return wait, slow.why

    @property
    def _lock(self) -> Path:
        return self._file.with_suffix(".lock")

    def _read(self) -> _Slow | None:
        """None without one, and for one that is damaged or of a clock that was set back."""
        with suppress(OSError, ValueError, TypeError):
            slow = _Slow(**json.loads(self._file.read_bytes()))
            if max(slow.until, slow.next) - time.time() <= (1 + PACE_JITTER) * RETRY_AFTER_CAP_S:
                return slow
        return None

    def _write(self, slow: _Slow | None) -> None:
        if slow is None:
            self._file.unlink(missing_ok=True)
        else:
            write_whole(self._file, json.dumps(asdict(slow)).encode(), sync=False)
