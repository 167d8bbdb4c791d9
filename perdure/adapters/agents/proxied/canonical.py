"""The name of a request: equal for one that an agent sends again after its death."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from perdure.adapters.agents.proxied.base import Route


def key(wire: str, route: Route, body: dict[str, Any]) -> str:
    """SHA-256 over path and body, in hex; the order of keys does not matter, everything else does."""
    said = json.dumps([wire, route.target, body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(said.encode()).hexdigest()


def without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    """A copy without these fields."""
    return {name: value for name, value in body.items() if name not in names}
