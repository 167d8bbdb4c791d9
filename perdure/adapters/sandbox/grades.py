"""The sandbox of the grade that the caller names, never a weaker one in silence; the check that it works on this host,
and if not, exactly why and which commands to paste; and the two grades without bubblewrap, `reduced` and `off`. The
worker takes its sandboxes from here; `perdure doctor` and `init` run the check."""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.adapters.sandbox import bubblewrap, confine, environment, setup
from perdure.adapters.sandbox.base import GitView, Sandbox, SandboxCommand, SandboxResult
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.environment import HOME, Binds
from perdure.adapters.sandbox.host_files import ALLOWED, SYSTEM, remove_outdated
from perdure.adapters.sandbox.program import LAYERING, MINIMUM, PACKAGE, BubblewrapProgram, find_layering_bubblewrap
from perdure.adapters.sandbox.program import find_bubblewrap as find
from perdure.adapters.sandbox.setup import link_setup_directories
from perdure.adapters.sandbox.shims import put_starters_first
from perdure.adapters.sandbox.status import StatusFile
from perdure.adapters.sandbox.supervision import SupervisorLaunch, supervise_command
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.adapters.system.directories import discard
from perdure.adapters.system.home import Home
from perdure.models.config.repository import SandboxGrade
from perdure.models.errors import SandboxUnavailable
from perdure.models.limits import (
    OUTPUT_FILE_BYTES,
    SANDBOX_FILE_BYTES,
    SANDBOX_NICE,
    SANDBOX_OOM_SCORE,
    SANDBOX_PROBE_S,
)

APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
CLONE = "kernel/unprivileged_userns_clone"
MAXIMUM = "user/max_user_namespaces"

OR_WEAKER = "or accept less: PERDURE_SANDBOX=reduced (Landlock, weaker) or PERDURE_SANDBOX=off (nothing)"

INSTALL = (
    "sudo apt-get install -y bubblewrap   (Fedora: sudo dnf install -y bubblewrap; Arch: sudo pacman -S bubblewrap; "
    "Alpine: sudo apk add bubblewrap)"
)

APPARMOR_FIX = """paste this, then try again:
    sudo tee /etc/apparmor.d/bwrap >/dev/null <<'END'
    abi <abi/4.0>,
    include <tunables/global>
    profile bwrap PATH flags=(unconfined) {
      userns,
      include if exists <local/bwrap>
    }
    END
    sudo apparmor_parser -r /etc/apparmor.d/bwrap"""

CONTAINER_FIX = (
    "start the container with the profile in deploy/: docker run --security-opt seccomp=deploy/seccomp.json "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined …"
)


_LAYER = f"{HOME}/layer"


