"""A user without a name and perhaps without a home directory, as `docker run -u 12345` makes one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

UNNAMED = ("unshare", "--user", "--map-user=12345", "--map-group=12345", "--")
NAMES = {"HOME", "USER", "LOGNAME", "PERDURE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"}

SERVER = """
import asyncio
from perdure import startup
startup.begin()
from perdure.adapters.repository.host import load_host_config, user_file
from perdure.adapters.system.home import Home
from perdure.local.server import ensure_server, stop_server

async def main():
    load_host_config({})
    user_file().exists()
    print((await ensure_server(Home.find(), say=print)).address)
    await stop_server(Home.find())

asyncio.run(main())
"""


@pytest.mark.skipif(
    subprocess.run([*UNNAMED, "true"], capture_output=True, check=False).returncode != 0, reason="no user namespaces"
)
@pytest.mark.parametrize("has_home", [True, False])
@pytest.mark.timeout(180)
def test_the_server_starts_and_settings_are_found_for_a_user_without_a_name(tmp_path: Path, has_home: bool) -> None:
    env = {name: value for name, value in os.environ.items() if name not in NAMES}
    env |= {"PERDURE_HOME": str(tmp_path / "home"), "ANTHROPIC_API_KEY": "none"}
    env |= {"HOME": str(tmp_path)} if has_home else {}

    ended = subprocess.run(
        [*UNNAMED, sys.executable, "-c", SERVER], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "127." in ended.stdout


def test_without_any_home_the_error_names_what_to_set(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in NAMES} | {"PERDURE_HOME": "/proc/none"}
    command = [sys.executable, "-m", "perdure.cli", "up", "--detach"]
    ended = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "fix: set PERDURE_HOME to a directory of your own" in ended.stderr
