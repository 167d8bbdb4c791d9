"""Faults on demand: what goes wrong with which operation, and how often."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web

from tests.twins.github.answers import Problem
from tests.twins.github.smart_http import CUT, Cut, Moment, Visit

SOON_S = 1.0
"""How long a limit or a slow answer lasts unless told: GitHub's own minute would be a long test."""

UNICORN = "<html><head><title>Unicorn! &middot; GitHub</title></head><body>No server is available.</body></html>"


class Kind(StrEnum):
    """What a client sees. Nothing has happened, except where `after` or `stale` says so.

    rate_limit          403, the hour's budget is used up: x-ratelimit-reset says until when
    secondary           403 with retry-after: too much at once
    bad_gateway         502; `bad_gateway_after`: the same, and it has been done
    slow                the answer takes its time
    cut                 the connection is reset; `cut_after`: the same, and it has been done
    stale               a list without its newest entry, as a replica that lags behind shows it
    """

    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    RATE_LIMIT = "rate_limit"
    SECONDARY = "secondary"
    MISSING = "missing"
    INVALID = "invalid"
    BAD_GATEWAY = "bad_gateway"
    BAD_GATEWAY_AFTER = "bad_gateway_after"
    SLOW = "slow"
    CUT = "cut"
    CUT_AFTER = "cut_after"
    STALE = "stale"


AFTER = (Kind.BAD_GATEWAY_AFTER, Kind.CUT_AFTER)
ANY = "*"


@dataclass
class Fault:
    operation: str
    kind: Kind
    times: int
    seconds: float


class Faults:
    """Those to come, in the order in which they were added; each strikes `times` and is gone."""

    def __init__(self) -> None:
        self.waiting: list[Fault] = []
        self.struck: list[tuple[str, Kind]] = []

    def add(self, operation: str, kind: str, times: int = 1, retry_after: float | None = None) -> None:
        """`operation`: its id such as `pulls/create`, `git/push`, `git/fetch`, or `*`; `retry_after`: seconds, of a
        limit or a slow answer. ValueError for a kind that there is not."""
        self.waiting.append(Fault(operation, Kind(kind), times, SOON_S if retry_after is None else retry_after))

    def clear(self) -> None:
        self.waiting.clear()

    def take(self, operation: str, kinds: tuple[Kind, ...] = tuple(Kind)) -> Fault | None:
        """The next one for this operation, used up by being taken."""
        for fault in self.waiting:
            if fault.operation in (operation, ANY) and fault.kind in kinds:
                fault.times -= 1
                if fault.times <= 0:
                    self.waiting.remove(fault)
                self.struck.append((operation, fault.kind))
                return fault
        return None

    async def disturb(self, visit: Visit, moment: Moment) -> web.Response | Cut | None:
        """What goes wrong with git: before it begins, or after a push has been taken."""
        late = moment is Moment.DONE or (moment is Moment.ASKED and not visit.write)
        before = tuple(kind for kind in Kind if kind not in (*AFTER, Kind.STALE))
        if moment is Moment.ASKED and not late:
            return None
        fault = self.take(visit.operation, AFTER if late else before)
        if fault is None:
            return None
        if fault.kind is Kind.SLOW:
            await asyncio.sleep(fault.seconds)
            return None
        if fault.kind in (Kind.CUT, Kind.CUT_AFTER):
            return CUT
        if fault.kind in (Kind.BAD_GATEWAY, Kind.BAD_GATEWAY_AFTER):
            return web.Response(status=502, text=UNICORN, content_type="text/html")
        found = problem(fault)
        assert found is not None
        status = 429 if fault.kind in (Kind.RATE_LIMIT, Kind.SECONDARY) else found.status
        return web.Response(status=status, text=f"{found.message}\n", headers=found.headers)


def problem(fault: Fault) -> Problem | None:
    """The refusal of the API that a fault is, if it is one."""
    if fault.kind is Kind.RATE_LIMIT:
        reset = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(math.ceil(time.time() + fault.seconds))}
        return Problem(403, "API rate limit exceeded for user ID 1.", headers=reset)
    if fault.kind is Kind.SECONDARY:
        said = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
        return Problem(403, said, headers={"Retry-After": str(math.ceil(fault.seconds))})
    return {
        Kind.UNAUTHORIZED: Problem(401, "Bad credentials", headers={"WWW-Authenticate": 'Basic realm="GitHub"'}),
        Kind.FORBIDDEN: Problem(403, "Resource not accessible by personal access token"),
        Kind.MISSING: Problem(404, "Not Found"),
        Kind.INVALID: Problem(422, "Validation Failed", errors=[{"resource": "Twin", "code": "custom"}]),
    }.get(fault.kind)
