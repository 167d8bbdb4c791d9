"""The browser of this host for use inside the sandbox: Chromium, Playwright's packages, a Python; addresses."""

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

from perdure.adapters.sandbox.rules import in_system
from perdure.models.config import AppSettings

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

PACKAGES = ("playwright", "greenlet")
ALSO = ("pyee", "typing_extensions")
"""Packages that releases of Playwright import: the first always, the others by some."""


@dataclass(frozen=True)
class Browser:
    """Absolute paths. `packages`: directories to import from; `shown`: what a sandbox has to show, at its own path."""

    chromium: str
    python: str
    packages: tuple[str, ...]
    shown: tuple[Path, ...]


class NoBrowser(Exception):  # told as a note, never raised to anybody
    """This host has none: the reason, and what to do about it."""


def find_browser(path: str | None = None, packages: Sequence[str] = PACKAGES) -> Browser:
    """Look on the owner's `path` (None: this process's) and among this Python's packages. Raises NoBrowser. Blocks.

    Of the environment Perdure runs in only the packages named here are shown: what else it holds stays unseen.
    """
    found = [place for name in packages if (place := _package(name)) is not None]
    if len(found) < len(packages):
        raise NoBrowser("Playwright is not installed: pip install 'perdure[screenshots]'")
    found += [place for name in ALSO if (place := _package(name)) is not None]
    chromium = next((at for name in CHROMIUMS if (at := shutil.which(name, path=path))), None)
    if chromium is None:
        raise NoBrowser("there is no Chromium on PATH: install it, such as by apt install chromium")
    program = Path(chromium).resolve()
    python = Path(sys.executable).resolve()
    own = [Path(sys.base_prefix).resolve(), *([] if in_system(str(program)) else [program.parent])]
    return Browser(
        chromium=str(program),
        python=str(python),
        packages=tuple(dict.fromkeys(str(place.parent) for place in found)),
        shown=(*(place for place in own if not in_system(str(place))), *found),
    )


def _package(name: str) -> Path | None:
    """Its directory, or its one file."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin


READY = "http://127.0.0.1:$FRONTEND_PORT/"
PAGES = ("/",)


class NotAnAddress(Exception):  # told as a note, never raised to anybody
    """A setting cannot be opened: its name, and the reason."""


def addresses(settings: AppSettings, env: Mapping[str, str]) -> tuple[str, dict[str, str], dict[str, str]]:
    """(where the application answers once it is up, page as it is written → its address, page → why it has none).

    `$NAME` stands for a variable of the delivery's commands. Pages are relative to the origin of `ready`. Only HTTP on
    this host's loopback is opened. Raises NotAnAddress when `ready` is something else.
    """
    ready = _address(settings.ready or READY, "ready", "", env)
    found, refused = {}, {}
    for page in settings.pages or PAGES:
        try:
            found[page] = _address(page, "pages", urljoin(ready, "/"), env)
        except NotAnAddress as no:
            refused[page] = str(no)
    return ready, found, refused


def _address(text: str, key: str, origin: str, env: Mapping[str, str]) -> str:
    try:
        url = urljoin(origin, Template(text.strip()).substitute(env))
        parts = urlsplit(url)
        local = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
        _ = parts.port
    except KeyError as missing:
        raise NotAnAddress(f"[app] {key} names ${missing.args[0]}, which is not set: {text}") from None
    except ValueError:
        raise NotAnAddress(f"[app] {key} is no address on 127.0.0.1: {text}") from None
    if parts.scheme not in ("http", "https") or not local or parts.username is not None:
        raise NotAnAddress(f"[app] {key} is no address on 127.0.0.1: {text}")
    return url
