"""Programs that Perdure starts for a person inherit neither the model's key nor a forge's token."""

from __future__ import annotations

import contextlib
import os
import pty
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.agents.proxied.upstream import WIRE_VARIABLES
from perdure.local.access import check_same_forge_access, check_same_model_access, fingerprint, forge_variables
from perdure.models.errors import BadInput
from perdure.secrets import without_secrets
from tests.waiting import patient

SECRET = "s3cret-of-the-owner"
NAMES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"),
    *("PERDURE_GITHUB_TOKEN", "PERDURE_GITHUB_APP_KEY", "GH_TOKEN", "GITHUB_TOKEN"),
    *("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"),
    *("PERDURE_WEBHOOK_URL", "PERDURE_WEBHOOK_SECRET"),
)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_worker_with_another_token_for_the_forge_is_not_taken_for_ours() -> None:
    salt = "2026-01-01"
    started = fingerprint({"GH_TOKEN": SECRET}, salt, forge_variables())
    check_same_forge_access(started, {"GH_TOKEN": SECRET, "ANTHROPIC_API_KEY": "another"}, salt)
    check_same_forge_access("", {}, salt)  # a worker from before there were forges
    for other in ({}, {"GH_TOKEN": "another"}, {"GH_TOKEN": SECRET, "PERDURE_GITHUB_URL": "https://ghe.example.com"}):
        with pytest.raises(BadInput, match="another token for GitHub than yours") as error:
            check_same_forge_access(started, other, salt)
        assert SECRET not in str(error.value)


@pytest.mark.parametrize("names", WIRE_VARIABLES.values(), ids=WIRE_VARIABLES)
def test_a_worker_with_another_key_or_address_of_any_model_is_not_taken_for_ours(names: Any) -> None:
    salt = "2026-01-01"
    ours = dict.fromkeys((*names.key_headers, names.address_variable), SECRET)
    started = fingerprint(ours, salt)
    check_same_model_access(started, ours, salt)
    for name in ours:
        for other in ({**ours, name: "another"}, {key: value for key, value in ours.items() if key != name}):
            with pytest.raises(BadInput, match="another key or model address than yours") as error:
                check_same_model_access(started, other, salt)
            assert name in error.value.where
            assert SECRET not in str(error.value)


def environment(tmp_path: Path, address: str) -> dict[str, str]:
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PERDURE_HOME": str(tmp_path / "home")}
    return own | dict.fromkeys(NAMES, SECRET) | {"TEMPORAL_ADDRESS": address, "PERDURE_UI_URL": "http://127.0.0.1:1"}


def until(look: Callable[[], str | None]) -> str:
    end = time.monotonic() + patient(60)
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if found := look():
                return found
        time.sleep(0.02)
    raise AssertionError("it did not come to that in a minute")


def test_every_secret_is_taken_out_and_nothing_else() -> None:
    env = dict.fromkeys(NAMES, SECRET) | {"PATH": "/bin", "ANTHROPIC_BASE_URL": "http://x", "GH_HOST": "x"}
    assert without_secrets(env) == {"PATH": "/bin", "ANTHROPIC_BASE_URL": "http://x", "GH_HOST": "x"}


def test_the_temporal_command_line_inherits_no_secret(tmp_path: Path, silent: str) -> None:
    command = [sys.executable, "-m", "perdure.cli", "temporal", "workflow", "list"]
    with subprocess.Popen(
        command, env=environment(tmp_path, silent), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            proc = Path(f"/proc/{process.pid}")
            until(lambda: (proc / "exe").readlink().name.startswith("temporal") or None)
            inherited = until(lambda: (proc / "environ").read_text())
        finally:
            process.kill()
    assert f"TEMPORAL_ADDRESS={silent}" in inherited
    assert SECRET not in inherited


def test_a_browser_inherits_no_secret(tmp_path: Path, silent: str) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\nenv >{tmp_path}/part; mv {tmp_path}/part {tmp_path}/seen\n")
    browser.chmod(0o755)
    env = environment(tmp_path, silent) | {"BROWSER": str(browser)}
    terminal, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "perdure.cli", "ui"]
        subprocess.run(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs, timeout=60, check=True)
        inherited = until(lambda: (tmp_path / "seen").read_text())
    finally:
        os.close(theirs)
        os.close(terminal)
    assert "BROWSER=" in inherited
    assert SECRET not in inherited
