"""Signatures as the Standard Webhooks specification describes them: every receiver's library can check them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

from perdure.models.errors import BadInput

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
