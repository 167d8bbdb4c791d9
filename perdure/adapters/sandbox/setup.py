"""Setup's view beyond a normal command's: the network, the owner's index settings, packages it fetches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.sandbox import packages
from perdure.adapters.sandbox.environment import CERTIFICATES, HOME, setup_variables
from perdure.adapters.sandbox.reach import addresses_in_settings
from perdure.adapters.sandbox.visibility import is_in_system
from perdure.adapters.system.home import Home

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
    options = [*packages.setup_mounts(home, name)]
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
    """Return all that says where packages come from, variables and contents of files: only to be compared by its
    digest, because it may be secret."""
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
    """Copy the owner's files that say where packages come from into a command's private home, for the grades that
    cannot mount."""
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
