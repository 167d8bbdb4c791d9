"""That a request comes from the home whose worker carries it out: a keyed hash of everything it says."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from perdure.models.ids import SCHEDULED, delivery_key

CHANGED_BY_RETRY = frozenset({"proof", "resume", "budget_usd", "tokens"})
"""Neither names a file of the host, and `perdure retry` may give another."""


def proof(key: bytes, delivery: str, request: Mapping[str, Any]) -> str:
    """Of one request for one delivery. `request` is JSON without what is left out or is a default.

    `delivery`: its workflow id or its key, which are the same to a proof: an activity knows the key alone.

    Whoever reads it in history can start that very request under that very id again, and nothing else.
    """
    return _sealed(key, "request", delivery_key(delivery), request)


def schedule_proof(key: bytes, schedule: str, request: Mapping[str, Any]) -> str:
    """Of one request for all that a schedule of this id starts, and for nothing else.

    Whoever reads it in history can start that very request under such ids, at other times too.
    """
    return _sealed(key, "scheduled request", schedule, request)


def proves(given: str | None, key: bytes, delivery: str, request: Mapping[str, Any]) -> bool:
    """`delivery`: as for `proof`; what a schedule has started is known by its workflow id alone."""
    if given is None:
        return False
    valid = [proof(key, delivery, request)]
    if (scheduled := SCHEDULED.fullmatch(delivery)) is not None:
        valid.append(schedule_proof(key, scheduled[1], request))
    return any(hmac.compare_digest(given.encode(), one.encode()) for one in valid)


def _sealed(key: bytes, kind: str, name: str, request: Mapping[str, Any]) -> str:
    said = {field: value for field, value in request.items() if field not in CHANGED_BY_RETRY}
    return seal(key, kind, json.dumps([name, said], sort_keys=True).encode())


def seal(key: bytes, kind: str, data: bytes) -> str:
    """`kind` tells what is sealed: one of these never counts for another."""
    return hmac.new(key, kind.encode() + b"\0" + data, hashlib.sha256).hexdigest()