@dataclass(frozen=True)
class ProbeFacts:
    """The findings of a probe: the facts that `diagnose_failure` decides on.

    platform   sys.platform
    program    the bubblewrap that would be used
    exit_code  of `true` in all namespaces; None: not tried, or no answer in time
    stderr     of the same
    sysctls    values of the three settings that matter, by their path below /proc/sys; absent ones left out
    container  whether this is a container
    machine    such as x86_64
    """

    platform: str = "linux"
    program: BubblewrapProgram = field(default_factory=BubblewrapProgram)
    exit_code: int | None = None
    stderr: str = ""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    container: bool = False
    machine: str = "x86_64"


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe. `error` None: bubblewrap works here. `program`: such as "bubblewrap 0.11.0 (bundled)"."""

    program: str
    error: SandboxUnavailable | None


def probe() -> ProbeResult:
    """Run `true` under bubblewrap in all namespaces, the cheapest real check (about 10 ms), and return the program with
    the error if it failed. Blocks."""
    facts = gather_facts()
    error = diagnose_failure(facts)
    return ProbeResult(facts.program.label(), error)


def probe_landlock() -> SandboxUnavailable | None:
    """Return the error that says why this host cannot give grade `reduced`; None when it can."""
    cause = confine.confinement_unsupported_reason() if sys.platform == "linux" else "Landlock is a part of Linux"
    if not cause:
        return None
    return SandboxUnavailable(f"the reduced sandbox cannot start: {cause}", where="grade reduced", fix=OR_WEAKER)


def probe_layers(home: Path) -> tuple[BubblewrapProgram, str]:
    """Return the bubblewrap that can put layers over package caches in the PERDURE_HOME `home`, with ''; or an empty
    program, with the reason.

    Not every file system takes a layer, so a layer is made there on trial. Blocks for some 10 ms; a success is
    remembered for this process.
    """
    if (remembered := _layering_programs.get(home)) is not None:
        return remembered, ""
    program = find_layering_bubblewrap() if sys.platform == "linux" else BubblewrapProgram()
    if not program.path:
        return BubblewrapProgram(), f"needs bubblewrap {'.'.join(map(str, LAYERING))}"
    existing = next(path for path in (home, *home.absolute().parents) if path.is_dir())
    layer = ["--overlay-src", str(existing), "--tmp-overlay", _LAYER]
    options = [*bubblewrap.isolation_options(), *bubblewrap.system_mounts(), *bubblewrap.tmpfs_mounts(), *layer]
    code, output = _run_program([program.path, *options, "--", "/bin/bash", "-c", f"> {_LAYER}/new"])
    if code != 0:
        return BubblewrapProgram(), f"{program.label()}: {output.strip() or f'exit code {code}'}"
    _layering_programs[home] = program
    return program, ""


_layering_programs: dict[Path, BubblewrapProgram] = {}


def gather_facts() -> ProbeFacts:
    """Run `true` under bubblewrap, where there is one, and return all facts that explain the outcome. Blocks."""
    program = find() if sys.platform == "linux" else BubblewrapProgram()
    sysctls = {name: text for name in (APPARMOR, CLONE, MAXIMUM) if (text := _read_setting(Path("/proc/sys") / name))}
    container = any(os.path.exists(mark) for mark in ("/.dockerenv", "/run/.containerenv"))
    if not program.path:
        return ProbeFacts(sys.platform, program, sysctls=sysctls, container=container, machine=platform.machine())
    mounts = [*bubblewrap.system_mounts(), *bubblewrap.tmpfs_mounts(), "--remount-ro", "/"]
    code, stderr = _run_program(
        [program.path, *bubblewrap.isolation_options(), *mounts, "--", "/bin/bash", "-c", "true"]
    )
    return ProbeFacts(sys.platform, program, code, stderr, sysctls, container, platform.machine())


def diagnose_failure(facts: ProbeFacts) -> SandboxUnavailable | None:
    """Return the error that explains why bubblewrap does not work, with the commands to paste; None when it works.
    Decides by the facts alone."""
    if facts.platform == "darwin":
        return _unavailable(
            "macOS has no namespaces", "", "run Perdure in a Linux VM: limactl start && limactl shell default"
        )
    if facts.platform != "linux":
        return _unavailable(
            f"{facts.platform} has no namespaces", "", "on Windows run Perdure inside WSL2: wsl --install"
        )
    if cause := confine.seccomp_unsupported_reason(facts.machine):
        return _unavailable(cause, "bubblewrap without a filter would show all of the kernel", "use x86-64 or arm64")
    program = facts.program
    if not program.path:
        where = program.damaged or f"bwrap is not on the PATH, and {PACKAGE} is not installed"
        return _unavailable("bubblewrap is not installed", where, INSTALL)
    version = program.version_numbers()
    if version and version < MINIMUM:
        return _unavailable(
            f"bubblewrap {'.'.join(map(str, version))} is too old, 0.8 is needed", program.path, INSTALL
        )
    if facts.exit_code == 0:
        return None
    return _unavailable(*_explain_exit(facts))


def _explain_exit(facts: ProbeFacts) -> tuple[str, str, str]:
    """Return cause, place and fix of a bubblewrap that was found but failed, from its message and the kernel's
    settings: user namespaces switched off or for root alone, AppArmor, a container's /proc or seccomp profile, no
    answer in time; else a general cause with its last line."""
    last_line = facts.stderr.strip().splitlines()[-1] if facts.stderr.strip() else f"exit code {facts.exit_code}"
    is_denied = re.search(
        r"No permissions? to create|Creating new namespace failed|uid map|loopback|Operation not perm", last_line
    )
    if facts.sysctls.get(MAXIMUM) == "0":
        fix = "echo user.max_user_namespaces=15000 | sudo tee /etc/sysctl.d/60-perdure.conf && sudo sysctl --system"
        return "user namespaces are switched off", "user.max_user_namespaces = 0", fix
    if facts.sysctls.get(CLONE) == "0" and is_denied:
        fix = "echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/60-perdure.conf && sudo sysctl --system"
        return "user namespaces are only for root here", "kernel.unprivileged_userns_clone = 0", fix
    if facts.sysctls.get(APPARMOR) == "1" and is_denied and not facts.container:
        cause = "AppArmor keeps bubblewrap from making user namespaces (Ubuntu 23.10 and newer)"
        return (
            cause,
            f"kernel.apparmor_restrict_unprivileged_userns = 1; {last_line}",
            APPARMOR_FIX.replace("PATH", facts.program.path),
        )
    if "proc" in last_line and "mount" in last_line.lower():
        return "the container hides parts of /proc, so no new one can be mounted", last_line, CONTAINER_FIX
    if is_denied and facts.container:
        return (
            "the container's seccomp profile forbids new namespaces (Docker's default does)",
            last_line,
            CONTAINER_FIX,
        )
    if facts.exit_code is None:
        return (
            f"bubblewrap gave no answer in {SANDBOX_PROBE_S:.0f} s",
            facts.program.path,
            "try: bwrap --ro-bind / / true",
        )
    return "bubblewrap cannot start", last_line, "try by hand: bwrap --unshare-all --ro-bind / / true"


def _unavailable(cause: str, where: str, fix: str) -> SandboxUnavailable:
    """Return a SandboxUnavailable with a cause, its place, and a fix to which the weaker grades are added."""
    return SandboxUnavailable(
        f"the sandbox cannot start: {cause}", where=where or "grade full", fix=f"{fix}\n  {OR_WEAKER}"
    )


def _run_program(argv: list[str]) -> tuple[int | None, str]:
    """Run a program with an empty environment and return its exit code and all its output; (None, '') after
    SANDBOX_PROBE_S, 126 and the reason when it cannot be started."""
    try:
        finished = subprocess.run(
            argv, env={}, capture_output=True, timeout=SANDBOX_PROBE_S, check=False, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return None, ""
    except OSError as error:
        return 126, f"{argv[0]}: {error.strerror}"
    return finished.returncode, finished.stdout + finished.stderr


def _read_setting(path: Path) -> str:
    """Read a kernel setting; '' when it does not exist or cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "tty", "ptmx", "pts", "shm"))
