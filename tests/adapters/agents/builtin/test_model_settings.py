from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from perdure.adapters.agents.builtin.errors import RETRY_AFTER_CAP_S, retry_after_seconds
from perdure.adapters.agents.builtin.model import Model
from perdure.models.errors import BadInput


def test_keys_are_taken_out_of_the_environment() -> None:
    environ = {
        "ANTHROPIC_API_KEY": "sk-one-0123456789",
        "ANTHROPIC_AUTH_TOKEN": "two",
        "ANTHROPIC_CUSTOM_HEADERS": "X-Gateway: let-me-in-please\nbroken",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "PATH": "/bin",
    }
    model = Model.from_environment(environ)
    assert model is not None
    assert set(environ) == {"ANTHROPIC_BASE_URL", "PATH"}
    assert model.secrets == ("sk-one-0123456789", "let-me-in-please")


def test_without_a_key_there_is_no_model() -> None:
    assert Model.from_environment({"ANTHROPIC_API_KEY": "  ", "ANTHROPIC_BASE_URL": "nonsense"}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANTHROPIC_BASE_URL", "api.example.org"),
        ("ANTHROPIC_BASE_URL", "file:///etc/passwd"),
        ("PERDURE_MODEL_SILENCE_S", "soon"),
        ("PERDURE_MODEL_SILENCE_S", "nan"),
        ("PERDURE_MODEL_SILENCE_S", "-1"),
    ],
)
def test_a_setting_that_cannot_work_is_named(name: str, value: str) -> None:
    with pytest.raises(BadInput) as bad:
        Model.from_environment({"ANTHROPIC_API_KEY": "k", name: value})
    assert bad.value.where == name


def test_the_anthropic_library_is_not_imported_until_a_model_is_asked() -> None:
    code = (
        "import sys, perdure.adapters.agents.builtin.model, perdure.adapters.agents.builtin.conversation;"
        "print(any(name in sys.modules for name in ('anthropic', 'httpx2')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "4000000"}, RETRY_AFTER_CAP_S),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_a_pause_is_bounded_and_nonsense_is_ignored(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers) == seconds


def test_a_date_in_retry_after_is_a_pause_from_now() -> None:
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))
    seconds = retry_after_seconds({"retry-after": later})
    assert seconds is not None
    assert 50 < seconds <= 60


def test_without_retry_after_the_latest_reset_of_what_is_used_up_counts() -> None:
    soon, later = (datetime.fromtimestamp(time.time() + seconds, UTC).isoformat() for seconds in (20, 60))
    headers = {
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": soon,
        "anthropic-ratelimit-tokens-remaining": "400",
        "anthropic-ratelimit-tokens-reset": later,
    }
    assert 10 < (retry_after_seconds(headers) or 0) <= 20
    assert 50 < (retry_after_seconds({**headers, "anthropic-ratelimit-tokens-remaining": "0"}) or 0) <= 60
    assert retry_after_seconds({**headers, "anthropic-ratelimit-requests-reset": "soon"}) is None
    assert retry_after_seconds({"anthropic-ratelimit-requests-remaining": "0"}) is None
