"""Addresses of deliveries and backlogs in Temporal's Web UI."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from perdure.adapters.system.home import Home

_LIST_QUERY = 'WorkflowType="Delivery" OR WorkflowType="Backlog"'

UI_VARIABLE = "PERDURE_UI_URL"
"""The variable that names the Web UI of a server that is not the embedded one: Temporal itself does not say it."""


async def find_web_ui(home: Home) -> tuple[str, str] | None:
    """Return the Web UI's address and the namespace; None when the address is not known or the server does not run."""
    from perdure.local.connect import external_server_config
    from perdure.local.server import find_server

    config = external_server_config()
    if config is not None:
        url = os.environ.get(UI_VARIABLE, "").rstrip("/")
        return (url, config.get("namespace") or "default") if url else None
    server = await find_server(home)
    return (server.ui_url, server.namespace) if server else None


async def web_ui_url(home: Home, id: str = "", kind: str = "workflows") -> str:
    """Return the address in the Web UI of the delivery, backlog or schedule `id`; empty `id`: of the list of all.

    `kind` is `workflows` or `schedules`. Empty where there is no Web UI.
    """
    base_url = await web_ui_base_url(home, kind)
    if not base_url:
        return ""
    return f"{base_url}/{quote(id, safe='')}" if id else f"{base_url}?query={quote(_LIST_QUERY)}"


async def web_ui_base_url(home: Home, kind: str = "workflows") -> str:
    """Return the address of all `kind` pages in the Web UI, to which `/<id>` is added; empty where there is no Web
    UI."""
    web_ui = await find_web_ui(home)
    return f"{web_ui[0]}/namespaces/{quote(web_ui[1], safe='')}/{kind}" if web_ui is not None else ""
