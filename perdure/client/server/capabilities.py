"""Capabilities of a Temporal server and of one of its namespaces, as far as Perdure uses them and not every server has
them. `perdure doctor` and a starting worker name what is missing; so do the commands that need it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.namespace.v1 import NamespaceInfo
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.models.ids import MORE_ATTRIBUTES, SEARCH_ATTRIBUTES
from perdure.text import shell_word

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MissingCapability:
    """A part of the server that is switched off or not there.

    consequence  what does not work without it; fix: what an operator does about it
    needed       deliveries cannot run without it
    """

    name: str
    consequence: str
    fix: str
    needed: bool = False


@dataclass(frozen=True)
class ServerCapabilities:
    """A server's version, how long its namespace keeps ended workflows (0: it does not say), and what is missing."""

    version: str
    retention: timedelta
    missing: tuple[MissingCapability, ...]


NO_STANDALONE_ACTIVITIES = MissingCapability(
    "standalone activities",
    "logs, diff, verify, report, fork, rewind and approve --print do not work",
    "set activity.enableStandalone: true in the server's dynamic configuration, or run server 1.32 or newer",
)

_NO_UPDATES = MissingCapability(
    "workflow updates",
    "nobody can decide at a gate",
    "set frontend.enableUpdateWorkflowExecution: true in the server's dynamic configuration",
    needed=True,
)


async def read_capabilities(client: Client) -> ServerCapabilities:
    """Ask the server for its version, and for what the client's namespace has.

    Raises RPCError where it does not answer, or the namespace does not exist. A server that does not list its search
    attributes to this client is taken to have them.
    """
    service, namespace = client.workflow_service, client.namespace
    system = await service.get_system_info(GetSystemInfoRequest())
    described = await service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))
    missing = [*_missing_parts(described.namespace_info), *await _missing_attributes(client)]
    retention = described.config.workflow_execution_retention_ttl.ToTimedelta()
    return ServerCapabilities(system.server_version, retention, tuple(missing))


async def log_missing_capabilities(client: Client) -> None:
    """Log a warning for each capability that is missing, with the fix; one line where the server does not say. Search
    attributes are left to the worker, which registers them."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        described = await client.workflow_service.describe_namespace(request)
    except RPCError as error:
        log.warning("the server does not tell what it can do: %s", error.message)
        return
    for part in _missing_parts(described.namespace_info):
        log.warning("this Temporal server has no %s: %s; fix: %s", part.name, part.consequence, part.fix)


def _missing_parts(namespace: NamespaceInfo) -> list[MissingCapability]:
    """Return what a namespace lacks by its own account."""
    missing = [] if namespace.capabilities.standalone_activities else [NO_STANDALONE_ACTIVITIES]
    return missing if namespace.capabilities.sync_update else [*missing, _NO_UPDATES]


async def _missing_attributes(client: Client) -> list[MissingCapability]:
    """Return the search attributes of ours that the namespace does not have, as one missing capability or none."""
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        listed = await client.operator_service.list_search_attributes(request)
    except RPCError:
        return []
    kinds = {**SEARCH_ATTRIBUTES, **MORE_ATTRIBUTES}
    names = [name for name in kinds if name not in listed.custom_attributes]
    if not names:
        return []
    flags = " ".join(f"--name {name} --type {kinds[name]}" for name in names)
    fix = f"temporal operator search-attribute create --namespace {shell_word(client.namespace)} {flags}"
    return [MissingCapability(f"search attributes {', '.join(names)}", "lists show less and cannot be filtered", fix)]
