"""`perdure doctor`: what this host has, what it lacks, and what to do about it; checks that look outside are in
`remote_checks`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

import typer
from temporalio.service import RPCError

from perdure.adapters.agents.builtin.model import API_URL
from perdure.adapters.browser.browser import NoBrowser, find_browser
from perdure.adapters.repository.config import load_repository_config
from perdure.adapters.repository.host import load_host_config, unknown_variables
from perdure.adapters.sandbox.base import MachineShare
from perdure.adapters.sandbox.control_groups import find_delegated_group
from perdure.adapters.sandbox.grades import probe, probe_landlock, probe_layers
from perdure.adapters.sandbox.usage import ResourceCaps, gigabytes
from perdure.adapters.system.files import size_on_disk
from perdure.adapters.system.home import Home
from perdure.adapters.system.http_client import client_options, proxy_note
from perdure.adapters.system.programs import run_program
from perdure.cli.event_loop import run_coroutine
from perdure.cli.host.agents import list_agents
from perdure.cli.host.remote_checks import (
    MISSING,
    NOTE,
    OK,
    Checkup,
    check_notify,
    check_repository,
    failed_checkup,
    try_notify,
)
from perdure.cli.request import validation
from perdure.cli.request.repository import read_working_tree_config
from perdure.cli.screen import Screen
from perdure.client.doctor import StuckWorkflow, find_stuck_workflows
from perdure.client.server.capabilities import read_capabilities
from perdure.client.server.view import has_pollers
from perdure.local import checks
from perdure.local.access import MODEL_KEYS, MODEL_VARIABLES
from perdure.local.connect import connect_to_temporal, external_server_config
from perdure.local.places import read_running_supervisor, temporal_binary, temporal_version, worker_script
from perdure.local.server import find_server
from perdure.models.config.repository import BUILT_IN, CONFIG_FILE, RepositoryConfig, SandboxGrade
from perdure.models.delivery.steps import AGENTIC
from perdure.models.errors import BadInput, PerdureError, TemporalUnreachable
from perdure.models.limits import TASK_QUEUE
from perdure.render.formatting import with_tilde
from perdure.secrets import environment, without_secrets
from perdure.text import format_count, one_line, shorten

GIT_NEEDED = (2, 30)
"""For `git worktree` with repairs, `--porcelain=v2`, and safe transactions of references as the vault uses them."""


MODEL_PORT_S = 3.0
"""Seconds in which a model's server has to accept a connection."""

_FIRST_PERSON_UID, _NOBODY_UID = 1000, 65534
"""Account numbers as Linux distributions give them (login.defs)."""


def check_git() -> list[Checkup]:
    """Check that git is installed and not older than GIT_NEEDED."""
    result = run_program(["git", "--version"], without_secrets(os.environ), 10)
    if result.code is None:
        return [Checkup("git", MISSING, "git is not installed", "sudo apt-get install -y git")]
    if result.code:
        return [Checkup("git", MISSING, f"git does not run: {one_line(result.output, 300)}", "correct what it names")]
    version = re.search(r"(\d+)\.(\d+)(?:\.\d+)*", result.output)
    if version is None or (int(version[1]), int(version[2])) < GIT_NEEDED:
        return [Checkup("git", MISSING, f"{result.output.strip()} is too old, 2.30 is needed", "install a newer git")]
    return [Checkup("git", OK, version[0])]


def check_home() -> list[Checkup]:
    """Check that the home directory can be used, and report its size, its share of the disk, its limit, beyond which
    that is noted, the free space and other people's accounts.

    Directories that the check makes are removed again. Raises BadInput when the home cannot be used, or the host's
    settings are wrong.
    """
    root = Home.find().root
    missing_paths = [path for path in (root, *root.parents) if not path.exists()]
    checks.check_home(root)
    disk, size = shutil.disk_usage(root), size_on_disk(root)
    limit = Home(root).size_limit(load_host_config(os.environ).home.gigabytes)
    for path in missing_paths:
        with contextlib.suppress(OSError):  # somebody has put something into it meanwhile
            path.rmdir()
    share = f"{size / disk.total:.1%} of the disk" if size else "empty"
    text = f"{with_tilde(root)}: {gigabytes(size)}, {share}; its limit {gigabytes(limit)}; {gigabytes(disk.free)} free"
    is_large = size > limit
    fix = "perdure gc --days 7 removes what ended a week ago" if is_large else ""
    return [Checkup("home", NOTE if is_large else OK, text, fix), *_find_other_accounts()]


