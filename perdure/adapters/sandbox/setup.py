"""The extra mounts and variables of a setup command (name service, the owner's package settings), and what later
commands see of its work: package caches, and directories in the checkouts that tests run in. The commands are run
elsewhere. Used by the sandboxes here and by the worker's setup and cache of environments.

Maven, Gradle, Deno and others write locks and notes beside the packages that they only read. What a command writes
there lies in a layer in memory and is gone with it; where the host allows no layer, packages are read-only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.environment import CERTIFICATES, HOME, setup_variables
from perdure.adapters.sandbox.host_files import is_in_system
from perdure.adapters.sandbox.reach import addresses_in_settings
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results

DEPENDENCY_PLACES = (
    *(
        ".cache",
        ".cargo/registry",
        ".cargo/git",
        "go/pkg/mod",
        ".m2/repository",
        ".m2/wrapper",
        ".gradle/caches",
        ".gradle/wrapper",
    ),
    *(".nuget/packages", ".yarn/berry", ".pub-cache", ".ivy2/cache"),
)
"""Places below the home where tools leave dependencies: not in the worktree, yet needed by every later command.

None lies in another: setup may put a link into what is mounted for it, and never in place of it, so that no mount of a
later sandbox leads to where the link does. Nor is one a place of credentials, like all of ~/.m2 or ~/.gradle.
"""

CACHE_PLACES = (*DEPENDENCY_PLACES, ".npm")
"""All places that are kept; the last one for setup alone, because what it installs from there lies in the worktree."""

_FOR_SETUP_ONLY = {".cache": frozenset({"pip", "uv"})}
"""Entries that only setup needs, by their place: what it installs from there lies in the worktree."""


@dataclass(frozen=True)
class PackageMounts:
    """Package caches as one command sees them.

    options  bwrap's options that mount them
    layers   paths inside that have a layer: files written there are memory
    """

    options: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


def ensure_package_cache(home: Home, name: str) -> Path | None:
    """Return the directory of the package caches of that name; make it if need be, and mark it as used now. None
    without a name.

    Whoever writes there decides what all others install who read it: a name is never shared by two repositories.
    """
    return kept_results(home, "packages").make_in_place(name) if name else None


def setup_mounts(home: Home, name: str) -> Iterator[str]:
    """Yield bwrap's options that mount the package caches writable, for setup, which fills them. Their directories are
    made; nothing without a name."""
    if (root := ensure_package_cache(home, name)) is not None:
        for place in CACHE_PLACES:
            (root / place).mkdir(parents=True, exist_ok=True)
            yield from ("--bind", str(root / place), f"{HOME}/{place}")


def command_mounts(home: Home, name: str, *, layered: bool) -> PackageMounts:
    """Return how every command but setup sees the package caches: below a layer in memory where `layered`, else
    read-only. Places that hold no package are left out."""
    root = home.caches / name
    places = [place for place in DEPENDENCY_PLACES if name and _has_packages(root / place, place)]
    mounts = [(str(root / place), f"{HOME}/{place}") for place in places]
    if not layered:
        return PackageMounts(tuple(word for source, target in mounts for word in ("--ro-bind", source, target)))
    options = (word for source, target in mounts for word in ("--overlay-src", source, "--tmp-overlay", target))
    return PackageMounts(tuple(options), tuple(target for _, target in mounts))


def _has_packages(directory: Path, place: str) -> bool:
    """Return whether a cache directory holds anything that commands need; False when it does not exist."""
    try:
        with os.scandir(directory) as entries:  # setup may have left millions
            return any(entry.name not in _FOR_SETUP_ONLY.get(place, ()) for entry in entries)
    except OSError:
        return False


NAME_SERVICE = ("/etc/resolv.conf", "/etc/hosts")

OWNER_FILES = (".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml", ".cargo/config.toml")
"""Single files that say where packages come from; ~/.npmrc and credentials.toml hold tokens and stay unseen."""

NPM_SAFE = ("registry", "cafile", "strict-ssl", "proxy", "https-proxy", "noproxy")
"""Settings of ~/.npmrc that are passed on one by one, because the file as a whole may hold tokens."""


def setup_options(
    home: Home, name: str, owner: Mapping[str, str], owner_home: Path
) -> tuple[list[str], dict[str, str]]:
    """Return what setup gets beyond other commands: bwrap's options and variables. The package caches `name` are made
    and mounted writable, with the host's name service and the owner's files that say where packages come from.

    owner  environment of the host's owner. A file that a variable names and that is not visible inside is mounted, and
           the variable gets its new path
    """
    settings = package_source_variables(owner, owner_home)
    options = [*setup_mounts(home, name)]
    for path in NAME_SERVICE:
        options += _mount_if_file(os.path.realpath(path), path)
    options += _mount_if_file("/etc/pip.conf", "/etc/pip.conf")
    for owner_file in OWNER_FILES:
        options += _mount_if_file(str(owner_home / owner_file), f"{HOME}/{owner_file}")
    for name in (*CERTIFICATES, "PIP_CONFIG_FILE", "UV_CONFIG_FILE", "npm_config_userconfig", "npm_config_cafile"):
        path = settings.get(name, "")
        if path and os.path.exists(path) and not _is_visible(path):
            settings[name] = f"/run/owner/{name}"
            options += ["--ro-bind", os.path.realpath(path), settings[name]]
    return options, settings


def package_source_variables(owner: Mapping[str, str], owner_home: Path) -> dict[str, str]:
    """Return the variables that say where packages come from: the harmless part of ~/.npmrc, and over it the owner's
    environment."""
    return {**_read_npm_settings(owner_home / ".npmrc"), **setup_variables(owner)}


def package_source_settings(owner: Mapping[str, str], owner_home: Path) -> list[object]:
    """Return all that says where packages come from, as [variables, contents of files]: only to be compared by its
    digest, because it may be secret. A file that is missing counts as an empty text."""
    files = _package_setting_files(owner_home)
    texts = [file.read_text(errors="replace") if file.is_file() else "" for file in files]
    return [package_source_variables(owner, owner_home), texts]


def hosts_named_by_owner(owner: Mapping[str, str], owner_home: Path) -> frozenset[str]:
    """Return `name:port` of the hosts that the owner's own settings for packages name: setup may reach these wherever
    they are."""
    settings = package_source_variables(owner, owner_home)
    files = [
        settings[name] for name in ("PIP_CONFIG_FILE", "UV_CONFIG_FILE", "npm_config_userconfig") if name in settings
    ]
    return addresses_in_settings(settings, [*_package_setting_files(owner_home), *map(Path, files)])


def copy_owner_files(owner_home: Path, private_home: Path) -> None:
    """Copy those of the owner's files that exist and say where packages come from into a command's private home, for
    the grades that cannot mount."""
    for owner_file in OWNER_FILES:
        if (owner_home / owner_file).is_file():
            (private_home / owner_file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(owner_home / owner_file, private_home / owner_file)


def _package_setting_files(owner_home: Path) -> list[Path]:
    """Return the paths of files that may say where packages come from."""
    return [Path("/etc/pip.conf"), *(owner_home / owner_file for owner_file in OWNER_FILES)]


def _mount_if_file(source: str, target: str) -> list[str]:
    """Return bwrap's options that show a file read-only at `target`; none when there is no such file."""
    return ["--ro-bind", source, target] if os.path.isfile(source) else []


