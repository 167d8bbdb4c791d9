"""The browser of this host for use inside the sandbox (Chromium, Playwright's packages, a Python), and the addresses
that it opens. Used by `capture`; `perdure doctor` asks whether there is a browser."""

from __future__ import annotations

import ipaddress
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from string import Template
from urllib.parse import urljoin, urlsplit

from perdure.adapters.sandbox.host_files import is_in_system
from perdure.models.config.repository import AppSettings

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

PACKAGES = ("playwright", "greenlet")
OPTIONAL_PACKAGES = ("pyee", "typing_extensions")
"""Packages that releases of Playwright import: PACKAGES are always needed, OPTIONAL_PACKAGES by some releases."""


@dataclass(frozen=True)
class Browser:
    """Chromium and what drives it, by absolute paths.

    chromium       the program
    python         the interpreter that drives it
    package_dirs   directories to import Playwright from
    visible_paths  the paths that a sandbox has to show, at their own place, for all of this to work
    """

    chromium: str
    python: str
    package_dirs: tuple[str, ...]
    visible_paths: tuple[Path, ...]


class NoBrowser(Exception):  # callers catch it and show it as a note
    """This host has no browser: the reason, and what to do about it."""


def find_browser(search_path: str | None = None, packages: Sequence[str] = PACKAGES) -> Browser:
    """Find Chromium on a search path (None: this process's PATH) and Playwright among this Python's packages. Blocks.
    `packages`: names of those that must be installed.

    Raises NoBrowser where any of this is missing. Of the environment that Perdure runs in only these packages are shown
    to the sandbox: what else it holds stays hidden.
    """
    package_paths = [package_path for name in packages if (package_path := _package_path(name)) is not None]
    if len(package_paths) < len(packages):
        raise NoBrowser("Playwright is not installed: pip install 'perdure[screenshots]'")
    package_paths += [package_path for name in OPTIONAL_PACKAGES if (package_path := _package_path(name)) is not None]
    chromium = next((executable for name in CHROMIUMS if (executable := shutil.which(name, path=search_path))), None)
    if chromium is None:
        raise NoBrowser("there is no Chromium on PATH: install it, such as by apt install chromium")
    chromium_path = Path(chromium).resolve()
    python = Path(sys.executable).resolve()
    extra_paths = [
        Path(sys.base_prefix).resolve(),
        *([] if is_in_system(str(chromium_path)) else [chromium_path.parent]),
    ]
    return Browser(
        chromium=str(chromium_path),
        python=str(python),
        package_dirs=tuple(dict.fromkeys(str(package_path.parent) for package_path in package_paths)),
        visible_paths=(
            *(package_path for package_path in extra_paths if not is_in_system(str(package_path))),
            *package_paths,
        ),
    )


def _package_path(name: str) -> Path | None:
    """Return a package's directory, or its one file; None where it is not installed. The package is not imported."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin


DEFAULT_READY = "http://127.0.0.1:$FRONTEND_PORT/"
DEFAULT_PAGES = ("/",)


class InvalidAppAddress(Exception):  # callers catch it and show it as a note
    """A setting of `[app]` is no address that may be opened: its name, and the reason."""


def resolve_addresses(settings: AppSettings, env: Mapping[str, str]) -> tuple[str, dict[str, str], dict[str, str]]:
    """Resolve the addresses of `[app]` to URLs.

    Returns three things: where the application answers once it is up; page, as the setting has it, → its URL; page →
    why it has none. `$NAME` stands for a variable of the delivery's commands (`env`). Pages are relative to the origin
    of `ready`. Only HTTP on this host's loopback may be opened. Raises InvalidAppAddress where `ready` is something
    else.
    """
    ready = _resolve_address(settings.ready or DEFAULT_READY, "ready", "", env)
    page_addresses, invalid_pages = {}, {}
    for page in settings.pages or DEFAULT_PAGES:
        try:
            page_addresses[page] = _resolve_address(page, "pages", urljoin(ready, "/"), env)
        except InvalidAppAddress as error:
            invalid_pages[page] = str(error)
    return ready, page_addresses, invalid_pages


def _resolve_address(text: str, key: str, origin: str, env: Mapping[str, str]) -> str:
    """Return the URL of an address, relative to `origin`, with `$NAME` replaced by variables of `env`.

    Raises InvalidAppAddress, which names the setting `key`, for a variable that is not set, and for anything but
    http(s) on the loopback without a user's name.
    """
    try:
        url = urljoin(origin, Template(text.strip()).substitute(env))
        parts = urlsplit(url)
        is_loopback = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
        _ = parts.port
    except KeyError as error:
        raise InvalidAppAddress(f"[app] {key} names ${error.args[0]}, which is not set: {text}") from None
    except ValueError:
        raise InvalidAppAddress(f"[app] {key} is no address on 127.0.0.1: {text}") from None
    if parts.scheme not in ("http", "https") or not is_loopback or parts.username is not None:
        raise InvalidAppAddress(f"[app] {key} is no address on 127.0.0.1: {text}")
    return url