READABLE = (
    *SYSTEM,
    *(f"/etc/{name}" for name in (*ALLOWED, "passwd", "group", "hosts", "java-17-openjdk")),
    *("/proc", "/dev/random", "/dev/urandom"),
)
FOR_SETUP = ("/etc/resolv.conf", "/run/systemd/resolve", "/etc/pip.conf", "/etc/ssl")

LAUNCHER = str(Path(__file__).with_name("launcher.py"))

WARNING = (
    "NO SANDBOX: commands of the agent and of the repository run with your rights, your files and your network "
    "(PERDURE_SANDBOX=off)"
)

log = logging.getLogger(__name__)


class _LauncherSandbox:
    """A sandbox without mounts, whose commands are started by our launcher."""

    grade: SandboxGrade

    def __init__(
        self, home: Home, binds: Binds, *, output_limit: int = OUTPUT_FILE_BYTES, caps: ResourceCaps | None = None
    ) -> None:
        """Keep the arguments. `binds`: what of the host commands may read, computed once after setup."""
        self._home = home
        self._binds = binds
        self._output_limit, self._caps = output_limit, caps

    async def run_command(self, command: SandboxCommand) -> SandboxResult:
        """Run a command under the launcher and return its result; everything it started is dead then. Raises Superseded
        when somebody else owns the workspace, and what `command.fence` raises, before anything starts; RuntimeError
        outside of the main thread.

        The command gets a private home and temporary directory, removed at the end, with those that are older than a
        week. A `source` is run where it is: nothing is mounted here, and what setup made is linked.
        """
        parent = self._home.root / "sandbox" / "tmp"
        parent.mkdir(parents=True, exist_ok=True)
        private_home = Path(tempfile.mkdtemp(dir=parent))
        remove_outdated(parent, private_home)
        try:
            with await StatusFile.open_locked(command.lock) as status:
                if command.fence is not None:
                    command.fence()
                spec = json.dumps(self._launcher_spec(command, private_home)).encode() + b"\n"
                launch = SupervisorLaunch([sys.executable, "-I", "-S", LAUNCHER, "{status}"], {}, lifeline=spec)
                return await supervise_command(launch, command, status, self._output_limit, self._caps)
        finally:
            discard(private_home)

    def _launcher_spec(self, command: SandboxCommand, private_home: Path) -> dict[str, Any]:
        """Return the launcher's instructions for a command as JSON values: script, directory, variables, limits, and
        the paths that may be read and written.

        Links to what setup made are put into a clean checkout. The package caches are made. For setup the owner's
        package settings are copied into the private home.
        """
        binds, directory = self._binds, str(command.source or command.worktree)
        # A link that an agent has put in a name's place would open to the command what it leads to: see confine.
        tree = os.path.realpath(command.worktree)
        shared = [os.path.join(tree, name) for name in command.shared]
        cache_paths = [
            os.path.join(tree, package_cache.relative_to(command.worktree))
            for package_cache in link_setup_directories(command)
        ]
        variables = environment.command_variables(
            command, binds, home=str(private_home), tmp=str(private_home), runtime_dir=str(private_home)
        )
        readable = (*binds.prefixes, directory, *shared)
        git_dir, writable_git = command.git_dir, list[str]()
        if isinstance(git_dir, GitView):
            # Nothing can be mounted here: `.git` leads into the vault itself, with what other deliveries keep there;
            # but in setup, which has network, to a copy.
            writable_git = [str(git_dir.view_path)] if git_dir.writable else []
            git_dir = git_dir.history if git_dir.writable else git_dir.vault_path
        readable = (*readable, *([str(git_dir)] if git_dir else []), *map(str, command.visible_paths))
        writable = (str(private_home), *writable_git, *([directory] if command.writable else []))
        writable = (*writable, *([str(command.results)] if command.results else []), *cache_paths)
        if command.network:
            variables |= setup.package_source_variables(os.environ, Path.home())
            setup.copy_owner_files(Path.home(), private_home)
        if (package_cache := setup.ensure_package_cache(self._home, binds.cache)) is not None:
            variables |= {"CARGO_HOME": str(package_cache / ".cargo"), "GOMODCACHE": str(package_cache / "go/pkg/mod")}
            readable = (*readable, str(package_cache))
            if command.network:
                variables |= {
                    "XDG_CACHE_HOME": str(package_cache / ".cache"),
                    "npm_config_cache": str(package_cache / ".npm"),
                }
                writable = (*writable, str(package_cache))
        variables |= command.env
        return {
            "script": command.script,
            "cwd": os.path.join(directory, command.directory),
            "env": variables,
            "nice": SANDBOX_NICE,
            "oom_score": SANDBOX_OOM_SCORE,
            "file_bytes": SANDBOX_FILE_BYTES,
            "confined": self.grade is not SandboxGrade.OFF,
            "network": command.network,
            "trace": command.trace,
            "tree": tree,
            "readable": readable,
            "writable": writable,
        }


