"""The search attributes of deliveries, known to the server before the first of them is set."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.models.visibility import MORE_ATTRIBUTES, SEARCH_ATTRIBUTES

log = logging.getLogger(__name__)


async def registered(client: Client) -> frozenset[str]:
    """Names of those the server knows: they are registered where that is allowed. Empty, and all are done without,
    where one of the first release is missing; those of later releases are done without one by one.

    An unknown one would hang every workflow that sets it.
    """
    service, namespace = client.operator_service, client.namespace
    try:
        listed = await service.list_search_attributes(ListSearchAttributesRequest(namespace=namespace))
        known = set(listed.custom_attributes)
        if missing := SEARCH_ATTRIBUTES.keys() - known:
            await _add(client, missing)
    except RPCError as error:
        log.warning("search attributes are not available, going on without them: %s", error.message)
        return frozenset()
    for name in sorted(MORE_ATTRIBUTES.keys() - known):
        try:
            await _add(client, {name})
        except RPCError as error:
            log.warning("lists show no %s: %s", name, error.message)
            continue
        known.add(name)
    return frozenset(SEARCH_ATTRIBUTES) | (known & MORE_ATTRIBUTES.keys())


async def _add(client: Client, names: Iterable[str]) -> None:
    kinds = {name: _KINDS[_TYPES[name]] for name in names}
    added = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=kinds)
    await client.operator_service.add_search_attributes(added)


_TYPES = {**SEARCH_ATTRIBUTES, **MORE_ATTRIBUTES}

_KINDS: Mapping[str, IndexedValueType.ValueType] = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
}
