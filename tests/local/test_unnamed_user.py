"""A user without a name and perhaps without a home directory, as `docker run -u 12345` makes one."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.other_users import everybodys_python

ROOT = Path(__file__).parents[2]
UNNAMED_UID = 12345

UNNAMED = ("unshare", "--user", f"--map-user={UNNAMED_UID}", f"--map-group={UNNAMED_UID}", "--")
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


@pytest.mark.story
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("variables", [{"HOME": "/"}, {}], ids=["home of root", "no home"])
@pytest.mark.timeout(180)
def test_server_and_worker_start_and_end_for_a_uid_that_no_passwd_entry_has(variables: dict[str, str]) -> None:
    """HOME=/ is what `docker run -u 12345` sets: nothing can be written there."""
    with pytest.raises(KeyError):
        pwd.getpwuid(UNNAMED_UID)
    if (program := everybodys_python(UNNAMED_UID)) is None:
        pytest.skip("no Python of this version here can be started by another user")
    with tempfile.TemporaryDirectory(prefix="unnamed-") as place:
        directory = Path(place)
        os.chown(directory, UNNAMED_UID, UNNAMED_UID)
        (directory / "bin").mkdir()
        (directory / "bin" / "python").symlink_to(program)
        (directory / "bin" / "temporal").symlink_to(Path(sys.executable).with_name("temporal"))
        (directory / "pyvenv.cfg").write_text(f"home = {Path(program).parent}\n")
        paths = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        env |= {"PERDURE_HOME": str(directory / "home"), "ANTHROPIC_API_KEY": "none", **variables}

        def run(*command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [directory / "bin" / "python", "-m", "perdure.cli", *command],
                user=UNNAMED_UID, group=UNNAMED_UID, extra_groups=[], env=env, cwd="/",
                capture_output=True, text=True, check=False,
            )  # fmt: skip

        try:
            started = run("up", "--detach")
            assert started.returncode == 0, started.stderr
            assert "worker started" in started.stderr + started.stdout
            listed = run("list", "--json")
            assert (listed.returncode, listed.stdout.strip()) == (0, "[]"), listed.stderr
        finally:
            ended = run("down")
        assert "worker and server are down" in ended.stderr + ended.stdout


def test_without_any_home_the_error_names_what_to_set(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in NAMES} | {"PERDURE_HOME": "/proc/none"}
    command = [sys.executable, "-m", "perdure.cli", "up", "--detach"]
    ended = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "fix: set PERDURE_HOME to a directory of your own" in ended.stderr
