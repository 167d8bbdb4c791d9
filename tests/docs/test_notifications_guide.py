"""docs/notifications.md says what is sent: its settings are read, its events and fields are those of the code."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

from perdure.adapters.notify.addresses import NOTIFY_SECRET_BYTES, parse_secret, webhook_headers
from perdure.adapters.notify.webhook import NOTIFY_ATTEMPT_S
from perdure.models.config.host import HostConfig, NoticeEvent
from perdure.models.limits import NOTIFY_PAUSE, NOTIFY_PAUSE_MAX
from perdure.models.notice import WebhookMessage
from workflows.gates import REMIND_AFTER, REMIND_LATER, REMINDERS
from workflows.notification import NOTIFY_FOR_TIME

GUIDE = (Path(__file__).parents[2] / "docs" / "notifications.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    return found[1]


def test_the_settings_of_the_guide_are_read_and_name_every_event() -> None:
    shown = HostConfig.model_validate(tomllib.loads(block("toml"))).notify
    assert len(shown.url) == 2
    assert shown.events == HostConfig().notify.events == get_args(NoticeEvent)
    assert re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE) == list(get_args(NoticeEvent))


def test_the_message_of_the_guide_is_one() -> None:
    shown = json.loads(block("json"))
    assert shown.keys() <= WebhookMessage.model_json_schema()["properties"].keys()
    shown["decisions"][0]["said"]["of"] = shown["of"]
    assert WebhookMessage.model_validate(shown).decisions[0].update == "approve"


def test_the_check_of_the_guide_accepts_what_is_signed_and_nothing_else() -> None:
    secret, body = "whsec_" + base64.b64encode(b"k" * 32).decode(), b'{"text": "hello"}'
    signed = webhook_headers(
        "notice-1", int(time.time()), body, [parse_secret(secret, "x"), b"an older key, also signing"]
    )
    names: dict[str, Any] = {}
    exec(block("python"), names)
    assert names["genuine"](signed, body, secret)
    assert not names["genuine"](signed, body + b" ", secret)
    again = webhook_headers("notice-1", int(time.time()) - 400, body, [parse_secret(secret, "x")])
    assert not names["genuine"](again, body, secret), "sent again by somebody who has seen it"


def test_the_check_of_the_guide_in_a_shell_does_the_same(tmp_path: Path) -> None:
    secret, body = "whsec_" + base64.b64encode(bytes(range(256))).decode().strip(), b"{'\\n': 1}\n\n"
    signed = webhook_headers("notice-1", 1, body, [b"an older key, also signing", parse_secret(secret, "x")])
    known = {name.replace("-", "_"): value for name, value in signed.items()}
    for seen, said in ((body, "genuine"), (body + b"\n", "forged")):
        (tmp_path / "body").write_bytes(seen)
        env = {"PATH": os.environ["PATH"], "PERDURE_WEBHOOK_SECRET": secret, **known}
        ran = subprocess.run(
            ["sh", "-euc", block("sh")], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30
        )
        assert ran.stdout == f"{said}\n", ran.stderr


def test_the_figures_of_the_guide_are_those_of_the_code() -> None:
    text = " ".join(GUIDE.split())
    assert f"within {NOTIFY_ATTEMPT_S:.0f} seconds" in text
    assert NOTIFY_FOR_TIME.days == 1
    assert f"after {NOTIFY_PAUSE.seconds} seconds" in text
    assert f"every {NOTIFY_PAUSE_MAX.seconds // 60} minutes" in text
    assert f"at least {NOTIFY_SECRET_BYTES} of them" in text
    assert (timedelta(days=1), 7, timedelta(weeks=1)) == (REMIND_AFTER, REMINDERS, REMIND_LATER)
    assert "a day later, daily for a week, then weekly" in text
