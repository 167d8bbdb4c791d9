"""The search attributes of a delivery: what lists and filters can see without asking a worker."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SEARCH_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "PerdureRepository": "Keyword",
        "PerdurePhase": "Keyword",
        "PerdureStatus": "Keyword",
        "PerdureBranch": "Keyword",
        "PerdurePullRequest": "Keyword",
        "PerdureCostUsd": "Double",
    }
)
"""Name → Temporal's type. A server that does not know one hangs the workflow that sets it."""

CHANGE, WAITING, LABELS = "PerdureChange", "PerdureWaiting", "PerdureLabels"

MORE_ATTRIBUTES: Mapping[str, str] = MappingProxyType({CHANGE: "Keyword", WAITING: "Keyword", LABELS: "KeywordList"})
"""Attributes of later releases: where a server does not accept them lists show less, and all else works."""
