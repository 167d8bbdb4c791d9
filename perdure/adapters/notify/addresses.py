"""The addresses that this host tells, and the secrets that sign what they are told; held in this process only."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from perdure.models.errors import BadInput
from perdure.models.host_config import NoticeEvent, NotifySettings
from perdure.models.notice import Event

NOTIFY_ADDRESSES = 10
"""Addresses a host tells: each is tried by itself, and each has its lines in the notification's history."""


URL, SECRET = "PERDURE_WEBHOOK_URL", "PERDURE_WEBHOOK_SECRET"  # names of variables
SECRET_VARIABLES = (URL, SECRET)
"""An address is a secret, too: whoever has a chat's can write there."""


@dataclass(frozen=True)
class Address:
    """`name`: its host, and nothing else of it; the only part that may be shown."""

    name: str
    url: str = field(repr=False)

    @property
    def readable(self) -> bool:
        """True where others on the way can read what is sent: plain http that leaves this machine."""
        host = urlsplit(self.url).hostname or ""
        own = host in ("localhost", "::1") or host.startswith("127.")
        return not own and not self.url.lower().startswith("https:")


@dataclass(frozen=True)
class Listeners:
    """Addresses that this host tells, and of what. `keys`: each signs; two while a secret is replaced by another."""

    addresses: tuple[Address, ...] = ()
    events: tuple[NoticeEvent, ...] = ()
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, settings: NotifySettings, environ: Mapping[str, str]) -> Listeners:
        """PERDURE_WEBHOOK_URL stands for the file's addresses; both variables may hold several, separated by blanks.

        BadInput for an address or a secret that cannot be one; it shows neither.
        """
        given = environ.get(URL, "").split()
        where = URL if given else "[notify] url"
        urls = given or [url.get_secret_value() for url in settings.url]
        if len(urls) > NOTIFY_ADDRESSES:
            raise BadInput(
                f"{len(urls)} addresses, at most {NOTIFY_ADDRESSES} are told", where=where, fix="remove some"
            )
        secrets = environ.get(SECRET, "").split()
        urls = list(dict.fromkeys(urls))  # who is named twice is told once
        return cls(
            addresses=tuple(_named(urls, where)),
            events=settings.events,
            keys=tuple(key_of(secret, SECRET) for secret in secrets),
            secrets=(*secrets, *urls),
        )

    @classmethod
    def from_environment(cls, settings: NotifySettings, environ: MutableMapping[str, str]) -> Listeners:
        """Takes both variables out of `environ`: no child process may inherit them. BadInput as above."""
        found = cls.of(settings, environ)
        for name in SECRET_VARIABLES:
            environ.pop(name, None)
        return found

    def who(self, event: Event) -> tuple[str, ...]:
        """Names of those who want to hear of it. A test is heard by all."""
        wanted = event == "test" or event in self.events
        return tuple(address.name for address in self.addresses) if wanted else ()

    def address(self, name: str) -> Address | None:
        return next((address for address in self.addresses if address.name == name), None)


def _named(urls: Iterable[str], where: str) -> Iterable[Address]:
    seen: dict[str, int] = {}
    for number, url in enumerate(urls, 1):
        host = _host(url, f"{where}, address {number}")
        seen[host] = seen.get(host, 0) + 1
        yield Address(host if seen[host] == 1 else f"{host} ({seen[host]})", url)


def _host(url: str, where: str) -> str:
    """`hooks.example.com`, `127.0.0.1:8080`. BadInput when this is no http(s) address."""
    fix = "write it as https://host/path"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadInput("this is not an address", where=where, fix=fix) from None
    plain = host is not None and all(c.isalnum() or c in ".-_:" for c in host)
    if parts.scheme not in ("http", "https") or not host or not plain or not url.isprintable():
        raise BadInput("this is not an http or https address", where=where, fix=fix)
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" if port is not None else shown


NOTIFY_SECRET_BYTES = 16
"""The least for a secret: what is shorter can be guessed from one signed message. Generated ones have 24 or more."""


PREFIX = "whsec_"


def key_of(secret: str, where: str) -> bytes:
    """The key in `whsec_<base64>`; any other text is a key by its bytes. BadInput, which does not show it."""
    fix = f"make one: echo {PREFIX}$(head -c 32 /dev/urandom | base64)"
    key = secret.encode()
    if secret.startswith(PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            raise BadInput(f"what follows {PREFIX} is not base64", where=where, fix=fix) from None
    if len(key) < NOTIFY_SECRET_BYTES:
        raise BadInput(f"a secret of {len(key)} bytes, at least {NOTIFY_SECRET_BYTES} are safe", where=where, fix=fix)
    return key


def headers(id: str, timestamp: int, body: bytes, keys: Iterable[bytes]) -> dict[str, str]:
    """webhook-id, webhook-timestamp (seconds) and, with keys, webhook-signature: one `v1,<base64>` a key."""
    signed = f"{id}.{timestamp}.".encode() + body
    made = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys]
    found = {"webhook-id": id, "webhook-timestamp": str(timestamp)}
    return found | ({"webhook-signature": " ".join(f"v1,{one}" for one in made)} if made else {})
