"""The choice of a repository's forge, and of our account there."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.adapters.forges.base import Forge, ForgeSite
from perdure.adapters.forges.github import access as github
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.credentials import Credential, Keyring

_SITES = (github.sites,)
"""A line a forge: environment → its servers, with our accounts. Its facts are in perdure/models/forges.py."""


class Forges:
    """The forges that this process can speak to; a Keyring for git. Holds tokens, in this process only."""

    def __init__(self, known: Iterable[ForgeSite] = ()) -> None:
        """`known`: the servers we speak to, the one meant by `owner/name` first; without any, the public, as nobody."""
        self._known = list(known) or _sites({})

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Forges:
        """Takes tokens out of `environ`: what is started afterwards must not inherit them. BadInput for a bad one."""
        return cls(_sites(environ))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values to keep out of everything that is stored or shown; an App's grow with its tokens."""
        return tuple(secret for site in self._known for secret in site.secrets)

    def forge(self, url: str) -> Forge | None:
        """The forge of an origin; None when it has none that Perdure speaks to yet: the branch is pushed all the
        same. Without a token what is public there can be read, and everything else is refused."""
        if url.startswith("file://") or Path(url).is_absolute():
            return LocalForge(url)
        return next((forge for site in self._known if (forge := site.forge(url))), None)

    def credential(self, url: str) -> Credential | None:
        """For an http(s) URL of a repository on a server we have an account for, and for nobody else. ForgeRefused,
        ForgeUnavailable when a token has to be asked for and cannot be had."""
        return next((found for site in self._known if (found := site.credential(url))), None)

    def home_server(self) -> str:
        """The server on which `owner/name` lives."""
        return self._known[0].url


def _sites(environ: MutableMapping[str, str]) -> list[ForgeSite]:
    return [site for sites in _SITES for site in sites(environ)]


if TYPE_CHECKING:
    _fits: Keyring = Forges()
