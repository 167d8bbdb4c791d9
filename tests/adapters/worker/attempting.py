"""An activity inside its interceptor, without a server: what it does is the test's to say."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from perdure.adapters.system.home import Home
from perdure.adapters.worker.attempt import AttemptInterceptor
from perdure.adapters.worker.host import Host
from perdure.models.config.host import HostConfig
from perdure.models.delivery.work import CloseInput

WORK = CloseInput(delivery="d")


class Doing(ActivityInboundInterceptor):
    """The end of the chain: what the activity itself does."""

    def __init__(self, do: Callable[[], Awaitable[Any]]) -> None:
        self.do = do

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return await self.do()


@pytest.fixture
def host(home: Home) -> Host:
    return Host(home, HostConfig(), None)


def environment(name: str = "implement", **info: Any) -> ActivityEnvironment:
    env = ActivityEnvironment()
    env.info = dataclasses.replace(env.info, activity_type=name, **info)
    return env


async def attempt(
    host: Host,
    do: Callable[[], Awaitable[Any]],
    *,
    work: Any = WORK,
    env: ActivityEnvironment | None = None,
    worker: AttemptInterceptor | None = None,
) -> Any:
    """`worker`: the interceptor that attempts of one worker share."""
    chain = (worker or AttemptInterceptor(host)).intercept_activity(Doing(do))
    arguments = [] if work is None else [work]
    call = ExecuteActivityInput(fn=lambda: None, args=arguments, executor=None, headers={})
    return await (env or environment()).run(chain.execute_activity, call)


async def fail(host: Host, error: BaseException, **more: Any) -> ApplicationError:
    async def do() -> None:
        raise error

    with pytest.raises(ApplicationError) as raised:
        await attempt(host, do, **more)
    return raised.value


def ends(host: Host) -> list[str]:
    return [line["how"] for line in host.journal("d")._read_entries() if "ended" in line]
