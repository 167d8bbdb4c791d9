"""Proof that a request comes from the home whose worker carries it out: a keyed hash of everything it says."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from perdure.models.ids import SCHEDULED_ID, delivery_key

CHANGED_BY_RETRY = frozenset({"proof", "resume", "budget_usd", "tokens"})
"""Fields that are not in the proof: they name no file of the host, and `perdure retry` may change them."""


def request_proof(key: bytes, delivery: str, request: Mapping[str, Any]) -> str:
    """Return the proof for one request of one delivery, an HMAC in hex.

    key       the home's secret; request: JSON without fields that are left out or at their default
    delivery  its workflow id or its key, which give the same proof: an activity knows the key alone

    Whoever reads it in history can start that very request under that very id again, and nothing else.
    """
    return _sign_request(key, "request", delivery_key(delivery), request)


def schedule_proof(key: bytes, schedule: str, request: Mapping[str, Any]) -> str:
    """Return the proof for one request of everything that a schedule of this id starts, and of nothing else.

    Whoever reads it in history can start that very request under such ids, at other times too.
    """
    return _sign_request(key, "scheduled request", schedule, request)


def is_valid_proof(claimed_proof: str | None, key: bytes, delivery: str, request: Mapping[str, Any]) -> bool:
    """Return whether a proof is valid for this request of this delivery; None is not.

    delivery  as for `request_proof`; a delivery that a schedule has started must be named by its workflow id
    """
    if claimed_proof is None:
        return False
    valid_proofs = [request_proof(key, delivery, request)]
    if (scheduled := SCHEDULED_ID.fullmatch(delivery)) is not None:
        valid_proofs.append(schedule_proof(key, scheduled[1], request))
    return any(hmac.compare_digest(claimed_proof.encode(), valid_proof.encode()) for valid_proof in valid_proofs)


def _sign_request(key: bytes, kind: str, name: str, request: Mapping[str, Any]) -> str:
    """Return the keyed hash of a request under this name, without the fields in CHANGED_BY_RETRY."""
    signed_fields = {field: value for field, value in request.items() if field not in CHANGED_BY_RETRY}
    return keyed_hash(key, kind, json.dumps([name, signed_fields], sort_keys=True).encode())


def keyed_hash(key: bytes, kind: str, data: bytes) -> str:
    """Return HMAC-SHA256 of the data in hex. `kind` is part of it: a hash of one kind never counts for another."""
    return hmac.new(key, kind.encode() + b"\0" + data, hashlib.sha256).hexdigest()
