"""The search attributes of deliveries, known to the server before the first of them is set."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.models.visibility import SEARCH_ATTRIBUTES

log = logging.getLogger(__name__)


async def registered(client: Client) -> bool:
    """True where the server knows them: they are registered where that is allowed, and done without otherwise.

    An unknown one would hang every workflow that sets it.
    """
    service, namespace = client.operator_service, client.namespace
    try:
        known = await service.list_search_attributes(ListSearchAttributesRequest(namespace=namespace))
        missing = {name: kind for name, kind in _KINDS.items() if name not in known.custom_attributes}
        if missing:
            await service.add_search_attributes(
                AddSearchAttributesRequest(namespace=namespace, search_attributes=missing)
            )
    except RPCError as error:
        log.warning("search attributes are not available, going on without them: %s", error.message)
        return False
    return True


_KINDS: Mapping[str, IndexedValueType.ValueType] = {
    name: (
        IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE if kind == "Double" else IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    )
    for name, kind in SEARCH_ATTRIBUTES.items()
}