class OffSandbox(_LauncherSandbox):
    """A sandbox of grade `off`: runs commands in a process group of their own with a scrubbed environment; keeps no
    promise about files."""

    grade = SandboxGrade.OFF


class LandlockSandbox(_LauncherSandbox):
    """A sandbox of grade `reduced`: runs commands under Landlock; of the host they may read `binds` and what is named
    here."""

    grade = SandboxGrade.REDUCED

    def _launcher_spec(self, command: SandboxCommand, private_home: Path) -> dict[str, Any]:
        """Return the launcher's instructions, with the system's own directories and devices added to the paths that may
        be read and written."""
        spec = super()._launcher_spec(command, private_home)
        spec["writable"] = (*DEVICES, *spec["writable"])
        return spec | {"readable": (*READABLE, *(FOR_SETUP if command.network else ()), *spec["readable"])}


_proved: set[SandboxGrade] = set()


def sandbox_for(grade: SandboxGrade, home: Home, binds: Binds, caps: ResourceCaps | None = None) -> Sandbox:
    """Return a sandbox of exactly this grade. Raises SandboxUnavailable when this host cannot give it. Logs a warning
    for grade `off`.

    The first call of a process runs the real check (about 10 ms); a success is remembered, a failure is not, so that
    the fix takes effect without a restart. Blocks: call it in a thread.
    """
    binds = put_starters_first(home, binds)
    if grade is SandboxGrade.OFF:
        log.warning(WARNING)
        return OffSandbox(home, binds, caps=caps)
    if grade not in _proved:
        error = probe().error if grade is SandboxGrade.FULL else probe_landlock()
        if error is not None:
            raise error
        _proved.add(grade)
    if grade is SandboxGrade.FULL:
        return BubblewrapSandbox(home, binds, layering=probe_layers(home.root)[0].path, caps=caps)
    return LandlockSandbox(home, binds, caps=caps)
