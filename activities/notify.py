"""Notify: tell those whose addresses this host has what happened to a delivery.

Effect: one request an address. It cannot look first, so what is told again after a death carries the same id. Key: the
notice and the address.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from urllib.parse import quote

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.forges.neutral import web_address
from perdure.adapters.notify.message import message_of
from perdure.adapters.notify.send import send
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.models.crash import CrashPoint
from perdure.models.errors import NoticeUnheard
from perdure.models.limits import NOTIFY_PAUSE_MAX
from perdure.models.notice import Addresses, Notice, Notified, NotifyInput

_ELSEWHERE = "this worker has no such address: give all workers the same [notify] url or PERDURE_WEBHOOK_URL"

_UI_URL = "PERDURE_UI_URL"
_SERVER = "server.json"
"""Of the home's embedded server, which has a Web UI: its address is under `ui`."""


class Notices(OnHost):
    @activity.defn
    async def notice_addresses(self, notice: Notice) -> Addresses:
        """Return who wants to hear of it. Raises NoticeUnheard where another worker has to know."""
        listeners = self._host.listeners
        if not listeners.addresses:
            raise NoticeUnheard(_ELSEWHERE)
        return Addresses(names=listeners.who(notice.event))

    @activity.defn
    async def notify(self, work: NotifyInput) -> Notified:
        """Raises NoticeRefused, NoticeUnheard."""
        address = self._host.listeners.address(work.to)
        if address is None:
            raise NoticeUnheard(f"{work.to}: {_ELSEWHERE}")
        now_doing(doing=f"telling {work.to}")
        namespace = activity.info().workflow_namespace or "default"
        page = await in_thread(_web_ui_of, self._host.home, os.environ, namespace)
        web_ui = f"{page}/{quote(work.notice.delivery_id, safe='')}" if page else ""
        body = message_of(work.notice, web_ui).model_dump_json().encode()
        # Whoever asks for a second each time, for a day, is asked less and less often nevertheless.
        least = min(2.0 ** min(activity.info().attempt - 1, 10), NOTIFY_PAUSE_MAX.total_seconds())
        status = await send(address, work.notice.id, body, self._host.listeners.keys, least=least)
        crash_point(CrashPoint.AFTER_NOTICE)
        return Notified(status=status)


def _web_ui_of(home: Home, environ: Mapping[str, str], namespace: str) -> str:
    """The address below which each workflow has its page; empty when it is not known."""
    url = environ.get(_UI_URL, "").strip() or ("" if environ.get("TEMPORAL_ADDRESS") else _embedded(home))
    if not web_address(url):
        return ""
    return f"{url.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows"


def _embedded(home: Home) -> str:
    try:
        record = json.loads((home.root / _SERVER).read_bytes())
    except (OSError, ValueError):
        return ""
    return str(record.get("ui", "")) if isinstance(record, dict) else ""
