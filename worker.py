"""A Perdure worker: which workflows and activities run here, on which queues."""

from __future__ import annotations

from perdure import __version__, secrets, startup

if __name__ == "__main__":
    startup.begin()  # before anything below is imported: GitPython starts a process

import asyncio
import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

from perdure.local.replay import replay_if_asked
from workflows import WORKFLOWS

if __name__ == "__main__":
    replay_if_asked(WORKFLOWS)  # and end here: to load activities would take two thirds of the time

from temporalio.worker import Worker

from activities import anywhere, here, publishing
from perdure.adapters.system.home import Home
from perdure.adapters.worker.attempt import AttemptInterceptor
from perdure.adapters.worker.beside import beside
from perdure.adapters.worker.host import Host
from perdure.client.budgets import keep, put_rules
from perdure.local import connect, forkserver, page
from perdure.local.strangers import NoStrangers
from perdure.models.limits import DRAIN, TASK_QUEUE


async def main() -> None:
    """Work until SIGTERM or SIGINT, then drain: turns that run end, nothing new begins."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    host = Host.open(home := Home.find(), secrets.environment(), lambda: page.page_url(home))
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * host.config.slots))
    client = await connect.connect(home, start=False, say=logging.info, works=True)
    await asyncio.gather(host.check_search_attributes(client), put_rules(client, host.config.treasury))
    strangers = NoStrangers(home, client)
    always = host.inflight.report_the_dead(client), keep(client, host.config.treasury), strangers.look()
    async with beside(*always), AsyncExitStack() as working:
        for queue, doing in queues(host).items():
            worker = Worker(
                client,
                task_queue=queue,
                identity=host.inflight.identity,
                build_id=f"perdure {__version__}",  # the SDK's own would read and hash every loaded module
                interceptors=[strangers, AttemptInterceptor(host)],
                max_concurrent_activities=host.config.slots,
                max_heartbeat_throttle_interval=connect.heartbeat_throttle(client),
                graceful_shutdown_timeout=DRAIN,
                **doing,
            )
            await working.enter_async_context(worker)
        logging.info("working on %s as %s", " and ".join(queues(host)), host.inflight.worker)
        await stop.wait()
    await host.close()


def queues(host: Host) -> dict[str, dict[str, Any]]:
    """Queue → what is done there. A publisher only publishes: its worker alone holds the forge's token."""
    if host.publishes_only:
        return {host.publisher: {"activities": publishing(host)}}
    decisions = {"workflows": WORKFLOWS, "activities": anywhere(host)}
    return {TASK_QUEUE: decisions, host.home.queue(): {"activities": here(host)}}


if __name__ == "__main__":
    forkserver.serve()  # from here on it is a worker
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main())
    logging.shutdown()
    os._exit(0)  # the Temporal SDK was seen to crash in an ordinary exit (sdk-python issue 300)
