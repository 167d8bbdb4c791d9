"""A worker serves its own home's server and no other, whoever answers at its address; a person sees no other's.

The embedded server is found by its port. When it dies, another home's may take that port, before ours comes up again at
another one: a connection comes back by itself, to a stranger. The worker would carry out that one's deliveries in this
home, and its own would wait for ever.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, NoReturn

from temporalio import activity
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from perdure.adapters.system.home import Home
from perdure.local.connect import configured
from perdure.local.identity import namespace_of, read_record
from perdure.local.places import Places
from perdure.models.limits import SERVER_ANSWER_S, SERVER_LOOK_S

log = logging.getLogger(__name__)


async def astray(client: Client, home: Home) -> str:
    """The reason why this client is not (or no longer) at the home's own server; '' while it is or nobody answers."""
    if configured() is not None:
        return ""
    record = read_record(Places(home))
    if record is not None and record.address != client.service_client.config.target_host:
        return f"this home's server is at {record.address} now"
    try:
        async with asyncio.timeout(SERVER_ANSWER_S):
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=namespace_of(home)))
    except TimeoutError:
        return ""
    except RPCError as error:
        return "another home's server answers at this address" if error.status == RPCStatusCode.NOT_FOUND else ""
    return ""


class NoStrangers(Interceptor):
    """Looks at the token of every activity and once a second at the server; never where TEMPORAL_* names one."""

    def __init__(self, home: Home, client: Client) -> None:
        self._client, self._home = client, home
        self._ours = b""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Guarded(next, self)

    async def look(self) -> None:
        """For ever: end this worker when its server has come up elsewhere, or somebody else answers in its place."""
        while True:
            await self.leave_a_stranger()
            self._ours = self._ours or await self._learnt()
            await asyncio.sleep(SERVER_LOOK_S)

    def gave(self, token: bytes) -> bool:
        """True where it is certain that our server has given out this token."""
        return bool(self._ours) and token.startswith(self._ours)

    async def _learnt(self) -> bytes:
        """Return the beginning of all tokens of our server, whose namespace has an id that no other's has: the first
        field of its message `Task` (unnoted.py). b'' where it does not answer, or TEMPORAL_* names a server."""
        service, ours = self._client.workflow_service, DescribeNamespaceRequest(namespace=namespace_of(self._home))
        if configured() is not None:
            return b""
        try:
            async with asyncio.timeout(SERVER_ANSWER_S):
                await service.describe_namespace(ours)
                said = await service.describe_namespace(DescribeNamespaceRequest(namespace=self._client.namespace))
                await service.describe_namespace(ours)  # nobody else has answered in between
        except (TimeoutError, RPCError):
            return b""
        id = said.namespace_info.id.encode()
        return b"\n" + bytes([len(id)]) + id

    async def leave_a_stranger(self) -> None:
        """Returns when the server is ours, or does not answer."""
        if why := await astray(self._client, self._home):
            _leave(why)


class _Guarded(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, strangers: NoStrangers) -> None:
        super().__init__(next)
        self._strangers = strangers

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if not self._strangers.gave(activity.info().task_token):
            await self._strangers.leave_a_stranger()
        return await self.next.execute_activity(input)


def _leave(why: str) -> NoReturn:
    """At once: an orderly end would report what runs here to somebody who never asked for it. Whoever keeps this worker
    starts it again, and then it looks for its server."""
    log.error("%s: this worker ends", why)
    logging.shutdown()
    os._exit(1)
