"""A Perdure worker, as `perdure worker` runs it: which workflows and activities run here, on which task queues."""

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

from perdure.local.replay import replay_if_requested
from workflows import WORKFLOWS

if __name__ == "__main__":
    replay_if_requested(WORKFLOWS)  # and end here: to load activities would take two thirds of the time

from temporalio.worker import Worker

from activities import OriginInterceptor, any_host_activities, publisher_activities, workspace_activities
from perdure.adapters.system.home import Home
from perdure.adapters.worker.attempt import AttemptInterceptor
from perdure.adapters.worker.host import Host, run_in_background
from perdure.client.budgets import keep_treasury_running, put_rules
from perdure.local import connect, forkserver, page
from perdure.local.server_guard import ServerGuard
from perdure.models.limits import DRAIN, TASK_QUEUE


async def main() -> None:
    """Connect to the server, send it the configured budgets, and run a worker for each queue until SIGTERM or SIGINT;
    then drain: turns that run end, within a time limit, and nothing new begins."""
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    host = Host.from_environment(home := Home.find(), secrets.environment(), lambda: page.page_url(home))
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * host.config.slots))
    client = await connect.connect_to_temporal(home, start=False, say=logging.info, for_worker=True)
    await asyncio.gather(host.load_search_attributes(client), put_rules(client, host.config.treasury))
    guard, treasury = ServerGuard(home, client), keep_treasury_running(client, host.config.treasury)
    tasks = (host.inflight.report_dead_workers(client), treasury, guard.watch_server())
    async with run_in_background(*tasks), AsyncExitStack() as working:
        for queue, options in worker_options(host).items():
            worker = Worker(
                client,
                task_queue=queue,
                identity=host.inflight.identity,
                build_id=f"perdure {__version__}",  # the SDK's own would read and hash every loaded module
                interceptors=[guard, OriginInterceptor(client, host.accepted_runs), AttemptInterceptor(host)],
                max_concurrent_activities=host.config.slots,
                max_heartbeat_throttle_interval=connect.heartbeat_throttle(client),
                graceful_shutdown_timeout=DRAIN,
                **options,
            )
            await working.enter_async_context(worker)
        logging.info("working on %s as %s", " and ".join(worker_options(host)), host.inflight.worker)
        await stop.wait()
    await host.close()


def worker_options(host: Host) -> dict[str, dict[str, Any]]:
    """Return, by queue, what its Worker runs. A publisher only publishes: its worker alone holds the forge's token."""
    if host.publishes_only:
        return {host.publisher_queue: {"activities": publisher_activities(host)}}
    decisions = {"workflows": WORKFLOWS, "activities": any_host_activities(host)}
    return {TASK_QUEUE: decisions, host.home.queue(): {"activities": workspace_activities(host)}}


if __name__ == "__main__":
    forkserver.fork_workers()  # from here on it is a worker
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main())
    logging.shutdown()
    os._exit(0)  # the Temporal SDK was seen to crash in an ordinary exit (sdk-python issue 300)
