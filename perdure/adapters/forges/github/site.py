"""The servers of GitHub that the environment names, each with our account there: tokens and Apps are read from
variables here, and each server gives the forge and git's credential for a repository on it. Used by `forges.select`
alone."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.forges.base import HostedForge
from perdure.adapters.forges.github.account import Account, AppAccount, TokenAccount
from perdure.adapters.forges.github.server import URL, GitHubServer
from perdure.adapters.git.credentials import Credential
from perdure.models.errors import BadInput
from perdure.models.forges import GITHUB

TOKEN = "PERDURE_GITHUB_TOKEN"  # noqa: S105  # the name of a variable
APP_ID = "PERDURE_GITHUB_APP_ID"
APP_KEY = "PERDURE_GITHUB_APP_KEY"
GITHUB_COM_TOKENS = ("GH_TOKEN", "GITHUB_TOKEN")
ENTERPRISE_TOKENS = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
SECRET_VARIABLES = GITHUB.secret_variables

GIT_USER = "x-access-token"
"""The user name that GitHub wants beside a token of any kind."""


@dataclass(frozen=True)
class GitHubSite:
    """A server with our account there; a forges.base.ForgeSite."""

    server: GitHubServer
    account: Account

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.account.secrets

    def forge(self, url: str) -> HostedForge | None:
        """Return the repository of an origin's URL as a forge; None for a URL that is not on this server."""
        from perdure.adapters.forges.github.forge import GitHub

        repository, by_http = self.server.repository_name(url), self.server.answers_http_url(url)
        return GitHub(self.server, repository, self.account, pushed_with_token=by_http) if repository else None

    def credential(self, url: str) -> Credential | None:
        """Return the account's token as git's credential for an http(s) URL on this server; None for any other URL or
        without a token. Of an App a token may be requested from GitHub.

        Raises ForgeRefused when GitHub refuses it one, ForgeUnavailable when it does not answer.
        """
        repository = self.server.repository_name(url) if self.server.answers_http_url(url) else None
        token = self.account.token(repository) if repository else None
        return Credential(self.server.url, GIT_USER, token) if token else None


def sites_from_environment(environ: MutableMapping[str, str]) -> list[GitHubSite]:
    """Return the servers that these variables name, each with our account there. The one meant by `owner/name` comes
    first; github.com is always among them.

    Removes the secrets from `environ`, and reads an App's private key from its file. A token for github.com is used for
    github.com alone. Raises BadInput for a malformed address or token, an App's id or key without the other, a key that
    cannot be read, a token and an App at once.
    """
    values = {name: environ.pop(name, "").strip() for name in SECRET_VARIABLES}
    values |= {name: environ.get(name, "").strip() for name in (URL, APP_ID)}
    home = GitHubServer.parse(values[URL]) if values[URL] else GitHubServer()
    configured = [GitHubSite(home, _home_account(values, home))]
    return (
        configured
        if home == GitHubServer()
        else [*configured, GitHubSite(GitHubServer(), _token_account(values, GITHUB_COM_TOKENS, GitHubServer()))]
    )


def _home_account(values: dict[str, str], home: GitHubServer) -> Account:
    """Return our account on the first server: the App when one is configured, else the token that is set, else nobody.

    Raises BadInput for an App's id or key without the other, an App and a token at once, a key that cannot be read, and
    a malformed token.
    """
    app_id, app_key = values[APP_ID], values[APP_KEY]
    if bool(app_id) != bool(app_key):
        present, missing = (APP_ID, APP_KEY) if app_id else (APP_KEY, APP_ID)
        fix = f"set {APP_ID} to the App's id and {APP_KEY} to the path of its private key, or neither"
        raise BadInput(f"{present} is set without {missing}", where=f"environment variable {missing}", fix=fix)
    if app_id and values[TOKEN]:
        raise BadInput("a token and an App are set, and only one can act", where=f"{TOKEN}, {APP_ID}", fix="unset one")
    if app_id:
        return AppAccount(home.api_url, app_id, _read_app_key(app_key))
    return _token_account(values, (TOKEN, *(GITHUB_COM_TOKENS if home == GitHubServer() else ENTERPRISE_TOKENS)), home)


def _token_account(values: dict[str, str], variables: tuple[str, ...], server: GitHubServer) -> Account:
    """Return the account of the first of these variables that holds a token; without any, the account of nobody. Raises
    BadInput for a malformed token."""
    for variable in variables:
        token = values[variable]
        if token and (not token.isascii() or not token.isprintable() or " " in token):
            fix = "copy it again: one line, nothing around it"
            raise BadInput("the token has characters in it that no token has", where=variable, fix=fix)
        if token:
            return TokenAccount(server.api_url, token, variable)
    return TokenAccount(server.api_url, None, variables[0])


def _read_app_key(path: str) -> str:
    """Read the App's private key (PEM) from the file at `path`. Raises BadInput when it cannot be read or holds no
    private key."""
    where = f"environment variable {APP_KEY}"
    fix = "set it to the path of the .pem file that GitHub gave you for the App"
    try:
        text = Path(os.path.expanduser(path)).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadInput(f"the App's private key cannot be read: {reason}", where=where, fix=fix) from None
    if "PRIVATE KEY-----" not in text:
        raise BadInput("the App's key file holds no private key", where=where, fix=fix)
    return text
