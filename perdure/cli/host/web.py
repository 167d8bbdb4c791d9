"""The page where a person sees deliveries in a browser."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from perdure.adapters.system.home import Home

_LISTED = 'WorkflowType="Delivery" OR WorkflowType="Backlog"'

UI_VARIABLE = "PERDURE_UI_URL"
"""The variable that names the Web UI of a server that is not the embedded one: Temporal itself does not say."""


async def ui_of(home: Home) -> tuple[str, str] | None:
    """Address of the Web UI and the namespace; None when it is not known or does not run."""
    from perdure.local.connect import configured
    from perdure.local.server import find_server

    config = configured()
    if config is not None:
        url = os.environ.get(UI_VARIABLE, "").rstrip("/")
        return (url, config.get("namespace") or "default") if url else None
    server = await find_server(home)
    return (server.ui_url, server.namespace) if server else None


async def web_page(home: Home, id: str = "", kind: str = "workflows") -> str:
    """The page of one delivery, backlog or of one of the `schedules`, or the list of all; empty when there is none to
    be found."""
    page = await pages_of(home, kind)
    if not page:
        return ""
    return f"{page}/{quote(id, safe='')}" if id else f"{page}?query={quote(_LISTED)}"


async def pages_of(home: Home, kind: str = "workflows") -> str:
    """The address of a page like these, up to the id; empty when there is none to be found."""
    found = await ui_of(home)
    return f"{found[0]}/namespaces/{quote(found[1], safe='')}/{kind}" if found is not None else ""
