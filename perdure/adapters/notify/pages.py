"""The address at which a person sees deliveries in a browser, as far as a worker knows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote

from perdure.adapters.forges.neutral import web_address
from perdure.adapters.system.home import Home

VARIABLE = "PERDURE_UI_URL"
RECORD = "server.json"
"""Of the home's embedded server, which has a Web UI: its address is under `ui`."""


def web_ui_of(home: Home, environ: Mapping[str, str], namespace: str) -> str:
    """The address below which each workflow has its page; empty when it is not known."""
    url = environ.get(VARIABLE, "").strip() or ("" if environ.get("TEMPORAL_ADDRESS") else _embedded(home))
    if not web_address(url):
        return ""
    return f"{url.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows"


def _embedded(home: Home) -> str:
    try:
        record = json.loads((home.root / RECORD).read_bytes())
    except (OSError, ValueError):
        return ""
    return str(record.get("ui", "")) if isinstance(record, dict) else ""
