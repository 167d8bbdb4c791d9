"""The addresses that this host sends notices to, and the secrets that sign them; held in this process only. Beside them
the headers of a signed message. The worker's host reads them, `webhook` sends to them; the command line's checks of
this host read them, too.

They come from `[notify]` of the host's settings, which also says which events each gets; variables of the environment
replace the addresses and secrets.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from perdure.models.config.host import NoticeEvent, NotifySettings
from perdure.models.errors import BadInput
from perdure.models.notice import Event
from perdure.text import register_secrets

NOTIFY_ADDRESSES = 10
"""The most addresses of a host: each is tried by itself, and each has its events in the notification's history."""


URL_VARIABLE, SECRET_VARIABLE = "PERDURE_WEBHOOK_URL", "PERDURE_WEBHOOK_SECRET"  # names of variables
SECRET_VARIABLES = (URL_VARIABLE, SECRET_VARIABLE)
"""Variables that hold secrets. An address is one, too: whoever has a chat's can write there."""


@dataclass(frozen=True)
class Address:
    """An address that is sent notices. `name`: its host, the only part of it that may be shown."""

    name: str
    url: str = field(repr=False)

    @property
    def is_plaintext(self) -> bool:
        """Return whether others on the way can read what is sent: plain http that leaves this machine."""
        host = urlsplit(self.url).hostname or ""
        is_local = host in ("localhost", "::1") or host.startswith("127.")
        return not is_local and not self.url.lower().startswith("https:")


@dataclass(frozen=True)
class Listeners:
    """The addresses that this host sends notices to.

    events   of which they are sent notices
    keys     of signatures: each one signs; two while a secret is replaced by another
    secrets  the values to keep out of everything that is stored or shown
    """

    addresses: tuple[Address, ...] = ()
    events: tuple[NoticeEvent, ...] = ()
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        register_secrets(*self.secrets)

    @classmethod
    def from_settings(cls, settings: NotifySettings, environ: Mapping[str, str]) -> Listeners:
        """Return the listeners that the settings name, or PERDURE_WEBHOOK_URL in their place; PERDURE_WEBHOOK_SECRET
        has the secrets.

        Both variables may hold several values, separated by blanks. Raises BadInput for an address or a secret that
        cannot be one, without showing it, and for more than NOTIFY_ADDRESSES addresses.
        """
        variable_urls = environ.get(URL_VARIABLE, "").split()
        where = URL_VARIABLE if variable_urls else "[notify] url"
        urls = variable_urls or [url.get_secret_value() for url in settings.url]
        if len(urls) > NOTIFY_ADDRESSES:
            raise BadInput(
                f"{len(urls)} addresses, at most {NOTIFY_ADDRESSES} are told", where=where, fix="remove some"
            )
        secrets = environ.get(SECRET_VARIABLE, "").split()
        urls = list(dict.fromkeys(urls))  # an address that is named twice gets each notice once
        return cls(
            addresses=tuple(_name_addresses(urls, where)),
            events=settings.events,
            keys=tuple(parse_secret(secret, SECRET_VARIABLE) for secret in secrets),
            secrets=(*secrets, *urls),
        )

    @classmethod
    def from_environment(cls, settings: NotifySettings, environ: MutableMapping[str, str]) -> Listeners:
        """Return the listeners as `from_settings` does, and remove both variables from `environ`: no child process may
        inherit them. Raises BadInput, with the variables still there, for an address or a secret that cannot be one,
        and for too many addresses."""
        listeners = cls.from_settings(settings, environ)
        for name in SECRET_VARIABLES:
            environ.pop(name, None)
        return listeners

    def names_for(self, event: Event) -> tuple[str, ...]:
        """Return the names of the addresses that are sent notices of this event. A test is sent to all."""
        is_sent = event == "test" or event in self.events
        return tuple(address.name for address in self.addresses) if is_sent else ()

    def find_address(self, name: str) -> Address | None:
        """Return the address of this name; None where there is none."""
        return next((address for address in self.addresses if address.name == name), None)


def _name_addresses(urls: Iterable[str], where: str) -> Iterable[Address]:
    """Yield an Address for each URL, named by its host and port; a further one at the same host is named
    `hooks.example.com (2)`.

    Raises BadInput for a URL that cannot be an address, with its number and without showing it.
    """
    host_counts: dict[str, int] = {}
    for number, url in enumerate(urls, 1):
        host = _host_and_port(url, f"{where}, address {number}")
        host_counts[host] = host_counts.get(host, 0) + 1
        yield Address(host if host_counts[host] == 1 else f"{host} ({host_counts[host]})", url)


def _host_and_port(url: str, where: str) -> str:
    """Return the host of a URL, with its port where it names one: `hooks.example.com`, `127.0.0.1:8080`. Raises
    BadInput when it is no http(s) address."""
    fix = "write it as https://host/path"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadInput("this is not an address", where=where, fix=fix) from None
    is_plain = host is not None and all(c.isalnum() or c in ".-_:" for c in host)
    if parts.scheme not in ("http", "https") or not host or not is_plain or not url.isprintable():
        raise BadInput("this is not an http or https address", where=where, fix=fix)
    shown_host = f"[{host}]" if ":" in host else host
    return f"{shown_host}:{port}" if port is not None else shown_host


NOTIFY_SECRET_BYTES = 16
"""The least bytes of a secret: what is shorter can be guessed from one signed message. Generated ones have 24 or
more."""


SECRET_PREFIX = "whsec_"  # noqa: S105 - how a secret begins, not one


def parse_secret(secret: str, where: str) -> bytes:
    """Return the signing key in a secret: the bytes behind `whsec_<base64>`; any other text is a key by its bytes.

    Raises BadInput, which does not show the secret, for bad base64 and for fewer than NOTIFY_SECRET_BYTES bytes.
    """
    fix = f"make one: echo {SECRET_PREFIX}$(head -c 32 /dev/urandom | base64)"
    key = secret.encode()
    if secret.startswith(SECRET_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            raise BadInput(f"what follows {SECRET_PREFIX} is not base64", where=where, fix=fix) from None
    if len(key) < NOTIFY_SECRET_BYTES:
        raise BadInput(f"a secret of {len(key)} bytes, at least {NOTIFY_SECRET_BYTES} are safe", where=where, fix=fix)
    return key


def webhook_headers(id: str, timestamp: int, body: bytes, keys: Iterable[bytes]) -> dict[str, str]:
    """Return the headers webhook-id, webhook-timestamp (seconds) and, with keys, webhook-signature: one `v1,<base64>` a
    key, an HMAC-SHA-256 of id, timestamp and body."""
    signed_bytes = f"{id}.{timestamp}.".encode() + body
    signatures = [base64.b64encode(hmac.new(key, signed_bytes, hashlib.sha256).digest()).decode() for key in keys]
    id_headers = {"webhook-id": id, "webhook-timestamp": str(timestamp)}
    return id_headers | (
        {"webhook-signature": " ".join(f"v1,{signature}" for signature in signatures)} if signatures else {}
    )
