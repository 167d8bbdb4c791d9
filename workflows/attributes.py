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
MORE = MappingProxyType({name: SearchAttributeKey.for_keyword(name) for name in (CHANGE, WAITING)})
OF_LABELS = SearchAttributeKey.for_keyword_list(LABELS)
COST = SearchAttributeKey.for_float("PerdureCostUsd")


def set_attributes(
    values: Mapping[str, str],
    usd: float | None,
    more: Mapping[str, str] | None = None,
    labels: Sequence[str] = (),
    shows: Sequence[str] = (),
) -> None:
    """One event of history. `usd`: None is not known. Of `more` and `labels`, which came with later releases, those
    that the server `shows`."""
    set_: list[SearchAttributeUpdate[Any]] = [ATTRIBUTES[name].value_set(value) for name, value in values.items()]
    set_ += [MORE[name].value_set(value) for name, value in (more or {}).items() if name in shows]
    set_ += [OF_LABELS.value_set(labels)] if labels and LABELS in shows else []
    set_ += [COST.value_set(round(usd, 6))] if usd is not None else []
    workflow.upsert_search_attributes(set_)
