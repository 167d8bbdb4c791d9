"""Options of HTTP clients from the environment, for those that ask models and webhooks: certificates that are trusted,
and proxies. What cannot be used is a mistake of this host's settings, found before anything is asked."""

from __future__ import annotations

import ipaddress
import os
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from perdure.models.errors import BadInput
from perdure.text import one_line

_RESTART = "then start the worker again: perdure down && perdure up"


def client_options(url: str) -> dict[str, Any]:
    """Return the options of an httpx2 client for an address: trusted certificates, and no proxy for this host itself.
    Other addresses are asked as the environment's variables of proxies say.

    Raises BadInput that names the variable and its value, without a password, where certificates or proxy cannot be
    used. Called in a thread: loading the certificates takes 45 ms.
    """
    import httpx2

    variable = "SSL_CERT_FILE" if os.environ.get("SSL_CERT_FILE") else "SSL_CERT_DIR"
    path = os.environ.get(variable, "")
    fix = f"correct it or unset it, {_RESTART}"
    try:
        context = httpx2.create_ssl_context()
        if variable == "SSL_CERT_DIR" and path:
            os.listdir(path)
    except OSError as error:  # an SSLError is one, too
        reason = os.strerror(error.errno) if type(error).__module__ == "builtins" and error.errno else "no certificates"
        raise BadInput(f"{variable} cannot be used: {reason}", where=f"{variable}={path}", fix=fix) from None
    try:
        httpx2.AsyncClient(verify=context)
    except (ValueError, ImportError, httpx2.InvalidURL):  # their texts hold the proxy's address, with its password
        names = [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy")]
        what = f"{', '.join(names)}: this is no HTTP proxy"
        raise BadInput(what, where=" ".join(names), fix=fix) from None
    host = urlsplit(url).hostname or ""
    mounts = {f"all://[{host}]" if ":" in host else f"all://{host}": None} if _is_own(host) else {}
    return {"verify": context, "mounts": mounts}


def proxy_note(url: str) -> str:
    """Return ` through the proxy proxy:3128 (https_proxy)` for an address that is asked through one; else nothing."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    name = next((name for name in (parts.scheme, "all") if proxies.get(name)), "")
    if not name or _is_own(parts.hostname or "") or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return ""
    address = proxies[name].rpartition("://")[2].rpartition("@")[2].rstrip("/")
    return " " + one_line(f"through the proxy {address} ({name}_proxy)", 200)


def _is_own(host: str) -> bool:
    """Return True for a name or address of the loopback interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
