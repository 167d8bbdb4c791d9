"""Activities `has_subscribers`, `notice_addresses` and `notify`: whether, and to which addresses of this host, a notice
about a delivery goes, and sending it to one of them.

Effect: one request an address. It cannot look first, so what is sent again after a death carries the same id. Key: the
notice and the address.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import quote

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.on_host import OnHost
from perdure.adapters.notify.webhook import make_message, post_notice
from perdure.adapters.system.backoff import doubled_pause
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.models.crash import CrashPoint
from perdure.models.delivery.state import Progress
from perdure.models.errors import NoticeUnheard
from perdure.models.limits import NOTIFY_PAUSE_MAX, RPC_TIMEOUT
from perdure.models.notice import Addresses, Event, Notice, NotifyInput, NotifyResult
from perdure.text import is_web_address

DELIVERY_ANSWERS = timedelta(seconds=10)
"""Limit for the delivery's answer whether it still waits: the server hands the question to a worker that has died for
10 s. Without an answer the notice is sent: told twice is better than never."""

_NO_SUCH_ADDRESS = "this worker has no such address: give all workers the same [notify] url or PERDURE_WEBHOOK_URL"

_UI_URL = "PERDURE_UI_URL"
_SERVER_RECORD = "server.json"
"""The file about the home's embedded server, which has a Web UI: its address is under `ui`."""


class NoticeActivities(OnHost):
    """The activities that send notices to people."""

    @activity.defn
    async def notice_addresses(self, notice: Notice) -> Addresses:
        """Return the names of the addresses that are to be sent this notice; none when no address has subscribed to its
        event. Raises NoticeUnheard, which is retried, when this worker has no address at all: another worker may have
        some."""
        listeners = self._host.listeners
        if not listeners.addresses:
            raise NoticeUnheard(_NO_SUCH_ADDRESS)
        return Addresses(names=listeners.names_for(notice.event))

    @activity.defn
    async def has_subscribers(self, event: Event) -> bool:
        """Return whether an address of this host has subscribed to an event of notices."""
        return bool(self._host.listeners.names_for(event))

    @activity.defn
    async def notify(self, work: NotifyInput) -> NotifyResult:
        """Send a notice to one address, with a link to the delivery in the Web UI if there is one, and return the
        status of the answer. Sends nothing where the delivery no longer waits for what the notice says: it may have
        been decided while no worker ran. Raises NoticeRefused when the address refuses it for good; NoticeUnheard,
        which is retried, when it may answer later or this worker does not have it."""
        address = self._host.listeners.find_address(work.to)
        if address is None:
            raise NoticeUnheard(f"{work.to}: {_NO_SUCH_ADDRESS}")
        update_heartbeat(doing=f"telling {work.to}")
        if await _is_outdated(work.notice):
            return NotifyResult(status=0)
        namespace = activity.info().workflow_namespace or "default"
        workflows_url = await in_thread(_workflows_url, self._host.home, os.environ, namespace)
        web_ui = f"{workflows_url}/{quote(work.notice.delivery_id, safe='')}" if workflows_url else ""
        body = make_message(work.notice, web_ui).model_dump_json().encode()
        # An address that asks for a pause of one second each time, for a day, is still sent it less and less often.
        min_pause_s = doubled_pause(activity.info().attempt, timedelta(seconds=1), NOTIFY_PAUSE_MAX).total_seconds()
        status = await post_notice(address, work.notice.id, body, self._host.listeners.keys, min_pause_s=min_pause_s)
        crash_point(CrashPoint.AFTER_NOTICE)
        return NotifyResult(status=status)


async def _is_outdated(notice: Notice) -> bool:
    """Return whether the delivery of a notice has ended, or waits no longer for what the notice says: asked of its
    workflow, which reads all that has come in first. False for a notice of an end, and where no answer comes."""
    if notice.event in ("ended", "test"):
        return False
    handle = activity.client().get_workflow_handle(notice.delivery_id)
    try:
        if (await handle.describe(rpc_timeout=RPC_TIMEOUT)).status is not WorkflowExecutionStatus.RUNNING:
            return True
        progress = await handle.query("progress", result_type=Progress, rpc_timeout=DELIVERY_ANSWERS)
    except (RPCError, WorkflowQueryFailedError) as error:
        return isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND
    return notice.is_outdated(progress.waiting, progress.pending_decision)


def _workflows_url(home: Home, environ: Mapping[str, str], namespace: str) -> str:
    """Return the address below which each workflow has its page in the Web UI: PERDURE_UI_URL, or that of the home's
    embedded server unless TEMPORAL_ADDRESS names another server. Empty when none is known, or it is no http(s) address.
    """
    url = environ.get(_UI_URL, "").strip() or ("" if environ.get("TEMPORAL_ADDRESS") else _embedded_ui_url(home))
    if not is_web_address(url):
        return ""
    return f"{url.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows"


def _embedded_ui_url(home: Home) -> str:
    """Return the address of the Web UI of the home's embedded server, from the file about that server; empty when the
    file is missing, cannot be read or has none."""
    try:
        record = json.loads((home.root / _SERVER_RECORD).read_bytes())
    except (OSError, ValueError):
        return ""
    return str(record.get("ui", "")) if isinstance(record, dict) else ""
