"""That a request comes from the home whose worker carries it out: a keyed hash of everything it says."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from perdure.models.ids import delivery_key

CHANGED_BY_RETRY = frozenset({"proof", "resume", "budget_usd", "tokens"})
"""Neither names a file of the host, and `perdure retry` may give another."""


def proof(key: bytes, delivery: str, request: Mapping[str, Any]) -> str:
    """Of one request for one delivery. `request` is JSON without what is left out or is a default.

    `delivery`: its workflow id or its key, which are the same to a proof: an activity knows the key alone.

    Whoever reads it in history can start that very request under that very id again, and nothing else.
    """
    said = {name: value for name, value in request.items() if name not in CHANGED_BY_RETRY}
    return seal(key, "request", json.dumps([delivery_key(delivery), said], sort_keys=True).encode())


def proves(given: str | None, key: bytes, delivery: str, request: Mapping[str, Any]) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), proof(key, delivery, request).encode())


def seal(key: bytes, kind: str, data: bytes) -> str:
    """`kind` tells what is sealed: one of these never counts for another."""
    return hmac.new(key, kind.encode() + b"\0" + data, hashlib.sha256).hexdigest()
