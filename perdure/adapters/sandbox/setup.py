"""Setup's view beyond a normal command's: the network, the owner's index settings, packages it fetches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.sandbox import packages
from perdure.adapters.sandbox.environment import CERTIFICATES, HOME, setup_variables
from perdure.adapters.sandbox.reach import named_by_owner
from perdure.adapters.sandbox.rules import in_system
from perdure.adapters.system.home import Home

NAME_SERVICE = ("/etc/resolv.conf", "/etc/hosts")

OWNER_FILES = (".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml", ".cargo/config.toml")
"""Single files that say where packages come from; ~/.npmrc and credentials.toml hold tokens and stay unseen."""

NPM_SAFE = ("registry", "cafile", "strict-ssl", "proxy", "https-proxy", "noproxy")
"""Settings of ~/.npmrc that are passed on one by one, since the file as a whole may hold tokens."""


def openings(home: Home, name: str, owner: Mapping[str, str], owner_home: Path) -> tuple[list[str], dict[str, str]]:
    """Additional bwrap options and variables for setup. `owner` is the environment of the host's owner."""
    passed = variables(owner, owner_home)
    options = [*packages.for_setup(home, name)]
    for path in NAME_SERVICE:
        options += _file(os.path.realpath(path), path)
    options += _file("/etc/pip.conf", "/etc/pip.conf")
    for own in OWNER_FILES:
        options += _file(str(owner_home / own), f"{HOME}/{own}")
    for name in (*CERTIFICATES, "PIP_CONFIG_FILE", "UV_CONFIG_FILE", "npm_config_userconfig", "npm_config_cafile"):
        path = passed.get(name, "")
        if path and os.path.exists(path) and not _visible(path):
            passed[name] = f"/run/owner/{name}"
            options += ["--ro-bind", os.path.realpath(path), passed[name]]
    return options, passed


def variables(owner: Mapping[str, str], owner_home: Path) -> dict[str, str]:
    """Return the settings of package sources: the owner's environment before the harmless part of ~/.npmrc."""
    return {**_npm_settings(owner_home / ".npmrc"), **setup_variables(owner)}


def sources(owner: Mapping[str, str], owner_home: Path) -> list[object]:
    """All that says where packages come from: to compare by its digest alone, for it may be secret."""
    files = _package_files(owner_home)
    held = [file.read_text(errors="replace") if file.is_file() else "" for file in files]
    return [variables(owner, owner_home), held]


def named_hosts(owner: Mapping[str, str], owner_home: Path) -> frozenset[str]:
    """The hosts that the owner's own settings for packages name: these setup may reach wherever they are."""
    given = variables(owner, owner_home)
    files = [given[name] for name in ("PIP_CONFIG_FILE", "UV_CONFIG_FILE", "npm_config_userconfig") if name in given]
    return named_by_owner(given, [*_package_files(owner_home), *map(Path, files)])


def copy_owner_files(owner_home: Path, private_home: Path) -> None:
    """For the grades that cannot mount: the same files, in the command's own home."""
    for own in OWNER_FILES:
        if (owner_home / own).is_file():
            (private_home / own).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(owner_home / own, private_home / own)


def _package_files(owner_home: Path) -> list[Path]:
    return [Path("/etc/pip.conf"), *(owner_home / own for own in OWNER_FILES)]


def _file(source: str, target: str) -> list[str]:
    return ["--ro-bind", source, target] if os.path.isfile(source) else []


def _visible(path: str) -> bool:
    return in_system(os.path.realpath(path)) or path.startswith("/etc/ssl/certs")


def _npm_settings(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    settings = dict(
        line.partition("=")[::2] for line in lines if "=" in line and not line.lstrip().startswith((";", "#"))
    )
    found = {key.strip(): value.strip() for key, value in settings.items()}
    return {
        f"npm_config_{key.replace('-', '_')}": value
        for key, value in found.items()
        if key in NPM_SAFE and "@" not in value and "${" not in value
    }
