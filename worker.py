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

from perdure.local.replay import replay_if_requested
from workflows import WORKFLOWS

if __name__ == "__main__":
    replay_if_requested(WORKFLOWS)  # and end here: to load activities would take two thirds of the time

from temporalio.worker import Worker

from activities import OriginInterceptor, activities_by_queue
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
    host.shares_server = connect.external_server_config() is not None
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * host.config.slots))
    client = await connect.connect_to_temporal(home, start=False, say=logging.info, for_worker=True)
    await asyncio.gather(host.load_search_attributes(client), put_rules(client, host.config.treasury))
    guard, treasury = ServerGuard(home, client), keep_treasury_running(client, host.config.treasury)
    tasks = (host.inflight.report_dead_workers(client), treasury, guard.watch_server())
    async with run_in_background(*tasks), AsyncExitStack() as working:
        queues = activities_by_queue(host)
        for queue, (run_here, slots) in queues.items():
            worker = Worker(
                client,
                task_queue=queue,
                workflows=WORKFLOWS if queue == TASK_QUEUE else (),
                activities=run_here,
                max_concurrent_activities=slots,
                identity=host.inflight.identity,
                build_id=f"perdure {__version__}",  # the SDK's own would read and hash every loaded module
                interceptors=[guard, OriginInterceptor(client, host.accepted_runs), AttemptInterceptor(host)],
                max_heartbeat_throttle_interval=connect.heartbeat_throttle(client),
                graceful_shutdown_timeout=DRAIN,
            )
            await working.enter_async_context(worker)
        logging.info("working on %s as %s", " and ".join(queues), host.inflight.worker)
        await stop.wait()
    await host.close()


if __name__ == "__main__":
    forkserver.fork_workers()  # from here on it is a worker
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main())
    logging.shutdown()
    os._exit(0)  # the Temporal SDK was seen to crash in an ordinary exit (sdk-python issue 300)
