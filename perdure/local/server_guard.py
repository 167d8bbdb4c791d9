"""A guard that lets a worker serve only the server of its own home, and ends it where another home's answers in its
place."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, NoReturn

from temporalio import activity
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from perdure.adapters.system.home import Home
from perdure.local.connect import external_server_config, wrong_server_reason
from perdure.local.identity import identity_namespace
from perdure.models.limits import SERVER_ANSWER_S, SERVER_LOOK_S

log = logging.getLogger(__name__)


class ServerGuard(Interceptor):
    """Ends this worker when its connection leads to another home's server.

    Looks at the task token of every activity, and once a second at the server. Where TEMPORAL_* variables name a server
    it never ends the worker.
    """

    def __init__(self, home: Home, client: Client) -> None:
        self._client, self._home = client, home
        self._token_prefix = b""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _GuardedActivities(next, self)

    async def watch_server(self) -> None:
        """Check once a second, until cancelled, that the server at the client's address is this home's; else end this
        process.

        The process ends, too, when this home's record names another address; a server that does not answer does not end
        it. Also fetches, once, the prefix of our server's task tokens, by which `is_own_token` knows them.
        """
        while True:
            await self.exit_if_wrong_server()
            self._token_prefix = self._token_prefix or await self._fetch_token_prefix()
            await asyncio.sleep(SERVER_LOOK_S)

    def is_own_token(self, token: bytes) -> bool:
        """Return True where it is certain that our server has issued this task token."""
        return bool(self._token_prefix) and token.startswith(self._token_prefix)

    async def _fetch_token_prefix(self) -> bytes:
        """Return the bytes that begin all task tokens of our server: its namespace's id, which no other server has.

        The id is the first field of a token's protobuf message `Task`. Empty when TEMPORAL_* variables name a server,
        or the server does not answer in time, or not as this home's both before and after its namespace is read.
        """
        service, request = (
            self._client.workflow_service,
            DescribeNamespaceRequest(namespace=identity_namespace(self._home)),
        )
        if external_server_config() is not None:
            return b""
        try:
            async with asyncio.timeout(SERVER_ANSWER_S):
                await service.describe_namespace(request)
                description = await service.describe_namespace(
                    DescribeNamespaceRequest(namespace=self._client.namespace)
                )
                await service.describe_namespace(request)  # Nobody else has answered in between.
        except (TimeoutError, RPCError):
            return b""
        id = description.namespace_info.id.encode()
        return b"\n" + bytes([len(id)]) + id

    async def exit_if_wrong_server(self) -> None:
        """End this process at once if another home's server answers; return if it is ours, or does not answer."""
        if reason := await wrong_server_reason(self._client, self._home):
            _exit_worker(reason)


class _GuardedActivities(ActivityInboundInterceptor):
    """Checks before each activity that our own server asked for it."""

    def __init__(self, next: ActivityInboundInterceptor, guard: ServerGuard) -> None:
        super().__init__(next)
        self._guard = guard

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if not self._guard.is_own_token(activity.info().task_token):
            await self._guard.exit_if_wrong_server()
        return await self.next.execute_activity(input)


def _exit_worker(reason: str) -> NoReturn:
    """Log the reason and end this process at once, with exit code 1.

    An orderly end would report what runs here to a server that never asked for it. Whoever keeps this worker starts it
    again, and then it looks for its server.
    """
    log.error("%s: this worker ends", reason)
    logging.shutdown()
    os._exit(1)
