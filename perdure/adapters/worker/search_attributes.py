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


async def register_search_attributes(client: Client) -> frozenset[str]:
    """Register our search attributes at the server where that is allowed, and return the names that may be used.

    Empty, so that all are done without, where one of the first release can be neither found nor registered; those of
    later releases are left out one by one. What is not available is logged. A workflow that sets an attribute the
    server does not know would hang.
    """
    service, namespace = client.operator_service, client.namespace
    try:
        listed = await service.list_search_attributes(ListSearchAttributesRequest(namespace=namespace))
        known_names = set(listed.custom_attributes)
        if missing := SEARCH_ATTRIBUTES.keys() - known_names:
            await _add_attributes(client, missing)
    except RPCError as error:
        log.warning("search attributes are not available, going on without them: %s", error.message)
        return frozenset()
    for name in sorted(MORE_ATTRIBUTES.keys() - known_names):
        try:
            await _add_attributes(client, {name})
        except RPCError as error:
            log.warning("lists show no %s: %s", name, error.message)
            continue
        known_names.add(name)
    return frozenset(SEARCH_ATTRIBUTES) | (known_names & MORE_ATTRIBUTES.keys())


async def _add_attributes(client: Client, names: Iterable[str]) -> None:
    """Register search attributes of these names at the server. Raises RPCError."""
    kinds = {name: _KINDS[_TYPES[name]] for name in names}
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=kinds)
    await client.operator_service.add_search_attributes(request)


_TYPES = {**SEARCH_ATTRIBUTES, **MORE_ATTRIBUTES}

_KINDS: Mapping[str, IndexedValueType.ValueType] = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
}
