"""The check that bubblewrap works on this host, and if not, exactly why and what to paste."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perdure.adapters.sandbox import bubblewrap, confine, seccomp
from perdure.adapters.sandbox.environment import HOME
from perdure.adapters.sandbox.program import LAYERING, MINIMUM, PACKAGE, Program, layering
from perdure.adapters.sandbox.program import bubblewrap as find
from perdure.models.errors import SandboxUnavailable
from perdure.models.limits import SANDBOX_PROBE_S

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
    """The findings of a probe: the facts that `classify` decides on.

    platform   sys.platform
    program    the bubblewrap that would be used
    exit_code  of `true` in all namespaces; None: not tried, or no answer in time
    stderr     of the same
    sysctls    values of the three settings that matter, by their path below /proc/sys; absent ones left out
    container  whether this is a container
    machine    such as x86_64
    """

    platform: str = "linux"
    program: Program = field(default_factory=Program)
    exit_code: int | None = None
    stderr: str = ""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    container: bool = False
    machine: str = "x86_64"


@dataclass(frozen=True)
class Probe:
    """`error` None: bubblewrap works here. `program`: such as "bubblewrap 0.11.0 (bundled)"."""

    program: str
    error: SandboxUnavailable | None


def probe() -> Probe:
    """The cheapest real check, about 10 ms. Blocks."""
    seen = look()
    error = classify(seen)
    return Probe(seen.program.named(), error)


def probe_landlock() -> SandboxUnavailable | None:
    """Say why grade `reduced` cannot be had here; None: it can."""
    cause = confine.supported() if sys.platform == "linux" else "Landlock is a part of Linux"
    if not cause:
        return None
    return SandboxUnavailable(f"the reduced sandbox cannot start: {cause}", where="grade reduced", fix=OR_WEAKER)


def probe_layers(home: Path) -> tuple[Program, str]:
    """The bubblewrap that puts layers over package caches in a PERDURE_HOME, or none and why. Not every file system
    takes one, so it is tried there. Blocks for some 10 ms; a success is remembered."""
    if (proved := _layering.get(home)) is not None:
        return proved, ""
    program = layering() if sys.platform == "linux" else Program()
    if not program.path:
        return Program(), f"needs bubblewrap {'.'.join(map(str, LAYERING))}"
    there = next(path for path in (home, *home.absolute().parents) if path.is_dir())
    layer = ["--overlay-src", str(there), "--tmp-overlay", _LAYER]
    options = [*bubblewrap.isolation(), *bubblewrap.system(), *bubblewrap.tmpfs(), *layer]
    code, said = _run([program.path, *options, "--", "/bin/bash", "-c", f"> {_LAYER}/new"])
    if code != 0:
        return Program(), f"{program.named()}: {said.strip() or f'exit code {code}'}"
    _layering[home] = program
    return program, ""


_layering: dict[Path, Program] = {}


def look() -> ProbeFacts:
    """Gather the facts; runs bwrap."""
    program = find() if sys.platform == "linux" else Program()
    sysctls = {name: text for name in (APPARMOR, CLONE, MAXIMUM) if (text := _read(Path("/proc/sys") / name))}
    container = any(os.path.exists(mark) for mark in ("/.dockerenv", "/run/.containerenv"))
    if not program.path:
        return ProbeFacts(sys.platform, program, sysctls=sysctls, container=container, machine=platform.machine())
    mounts = [*bubblewrap.system(), *bubblewrap.tmpfs(), "--remount-ro", "/"]
    code, stderr = _run([program.path, *bubblewrap.isolation(), *mounts, "--", "/bin/bash", "-c", "true"])
    return ProbeFacts(sys.platform, program, code, stderr, sysctls, container, platform.machine())


def classify(seen: ProbeFacts) -> SandboxUnavailable | None:
    """One message with the cause and the commands to paste; None when it works. Pure."""
    if seen.platform == "darwin":
        return _error(
            "macOS has no namespaces", "", "run Perdure in a Linux VM: limactl start && limactl shell default"
        )
    if seen.platform != "linux":
        return _error(f"{seen.platform} has no namespaces", "", "on Windows run Perdure inside WSL2: wsl --install")
    if cause := seccomp.supported(seen.machine):
        return _error(cause, "bubblewrap without a filter would show all of the kernel", "use x86-64 or arm64")
    program = seen.program
    if not program.path:
        where = program.damaged or f"bwrap is not on the PATH, and {PACKAGE} is not installed"
        return _error("bubblewrap is not installed", where, INSTALL)
    version = program.numbers()
    if version and version < MINIMUM:
        return _error(f"bubblewrap {'.'.join(map(str, version))} is too old, 0.8 is needed", program.path, INSTALL)
    if seen.exit_code == 0:
        return None
    return _error(*_cause(seen))


def _cause(seen: ProbeFacts) -> tuple[str, str, str]:
    said = seen.stderr.strip().splitlines()[-1] if seen.stderr.strip() else f"exit code {seen.exit_code}"
    denied = re.search(
        r"No permissions? to create|Creating new namespace failed|uid map|loopback|Operation not perm", said
    )
    if seen.sysctls.get(MAXIMUM) == "0":
        fix = "echo user.max_user_namespaces=15000 | sudo tee /etc/sysctl.d/60-perdure.conf && sudo sysctl --system"
        return "user namespaces are switched off", "user.max_user_namespaces = 0", fix
    if seen.sysctls.get(CLONE) == "0" and denied:
        fix = "echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/60-perdure.conf && sudo sysctl --system"
        return "user namespaces are only for root here", "kernel.unprivileged_userns_clone = 0", fix
    if seen.sysctls.get(APPARMOR) == "1" and denied and not seen.container:
        cause = "AppArmor keeps bubblewrap from making user namespaces (Ubuntu 23.10 and newer)"
        return (
            cause,
            f"kernel.apparmor_restrict_unprivileged_userns = 1; {said}",
            APPARMOR_FIX.replace("PATH", seen.program.path),
        )
    if "proc" in said and "mount" in said.lower():
        return "the container hides parts of /proc, so no new one can be mounted", said, CONTAINER_FIX
    if denied and seen.container:
        return "the container's seccomp profile forbids new namespaces (Docker's default does)", said, CONTAINER_FIX
    if seen.exit_code is None:
        return (
            f"bubblewrap gave no answer in {SANDBOX_PROBE_S:.0f} s",
            seen.program.path,
            "try: bwrap --ro-bind / / true",
        )
    return "bubblewrap cannot start", said, "try by hand: bwrap --unshare-all --ro-bind / / true"


def _error(cause: str, where: str, fix: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"the sandbox cannot start: {cause}", where=where or "grade full", fix=f"{fix}\n  {OR_WEAKER}"
    )


def _run(argv: list[str]) -> tuple[int | None, str]:
    try:
        done = subprocess.run(
            argv, env={}, capture_output=True, timeout=SANDBOX_PROBE_S, check=False, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return None, ""
    except OSError as error:
        return 126, f"{argv[0]}: {error.strerror}"
    return done.returncode, done.stdout + done.stderr


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