def _find_other_accounts() -> list[Checkup]:
    """Return a note that names other people with accounts on this host; none when there are none or a server is
    configured.

    The embedded Temporal server asks nobody who they are: everybody with an account here can decide and start
    deliveries.
    """

    if external_server_config() is not None:
        return []
    shells = ("nologin", "false", "sync", "true")
    accounts = [
        account
        for account in pwd.getpwall()
        if account.pw_uid >= _FIRST_PERSON_UID and account.pw_uid not in (os.getuid(), _NOBODY_UID)
    ]
    names = sorted(
        account.pw_name for account in accounts if Path(account.pw_shell).name not in shells and account.pw_shell
    )
    if not names:
        return []
    text = f"other people have accounts here ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
    fix = "the embedded Temporal answers all of them: they can read deliveries, decide and start some (SECURITY.md);\n"
    return [Checkup("home", NOTE, text, fix + "use a host of your own, or TEMPORAL_ADDRESS with a server that asks")]


def check_sandbox() -> list[Checkup]:
    """Check that the sandbox of the configured grade works here, and report the grade and a command's limits.

    The grades off and reduced are noted, since they protect less; a sandbox that does not work is MISSING. Raises
    BadInput when the host's settings are wrong.
    """
    host = load_host_config(os.environ)
    grade, caps = host.sandbox, ResourceCaps.from_limits(host.commands)
    control_group = find_delegated_group(_worker_process())
    enforcement = f"held by the kernel in {control_group}, and watched" if control_group else "watched"
    limits = f"; a command is ended beyond {gigabytes(caps.memory)}, {caps.processes} processes ({enforcement})"
    if grade is SandboxGrade.OFF:
        text = "grade off: what the agent runs can read and change everything you can"
        return [Checkup("sandbox", NOTE, text, "unset PERDURE_SANDBOX, or remove sandbox from the user file")]
    if grade is SandboxGrade.REDUCED:
        error = probe_landlock()
        weaker = "weaker than bubblewrap, and setup has the network"
        checkup = Checkup("sandbox", NOTE, f"grade reduced (Landlock): {weaker}{limits}")
        return [checkup if error is None else failed_checkup("sandbox", error)]
    probed = probe()
    if probed.error is not None:
        return [failed_checkup("sandbox", probed.error)]
    layering, reason = probe_layers(Home.find().root)
    packages = f"writable for each command alone ({layering.label()})" if layering.path else f"read-only ({reason})"
    return [Checkup("sandbox", OK, f"grade full, {probed.program}; packages {packages}{limits}")]


def check_room() -> list[Checkup]:
    """Report how many setups and test commands run at once, and whether settings or the host's size decide that.

    Raises BadInput when the host's settings are wrong.
    """
    size, configured_number = MachineShare.measure(_worker_process()), load_host_config(os.environ).commands.at_once
    why = "[commands] at_once" if configured_number else f"{size.processors:g} processors, {gigabytes(size.memory)}"
    text = f"{configured_number or size.slot_count()} setups and test commands at once ({why})"
    return [Checkup("room", OK, text)]


def _worker_process() -> Path:
    """Return the directory in /proc of the process whose control group counts: the running worker, else this
    process."""
    try:
        supervisor = read_running_supervisor(Home.find())
    except OSError:  # the home cannot be used, which check_home reports
        supervisor = None
    return Path("/proc", str(supervisor.worker_pid or "self") if supervisor else "self")


def check_key() -> list[Checkup]:
    """Check that there is a key for the model, else return a MISSING line; note it for a publisher, which should have
    none.
    """
    env = environment()
    if env.get("PERDURE_WORKER_ROLE", "").strip() == "publisher":
        held_keys = [name for name in validation.KEYS if env.get(name, "").strip()]
        fix = "unset it here: what is not there cannot be taken" if held_keys else ""
        return [Checkup("key", NOTE if held_keys else OK, "a publisher asks no model and needs no key", fix)]
    names = [name for name in MODEL_VARIABLES if env.get(name, "").strip()]
    if any(env.get(name, "").strip() for name in MODEL_KEYS):
        address = env.get("ANTHROPIC_BASE_URL", "").strip() or API_URL
        client_options(address)  # raises where the environment's certificates or proxy cannot be used
        closed = [_find_closed_port(name, env[name].strip()) for name in names if name.endswith("_BASE_URL")]
        if findings := [finding for finding in closed if finding is not None]:
            return findings
        return [Checkup("key", OK, f"{', '.join(names)} set{proxy_note(address)}")]
    fix = "export ANTHROPIC_API_KEY=…; without one: perdure demo"
    return [Checkup("key", MISSING, "there is no key for the model", fix)]


