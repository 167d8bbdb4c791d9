"""The checks of `perdure doctor` on this host; each says what it found and what to do about it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from perdure.cli.session import carry_out
from perdure.cli.words import count, tilde
from perdure.models.errors import PerdureError
from perdure.models.limits import CONFIG_BYTES
from perdure.secrets import environment, without_secrets

GIT_NEEDED = (2, 30)
"""`git worktree` with repairs, `--porcelain=v2` and safe ref transactions as the vault uses them."""

OK, NOTE, MISSING = "✓", "!", "✗"


@dataclass(frozen=True)
class Checkup:
    """One line. `mark`: ✓ fine, ! worth knowing, ✗ deliveries will not work. `fix` may have several lines."""

    name: str
    mark: str
    text: str
    fix: str = ""


_FIRST_PERSON, _NOBODY = 1000, 65534
"""Numbers of accounts, as Linux distributions give them (login.defs)."""


def check_git() -> list[Checkup]:
    env = without_secrets(os.environ)
    try:
        said = subprocess.run(["git", "--version"], env=env, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return [Checkup("git", MISSING, "git is not installed", "sudo apt-get install -y git")]
    found = re.search(r"(\d+)\.(\d+)(?:\.\d+)*", said)
    if found is None or (int(found[1]), int(found[2])) < GIT_NEEDED:
        return [Checkup("git", MISSING, f"{said.strip()} is too old, 2.30 is needed", "install a newer git")]
    return [Checkup("git", OK, found[0])]


def check_home() -> list[Checkup]:
    from perdure.adapters.system.home import Home
    from perdure.local import checks

    root = Home.find().root
    fresh = [path for path in (root, *root.parents) if not path.exists()]
    checks.check_home(root)
    free = shutil.disk_usage(root).free // 1024**3
    for path in fresh:
        with contextlib.suppress(OSError):  # somebody has put something into it meanwhile
            path.rmdir()
    return [Checkup("home", OK, f"{tilde(root)}, {free} GiB free"), *_neighbours()]


def _neighbours() -> list[Checkup]:
    """The embedded server asks nobody who they are: everybody with an account here can decide and start deliveries."""
    import pwd

    from perdure.local.connect import configured

    if configured() is not None:
        return []
    shells = ("nologin", "false", "sync", "true")
    people = [one for one in pwd.getpwall() if one.pw_uid >= _FIRST_PERSON and one.pw_uid not in (os.getuid(), _NOBODY)]
    names = sorted(one.pw_name for one in people if Path(one.pw_shell).name not in shells and one.pw_shell)
    if not names:
        return []
    text = f"other people have accounts here ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
    fix = "the embedded Temporal answers all of them: they can read deliveries, decide and start some (SECURITY.md);\n"
    return [Checkup("home", NOTE, text, fix + "use a host of your own, or TEMPORAL_ADDRESS with a server that asks")]


def check_sandbox() -> list[Checkup]:
    from perdure.adapters.repository.host import load_host_config
    from perdure.adapters.sandbox.groups import delegated
    from perdure.adapters.sandbox.probe import probe, probe_landlock, probe_layers
    from perdure.adapters.sandbox.usage import Caps, gigabytes
    from perdure.adapters.system.home import Home
    from perdure.models.config import SandboxGrade

    host = load_host_config(os.environ)
    grade, caps = host.sandbox, Caps.of(host.commands)
    kernel = delegated(_worker())
    how = f"held by the kernel in {kernel}, and watched" if kernel else "watched"
    held = f"; a command is ended beyond {gigabytes(caps.memory)}, {caps.processes} processes ({how})"
    if grade is SandboxGrade.OFF:
        text = "grade off: what the agent runs can read and change everything you can"
        return [Checkup("sandbox", NOTE, text, "unset PERDURE_SANDBOX, or remove sandbox from the user file")]
    if grade is SandboxGrade.REDUCED:
        error = probe_landlock()
        weaker = "weaker than bubblewrap, and setup has the network"
        found = Checkup("sandbox", NOTE, f"grade reduced (Landlock): {weaker}{held}")
        return [found if error is None else failed("sandbox", error)]
    seen = probe()
    if seen.error is not None:
        return [failed("sandbox", seen.error)]
    layering, why = probe_layers(Home.find().root)
    packages = f"writable for each command alone ({layering.named()})" if layering.path else f"read-only ({why})"
    return [Checkup("sandbox", OK, f"grade full, {seen.program}; packages {packages}{held}")]


def check_room() -> list[Checkup]:
    """The number of setups and test commands that run at once, and the reason for it."""
    from perdure.adapters.repository.host import load_host_config
    from perdure.adapters.sandbox.room import Size
    from perdure.adapters.sandbox.usage import gigabytes

    size, told = Size.seen(_worker()), load_host_config(os.environ).commands.at_once
    why = "[commands] at_once" if told else f"{size.processors:g} processors, {gigabytes(size.memory)}"
    text = f"{told or size.room()} setups and test commands at once ({why})"
    return [Checkup("room", OK, text)]


def _worker() -> Path:
    """The process in /proc whose control group counts: the running worker, else this one, which would start it."""
    from perdure.adapters.system.home import Home
    from perdure.local.places import read_supervisor

    try:
        running = read_supervisor(Home.find())
    except OSError:  # no home that could be used, which another check says
        running = None
    return Path("/proc", str(running.worker_pid or "self") if running else "self")


def check_key() -> list[Checkup]:
    from perdure.cli.request import validation
    from perdure.local.access import KEYS, NAMES

    env = environment()
    if env.get("PERDURE_WORKER_ROLE", "").strip() == "publisher":
        held = [name for name in validation.KEYS if env.get(name, "").strip()]
        fix = "unset it here: what is not there cannot be taken" if held else ""
        return [Checkup("key", NOTE if held else OK, "a publisher asks no model and needs no key", fix)]
    names = [name for name in NAMES if env.get(name, "").strip()]
    if any(env.get(name, "").strip() for name in KEYS):
        return [Checkup("key", OK, f"{', '.join(names)} set")]
    fix = "export ANTHROPIC_API_KEY=…; without one: perdure demo"
    return [Checkup("key", MISSING, "there is no key for the model", fix)]


def check_temporal() -> list[Checkup]:
    from perdure.adapters.system.home import Home
    from perdure.local.connect import configured, connect
    from perdure.local.places import temporal_binary, temporal_version
    from perdure.local.server import find_server

    home, config = Home.find(), configured()
    if config is not None:
        client = carry_out(connect(home, start=False, say=lambda line: None))
        return [Checkup("Temporal", OK, f"{client.service_client.config.target_host} answers, as TEMPORAL_* says")]
    version = temporal_version(temporal_binary())
    info = carry_out(find_server(home)) if home.root.is_dir() else None
    if info is None:
        return [Checkup("Temporal", OK, f"embedded {version}, not running: the next deliver starts it")]
    return [Checkup("Temporal", OK, f"embedded {version} at {info.address} (pid {info.pid}), Web UI {info.ui_url}")]


def check_worker() -> list[Checkup]:
    from perdure.adapters.system.home import Home
    from perdure.local.places import read_supervisor, worker_script

    worker_script()
    home = Home.find()
    running = read_supervisor(home) if home.root.is_dir() else None
    if running is None:
        return [Checkup("worker", OK, "not running: the next deliver starts one")]
    again = f", started again {count(running.restarts, 'time')}" if running.restarts else ""
    return [Checkup("worker", OK, f"runs{running.pid_told}{again}")]


def check_deliveries() -> list[Checkup]:
    """Workflows that stand still for a reason nobody would see, where a server runs; its own line comes first."""
    from temporalio.service import RPCError

    from perdure.adapters.system.home import Home
    from perdure.client.listing import Stuck, stuck
    from perdure.local.connect import connect

    async def look() -> list[Stuck]:
        client = await connect(Home.find(), start=False, say=lambda line: None)
        return [one async for one in stuck(client)]

    try:
        return [Checkup("deliveries", NOTE, f"{one.id} {one.why}", one.fix) for one in carry_out(look())]
    except RPCError as error:
        return [Checkup("deliveries", NOTE, f"the server does not say how they stand: {error.message[:100]}")]
    except PerdureError:
        return []


def check_variables() -> list[Checkup]:
    from perdure.adapters.repository.host import unknown_variables

    return [
        Checkup("settings", NOTE, f"{name} means nothing", "correct it, or unset it")
        for name in unknown_variables(os.environ)
    ]


def check_browser() -> list[Checkup]:
    """Look for the browser where the repository's settings here ask for screenshots."""
    from perdure.adapters.browser.browser import NoBrowser, find_browser
    from perdure.adapters.repository.config import load_repository_config
    from perdure.adapters.system.bounded import read_text

    here = (directory / "perdure.toml" for directory in (Path.cwd(), *Path.cwd().parents))
    file = next((path for path in here if path.is_file()), None)
    try:
        asked = file is not None and bool(load_repository_config(read_text(file, CONFIG_BYTES), str(file)).app.start)
    except (PerdureError, OSError, ValueError):
        asked = False  # what is wrong with the file, the look at the repository says
    if not asked:
        return []
    try:
        return [Checkup("browser", OK, f"{tilde(Path(find_browser().chromium))}, for [app]")]
    except NoBrowser as no:
        what, _, fix = str(no).partition(": ")
        return [Checkup("browser", NOTE, f"{what}; without it there are no screenshots", fix)]


def failed(name: str, error: PerdureError, mark: str = MISSING) -> Checkup:
    """Return an error as a finding."""
    text = f"{error.what} ({error.where})" if error.where else error.what
    return Checkup(name, mark, text, error.fix)