def _is_visible(path: str) -> bool:
    """Return whether commands see this path of the host anyway."""
    return is_in_system(os.path.realpath(path)) or path.startswith("/etc/ssl/certs")


def _read_npm_settings(path: Path) -> dict[str, str]:
    """Read an .npmrc and return its harmless settings as `npm_config_` variables: those in NPM_SAFE whose value holds
    no login (@) and no variable (${). Empty when it cannot be read."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    settings = dict(
        line.partition("=")[::2] for line in lines if "=" in line and not line.lstrip().startswith((";", "#"))
    )
    stripped = {key.strip(): value.strip() for key, value in settings.items()}
    return {
        f"npm_config_{key.replace('-', '_')}": value
        for key, value in stripped.items()
        if key in NPM_SAFE and "@" not in value and "${" not in value
    }


_TOOL_CACHES = (".cache", ".vite", ".vite-temp", ".vitest")
"""Directories below node_modules, made again by the tools that keep something there; ava, and vitest before 3, fail
where they cannot write to them."""


def ensure_tool_caches(modules: Path) -> Iterator[Path]:
    """Make the cache directories of tools in a `node_modules` where they are missing, and yield them. What is no
    directory, or a link, is left out."""
    for name in _TOOL_CACHES:
        cache = modules / name
        with contextlib.suppress(OSError):
            cache.mkdir(exist_ok=True)
        if not cache.is_symlink() and cache.is_dir():
            yield cache


def link_setup_directories(command: SandboxCommand) -> Iterator[Path]:
    """Put a link to each directory that setup made into the checkout, unless something of that name is there, and yield
    what commands may write to in them: caches below `node_modules`, made where they are missing. Nothing is done
    without a checkout.

    Tools look for what they load beside the checkout's own files; without it no suite with a dependency would start.
    """
    for name in command.shared if command.source else ():
        made = path_without_links(command.worktree, name)
        if made is None or command.source is None:
            continue
        if not os.path.lexists(command.source / name):
            make_mount_point(command.source, str(Path(name).parent), directory=True)
            (command.source / name).symlink_to(made)
        yield from ensure_tool_caches(made) if made.name == "node_modules" else ()


def path_without_links(root: Path, name: str) -> Path | None:
    """Return the path of `name` below `root`; None when it is absent, leads above `root`, or any part of it is a link:
    an agent's link would mount the host's files."""
    path = root
    for part in Path(name).parts:
        path = path / part
        if part == ".." or path.is_symlink() or not path.exists():
            return None
    return path if path != root and not Path(name).is_absolute() else None


def make_mount_point(source: Path, name: str, directory: bool) -> None:
    """Make an empty directory or file in a checkout for bwrap to mount at, because bwrap cannot make it in a read-only
    tree. Links that the checkout has in its place are removed: bwrap must not follow them."""
    point = source
    for part in Path(name).parts:
        point = point / part
        if point.is_symlink():
            point.unlink()
    if directory:
        point.mkdir(parents=True, exist_ok=True)
    elif not point.exists():
        point.parent.mkdir(parents=True, exist_ok=True)
        point.touch()