def _find_closed_port(variable: str, address: str) -> Checkup | None:
    """Return a MISSING line where nothing accepts connections at a model's address, which `variable` names; None where
    something does, or a proxy is asked instead."""
    url = urlsplit(address)
    if not url.hostname or proxy_note(address):
        return None
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((url.hostname, port), timeout=MODEL_PORT_S).close()
    except OSError as error:
        what = f"no model answers at {url.scheme}://{url.hostname}:{port}: {error.strerror or error}"
        return Checkup("key", MISSING, what, f"start it, or correct {variable}")
    return None


def check_temporal() -> list[Checkup]:
    """Check that the configured Temporal server answers and has what is used of it; report the embedded server's
    version, and where it runs.

    An embedded server that does not run is fine: the next delivery starts it. Raises PerdureError when the server does
    not answer, or the `temporal` program is missing.
    """
    home, config = Home.find(), external_server_config()
    if config is not None:
        return run_coroutine(_check_external_server(home))
    version = temporal_version(temporal_binary())
    server = run_coroutine(find_server(home)) if home.root.is_dir() else None
    if server is None:
        return [Checkup("Temporal", OK, f"embedded {version}, not running: the next deliver starts it")]
    return [
        Checkup("Temporal", OK, f"embedded {version} at {server.address} (pid {server.pid}), Web UI {server.ui_url}")
    ]


async def _check_external_server(home: Home) -> list[Checkup]:
    """Report the server that TEMPORAL_* variables name, and what it lacks. Raises PerdureError when it does not answer,
    or does not know the namespace."""
    client = await connect_to_temporal(home, start=False, say=lambda line: None)
    address = client.service_client.config.target_host
    try:
        server = await read_capabilities(client)
    except RPCError as error:
        raise TemporalUnreachable(
            f"the server does not tell about its namespace {client.namespace!r}: {one_line(error.message, 200)}",
            where=address,
            fix="set TEMPORAL_NAMESPACE to one that exists; deploy/namespace.sh makes one",
        ) from None
    kept = f", keeps what has ended for {format_count(server.retention.days, 'day')}" if server.retention.days else ""
    text = f"{address} answers, as TEMPORAL_* says: server {server.version or 'of unknown version'}{kept}"
    return [Checkup("Temporal", OK, text)] + [
        Checkup("Temporal", MISSING if part.needed else NOTE, f"it has no {part.name}: {part.consequence}", part.fix)
        for part in server.missing
    ]


def check_worker() -> list[Checkup]:
    """Report whether this home's worker runs, and how many times it was started again; where TEMPORAL_* variables name
    a server, whether any worker takes deliveries there. Not running is fine.

    Raises PerdureError where worker.py is missing from the installation.
    """
    worker_script()
    home = Home.find()
    supervisor = read_running_supervisor(home) if home.root.is_dir() else None
    if supervisor is None and external_server_config() is not None:
        return run_coroutine(_check_external_workers(home))
    if supervisor is None:
        return [Checkup("worker", OK, "not running: the next deliver starts one")]
    restarts = f", started again {format_count(supervisor.restarts, 'time')}" if supervisor.restarts else ""
    return [Checkup("worker", OK, f"runs{supervisor.pid_suffix}{restarts}")]


async def _check_external_workers(home: Home) -> list[Checkup]:
    """Report whether a worker, of any host, takes deliveries from the server that TEMPORAL_* variables name."""
    try:
        client = await connect_to_temporal(home, start=False, say=lambda line: None)
    except PerdureError:  # check_temporal reports it
        return []
    if await has_pollers(client, TASK_QUEUE):
        return [Checkup("worker", OK, f"at least one takes work from queue {TASK_QUEUE}")]
    text = f"none takes work from queue {TASK_QUEUE}: deliveries wait for one"
    return [Checkup("worker", NOTE, text, "perdure worker runs one, here or on another host")]


def check_deliveries() -> list[Checkup]:
    """Report workflows that stand still for a reason which is seen nowhere else, such as a queue without a worker.

    Nothing is reported where no server runs: check_temporal does that.
    """

    async def list_stuck() -> list[StuckWorkflow]:
        client = await connect_to_temporal(Home.find(), start=False, say=lambda line: None)
        return [stuck_workflow async for stuck_workflow in find_stuck_workflows(client)]

    try:
        return [
            Checkup("deliveries", NOTE, f"{stuck_workflow.id} {stuck_workflow.reason}", stuck_workflow.fix)
            for stuck_workflow in run_coroutine(list_stuck())
        ]
    except RPCError as error:
        return [Checkup("deliveries", NOTE, f"the server does not say how they stand: {shorten(error.message, 100)}")]
    except PerdureError:
        return []


