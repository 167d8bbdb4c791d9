"""docs/notifications.md says what is sent: its settings are read, its events and fields are those of the code."""

from __future__ import annotations

import base64
import hmac
import json
import re
import time
import tomllib
from pathlib import Path
from typing import Any, get_args

from perdure.adapters.notify.sign import headers, key_of
from perdure.models.config import Heard, HostConfig
from perdure.models.notice import Message
from perdure.models.policy import NOTIFY_ATTEMPT_S, NOTIFY_FOR, NOTIFY_PAUSE, NOTIFY_PAUSE_MAX, NOTIFY_SECRET_BYTES

GUIDE = (Path(__file__).parents[2] / "docs" / "notifications.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    return found[1]


def test_the_settings_of_the_guide_are_read_and_name_every_event() -> None:
    shown = HostConfig.model_validate(tomllib.loads(block("toml"))).notify
    assert len(shown.url) == 2
    assert shown.events == HostConfig().notify.events == get_args(Heard)
    assert re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE) == list(get_args(Heard))


def test_the_message_of_the_guide_is_one() -> None:
    shown = json.loads(block("json"))
    assert shown.keys() <= Message.model_fields.keys()
    shown["decisions"][0]["said"]["of"] = shown["of"]
    assert Message.model_validate(shown).decisions[0].update == "approve"


def test_the_check_of_the_guide_accepts_what_is_signed_and_nothing_else() -> None:
    secret, body = "whsec_" + base64.b64encode(b"k" * 32).decode(), b'{"text": "hello"}'
    signed = headers("notice-1", int(time.time()), body, [key_of(secret, "x"), b"an older key, also signing"])
    for seen, genuine in ((body, True), (body + b" ", False)):
        names: dict[str, Any] = {"headers": signed, "body": seen, "secret": secret, "base64": base64, "hmac": hmac}
        exec(block("python"), names)
        assert names["genuine"] is genuine


def test_the_figures_of_the_guide_are_those_of_the_code() -> None:
    text = " ".join(GUIDE.split())
    assert f"within {NOTIFY_ATTEMPT_S:.0f} seconds" in text
    assert NOTIFY_FOR.days == 1
    assert f"after {NOTIFY_PAUSE.seconds} seconds" in text
    assert f"every {NOTIFY_PAUSE_MAX.seconds // 60} minutes" in text
    assert f"at least {NOTIFY_SECRET_BYTES} of them" in text
