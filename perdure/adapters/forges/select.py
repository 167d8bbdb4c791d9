"""The choice of a repository's forge, and of our account there."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.adapters.forges.base import Forge
from perdure.adapters.forges.github.access import Server, accounts
from perdure.adapters.forges.github.accounts import Account, NoAccount
from perdure.adapters.forges.github.forge import GitHub
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.credentials import Credential

if TYPE_CHECKING:
    from perdure.adapters.git.credentials import Keyring

GIT_USER = "x-access-token"
"""The name that GitHub wants beside a token of any kind."""


class Forges:
    """The forges that this process can speak to; a Keyring for git. Holds tokens, in this process only."""

    def __init__(self, known: Mapping[Server, Account] | None = None) -> None:
        """`known`: the servers we speak to, the one meant by `owner/name` first; without any, github.com as nobody."""
        self._known = dict(known or {Server(): NoAccount("PERDURE_GITHUB_TOKEN")})

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Forges:
        """Takes tokens out of `environ`: what is started afterwards must not inherit them. BadInput for a bad one."""
        return cls(accounts(environ))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values to keep out of everything that is stored or shown; an App's grow with its tokens."""
        return tuple(secret for account in self._known.values() for secret in account.secrets)

    def forge(self, url: str) -> Forge | None:
        """The forge of an origin; None when it has none that Perdure speaks to yet: the branch is pushed all the
        same. Without a token for GitHub what is public there can be read, and everything else is refused."""
        if url.startswith("file://") or Path(url).is_absolute():
            return LocalForge(url)
        for server, account in self._known.items():
            if repository := server.repository(url):
                return GitHub(server, repository, account, pushed_with_token=server.over_http(url))
        return None

    def credential(self, url: str) -> Credential | None:
        """For an http(s) URL of a repository on a server we have an account for, and for nobody else. ForgeRefused,
        ForgeUnavailable when a token has to be asked for and cannot be had."""
        for server, account in self._known.items():
            if server.over_http(url) and (repository := server.repository(url)):
                token = account.token(repository)
                return Credential(server.url, GIT_USER, token) if token else None
        return None

    def home_server(self) -> str:
        """The server on which `owner/name` lives."""
        return next(iter(self._known)).url


if TYPE_CHECKING:
    _fits: Keyring = Forges()