def _read_local_config() -> RepositoryConfig | None:
    """Return the settings of the perdure.toml here or in the nearest directory above; None without one that can be
    read. Raises BadInput when it is malformed."""
    for directory in (Path.cwd(), *Path.cwd().parents):
        if (text := read_working_tree_config(directory)) is not None:
            return load_repository_config(text, str(directory / CONFIG_FILE))
    return None


def check_settings() -> list[Checkup]:
    """Report every variable named PERDURE_… that means nothing, as a note, and a perdure.toml here that is wrong, as
    MISSING.

    The file is that of the current directory or the nearest one above. Returns no line when nothing is wrong.
    """
    checkups = [
        Checkup("settings", NOTE, f"{name} means nothing", "correct it, or unset it")
        for name in unknown_variables(os.environ)
    ]
    try:
        _read_local_config()
    except BadInput as error:
        checkups.append(failed_checkup("settings", error))
    return checkups


def check_browser() -> list[Checkup]:
    """Look for a browser, when the perdure.toml here or in a directory above asks for screenshots by `[app] start`.

    Returns no line when it does not ask or cannot be read. A missing browser is only noted.
    """
    try:
        config = _read_local_config()
    except BadInput:  # check_settings reports it
        config = None
    if config is None or not config.app.start:
        return []
    try:
        return [Checkup("browser", OK, f"{with_tilde(Path(find_browser().chromium))}, for [app]")]
    except NoBrowser as missing:
        what, _, fix = str(missing).partition(": ")
        return [Checkup("browser", NOTE, f"{what}; without it there are no screenshots", fix)]


def check_agents() -> list[Checkup]:
    """Check the agents: one line for each that is installed or has a problem, one for all that are not installed.

    An agent that is missing or wrong is MISSING only when this host's settings or PERDURE_AGENT name it, else a note.
    Starts each installed one to ask its version. Raises BadInput when the host's settings are wrong.
    """
    steps = load_host_config(os.environ).steps
    chosen_names = {getattr(steps, step).agent for step in AGENTIC} | {os.environ.get("PERDURE_AGENT", "").strip()}
    checkups, all_agents = [], list_agents()
    for name in sorted(chosen_names - {agent["name"] for agent in all_agents} - {"", BUILT_IN}):
        checkups.append(
            Checkup("agents", MISSING, f"no agent is called {shorten(name, 60)!r}", "perdure agents lists them")
        )
    for agent in all_agents[1:]:
        if agent["fix"] and (agent["program"] or agent["name"] in chosen_names or not agent["title"]):
            mark = MISSING if agent["name"] in chosen_names else NOTE
            checkups.append(Checkup("agents", mark, f"{agent['name']}: {agent['state']}", agent["fix"]))
        elif not agent["fix"]:
            checkups.append(Checkup("agents", OK, f"{agent['name']} {agent['version']}".strip()))
    if not_installed := [
        agent["name"]
        for agent in all_agents[1:]
        if agent["fix"] and not agent["program"] and agent["name"] not in chosen_names
    ]:
        text = f"not installed: {', '.join(not_installed)}"
        checkups.append(Checkup("agents", OK, text, "perdure agents says how to get each"))
    return checkups


def doctor(sandbox: bool, notify: bool, json: bool) -> None:
    """Run all checks of this host and of the repository in the current directory, and print a line for each finding, or
    JSON.

    `sandbox`: only that check; `notify`: only send a test to every webhook. Always ends by raising typer.Exit, with
    code 1 when something needed is missing, else 0.
    """
    if notify:
        checks: tuple[Callable[[], list[Checkup]], ...] = (try_notify,)
    else:
        checks = (check_sandbox,) if sandbox else _list_checks()
    findings = [finding for check in checks for finding in _run_check(check)]
    screen = Screen(json=json)
    if json:
        screen.print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            screen.print_line(f"{finding.mark} {finding.name:<10} {finding.text}")
            screen.print_lines(f"  {'':<10} {line}" for line in finding.fix.splitlines())
    raise typer.Exit(1 if any(finding.mark == MISSING for finding in findings) else 0)


def _list_checks() -> tuple[Callable[[], list[Checkup]], ...]:
    """Return all checks in the order of their lines."""
    return (
        check_git,
        check_home,
        check_sandbox,
        check_room,
        check_key,
        check_agents,
        check_temporal,
        check_worker,
        check_deliveries,
        check_repository,
        check_browser,
        check_notify,
        check_settings,
    )


def _run_check(check: Callable[[], list[Checkup]]) -> list[Checkup]:
    """Run one check and return its lines; a PerdureError that it raises becomes one failed line. Other errors pass."""

    try:
        return check()
    except PerdureError as error:
        return [failed_checkup(check.__name__.rpartition("_")[2], error)]
