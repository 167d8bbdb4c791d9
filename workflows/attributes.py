"""Search attributes: all that the server's lists and filters know of a delivery or a backlog."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from temporalio import workflow
from temporalio.common import SearchAttributeKey

ATTRIBUTES = MappingProxyType(
    {
        name: SearchAttributeKey.for_keyword(name)
        for name in ("PerdureRepository", "PerdurePhase", "PerdureStatus", "PerdureBranch", "PerdurePullRequest")
    }
)
COST = SearchAttributeKey.for_float("PerdureCostUsd")


def set_attributes(values: Mapping[str, str], usd: float | None) -> None:
    """One event of history. `usd`: None is not known."""
    cost = [COST.value_set(round(usd, 6))] if usd is not None else []
    workflow.upsert_search_attributes([*(ATTRIBUTES[name].value_set(value) for name, value in values.items()), *cost])
