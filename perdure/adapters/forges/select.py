"""The choice of a repository's forge, and of our account there, by the address of its origin. Git gets its credentials
from the same object, which the worker and the command line make from their environment."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.adapters.forges.base import Forge, ForgeSite
from perdure.adapters.forges.github.site import sites_from_environment
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.credentials import Credential, Keyring

_SITE_READERS = (sites_from_environment,)
"""A function for each kind of forge: environment → its servers, with our accounts. Its facts are in
perdure/models/forges.py."""


class Forges:
    """The forges that this process can speak to; a Keyring for git. Has tokens in memory, in this process only."""

    def __init__(self, sites: Iterable[ForgeSite] = ()) -> None:
        """Set the servers we speak to, the one meant by `owner/name` first; without any, the public ones, as nobody."""
        self._sites = list(sites) or _sites_from_environment({})

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Forges:
        """Read the servers and accounts from these variables and remove the tokens from `environ`: processes started
        later must not inherit them. Raises BadInput for a malformed one."""
        return cls(_sites_from_environment(environ))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values to keep out of everything that is stored or shown; an App's grow with its tokens."""
        return tuple(secret for site in self._sites for secret in site.secrets)

    def forge(self, url: str) -> Forge | None:
        """Return the forge of an origin's URL; None when Perdure does not speak to it yet: the branch is pushed all the
        same.

        Without a token what is public at the forge can be read, and everything else is refused.
        """
        if url.startswith("file://") or Path(url).is_absolute():
            return LocalForge(url)
        return next((forge for site in self._sites if (forge := site.forge(url))), None)

    def credential(self, url: str) -> Credential | None:
        """Return what git shows for an http(s) URL of a repository on a server that we have an account for; None for
        any other. Raises ForgeRefused, ForgeUnavailable when a token has to be requested and cannot be had."""
        return next((credential for site in self._sites if (credential := site.credential(url))), None)

    def home_server(self) -> str:
        """Return the address of the server on which `owner/name` lives."""
        return self._sites[0].url


def _sites_from_environment(environ: MutableMapping[str, str]) -> list[ForgeSite]:
    """Return the servers of all kinds of forges that these variables name, with our accounts; removes the secrets from
    `environ`."""
    return [site for sites in _SITE_READERS for site in sites(environ)]


if TYPE_CHECKING:
    _implements_keyring: Keyring = Forges()
