"""The scripts of `deploy/` as real processes, against a real Temporal server."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.adapters.sandbox.program import find_bubblewrap
from tests.temporal_server import bare_server
from tests.waiting import patient

pytestmark = pytest.mark.story

DEPLOY = Path(__file__).parents[2] / "deploy"
BIN = Path(sys.executable).parent
TEMPORAL = BIN / "temporal"
PATH = f"{BIN}:{os.environ['PATH']}"
DYNAMIC: dict[str, Any] = yaml.safe_load((DEPLOY / "dynamicconfig" / "perdure.yaml").read_text())


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server started with the dynamic configuration that deploy/ gives to the one on PostgreSQL."""
    log = tmp_path_factory.mktemp("server") / "log"
    with bare_server(log, *(f"{key}={json.dumps(entry['value'])}" for key, (entry,) in DYNAMIC.items())) as address:
        yield address


def temporal(address: str, *arguments: str) -> Any:
    command = [TEMPORAL, *arguments, "--address", address, "-o", "json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout)


def test_the_server_knows_every_key_of_the_dynamic_configuration(address: str) -> None:
    """It ignores a key it does not know, so a key is looked for in the server itself as well."""
    with TEMPORAL.resolve().open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as binary:
        known = {key for key in [*DYNAMIC, "history.noSuchKey"] if binary.find(key.encode()) >= 0}
    assert known == set(DYNAMIC)
    assert address


def test_the_namespace_job_makes_the_search_attributes_and_can_run_again(address: str) -> None:
    env = {"PATH": PATH, "TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": "deliveries", "HOME": "/nonexistent"}
    for _ in range(2):
        done = subprocess.run([DEPLOY / "namespace.sh"], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    listed = temporal(address, "operator", "search-attribute", "list", "--namespace", "deliveries")
    ours = {name: kind for name, kind in listed["customAttributes"].items() if name.startswith("Perdure")}
    keywords = ("Branch", "Change", "Phase", "PullRequest", "Repository", "Status", "Title", "Waiting")
    assert ours == {f"Perdure{name}": "INDEXED_VALUE_TYPE_KEYWORD" for name in keywords} | {
        "PerdureCostUsd": "INDEXED_VALUE_TYPE_DOUBLE",
        "PerdureLabels": "INDEXED_VALUE_TYPE_KEYWORD_LIST",
    }
    namespace = temporal(address, "operator", "namespace", "describe", "--namespace", "deliveries")
    assert namespace["config"]["workflowExecutionRetentionTtl"] == f"{90 * 24 * 3600}s"


def test_the_health_check_runs_a_command_in_the_sandbox() -> None:
    done = subprocess.run([DEPLOY / "healthcheck.sh"], env={"PATH": PATH}, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_the_health_check_fails_and_says_why_where_namespaces_are_forbidden() -> None:
    """Inside a user namespace that allows no further one, as on a host where they are switched off."""
    forbidding = [
        find_bubblewrap().path,
        "--dev-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--unshare-user",
        "--disable-userns",
        "--",
    ]
    command = [*forbidding, str(DEPLOY / "healthcheck.sh")]
    done = subprocess.run(command, env={"PATH": PATH}, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the sandbox cannot start: "), done.stderr
    assert "fix: " in done.stderr


def test_a_secret_given_as_a_file_reaches_the_command_and_its_file_name_does_not(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("s3cret with 'quotes' $HOME\n")
    env = {"PATH": PATH, "ANTHROPIC_API_KEY_FILE": str(secret)}
    done = subprocess.run([DEPLOY / "entrypoint.sh", "env"], env=env, capture_output=True, text=True, timeout=10)
    assert "ANTHROPIC_API_KEY=s3cret with 'quotes' $HOME\n" in done.stdout
    assert "_FILE" not in done.stdout


def test_a_secret_that_cannot_be_read_is_an_error_of_three_lines(tmp_path: Path) -> None:
    env = {"PATH": PATH, "TEMPORAL_API_KEY_FILE": str(tmp_path / "nothing")}
    done = subprocess.run([DEPLOY / "entrypoint.sh"], env=env, capture_output=True, text=True, timeout=10)
    assert done.returncode == 2
    assert [line.split(":")[0].strip() for line in done.stderr.splitlines()] == ["error", "where", "fix"]


@pytest.mark.parametrize("role", ["worker", "publisher"])
def test_the_entry_point_starts_one_that_polls_and_stops_on_sigterm(role: str, address: str, tmp_path: Path) -> None:
    if not shutil.which("perdure", path=PATH):
        pytest.fail("perdure is not installed in the environment of the tests: make .venv/.ready")
    env = {
        **{name: value for name, value in os.environ.items() if name.startswith("COVERAGE")},
        "PATH": PATH,
        "HOME": str(tmp_path),
        "PERDURE_HOME": str(tmp_path / "home"),
        "TEMPORAL_ADDRESS": address,
        "PERDURE_PUBLISHER_QUEUE": "publish",
    }
    home, secret = tmp_path / "home", tmp_path / "secret"
    secret.write_text("never-used\n")
    env |= {("PERDURE_GITHUB_TOKEN_FILE" if role == "publisher" else "ANTHROPIC_API_KEY_FILE"): str(secret)}

    def pollers() -> Any:
        if role == "worker":
            return temporal(address, "task-queue", "describe", "--task-queue", "perdure").get("pollers")
        if not (home / "host-id").exists():
            return None
        queue = f"publish-{(home / 'host-id').read_text().split()[0]}"
        return temporal(address, "task-queue", "describe", "--task-queue", queue, "--task-queue-type", "activity").get(
            "pollers"
        )

    log = (tmp_path / "worker.log").open("w+")
    options = ["--publisher"] if role == "publisher" else []
    worker = subprocess.Popen([DEPLOY / "entrypoint.sh", *options], env=env, cwd=tmp_path, stdout=log, stderr=log)
    try:
        while not pollers():
            assert worker.poll() is None, (tmp_path / "worker.log").read_text()
            time.sleep(0.2)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=patient(60)) == 0, (tmp_path / "worker.log").read_text()
    finally:
        worker.kill()
        worker.wait()
        log.close()
