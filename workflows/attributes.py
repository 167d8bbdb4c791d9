"""Search attributes: all that the server's lists and filters know of a delivery or a backlog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from perdure.models.visibility import CHANGE, LABELS, WAITING

ATTRIBUTES = MappingProxyType(
    {
        name: SearchAttributeKey.for_keyword(name)
        for name in ("PerdureRepository", "PerdurePhase", "PerdureStatus", "PerdureBranch", "PerdurePullRequest")
    }
)
LATER_ATTRIBUTES = MappingProxyType({name: SearchAttributeKey.for_keyword(name) for name in (CHANGE, WAITING)})
LABEL_LIST = SearchAttributeKey.for_keyword_list(LABELS)
COST_USD = SearchAttributeKey.for_float("PerdureCostUsd")


def set_search_attributes(
    values: Mapping[str, str],
    usd: float | None,
    later: Mapping[str, str] | None = None,
    labels: Sequence[str] = (),
    registered: Sequence[str] = (),
) -> None:
    """Set search attributes of the workflow, which costs one event of history.

    values         by name, as in ATTRIBUTES
    usd            what was spent; None: not known, and the attribute stays as it is
    later, labels  attributes of later releases: set only where the server has them, as `registered` lists
    """
    updates: list[SearchAttributeUpdate[Any]] = [ATTRIBUTES[name].value_set(value) for name, value in values.items()]
    updates += [LATER_ATTRIBUTES[name].value_set(value) for name, value in (later or {}).items() if name in registered]
    updates += [LABEL_LIST.value_set(labels)] if labels and LABELS in registered else []
    updates += [COST_USD.value_set(round(usd, 6))] if usd is not None else []
    workflow.upsert_search_attributes(updates)
