"""`[app] ready` and `pages` as addresses that a browser opens: this delivery's own ports, and nothing else."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from string import Template
from urllib.parse import urljoin, urlsplit

from perdure.models.config import AppSettings

READY = "http://127.0.0.1:$FRONTEND_PORT/"
PAGES = ("/",)


class NotAnAddress(Exception):  # told as a note, never raised to anybody
    """A setting cannot be opened: its name, and the reason."""


def addresses(settings: AppSettings, env: Mapping[str, str]) -> tuple[str, dict[str, str], dict[str, str]]:
    """(where the application answers once it is up, page as it is written → its address, page → why it has none).

    `$NAME` stands for a variable of the delivery's commands. Pages are relative to the origin of `ready`. Only HTTP on
    this host's loopback is opened. Raises NotAnAddress when `ready` is something else.
    """
    ready = _address(settings.ready or READY, "ready", "", env)
    found, refused = {}, {}
    for page in settings.pages or PAGES:
        try:
            found[page] = _address(page, "pages", urljoin(ready, "/"), env)
        except NotAnAddress as no:
            refused[page] = str(no)
    return ready, found, refused


def _address(text: str, key: str, origin: str, env: Mapping[str, str]) -> str:
    try:
        url = urljoin(origin, Template(text.strip()).substitute(env))
        parts = urlsplit(url)
        local = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
        _ = parts.port
    except KeyError as missing:
        raise NotAnAddress(f"[app] {key} names ${missing.args[0]}, which is not set: {text}") from None
    except ValueError:
        raise NotAnAddress(f"[app] {key} is no address on 127.0.0.1: {text}") from None
    if parts.scheme not in ("http", "https") or not local or parts.username is not None:
        raise NotAnAddress(f"[app] {key} is no address on 127.0.0.1: {text}")
    return url
