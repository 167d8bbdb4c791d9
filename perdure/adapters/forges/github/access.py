"""The servers of GitHub and our accounts there (a token, an App, or nobody), as environment variables name them, and
the repositories of each server.

No model output comes near this: server and account are from the environment, owner and name from the origin's URL.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from perdure.adapters.forges.base import HostedForge
from perdure.adapters.forges.github.errors import raise_forge_errors, server_time, status_error
from perdure.adapters.git.credentials import Credential, is_loopback
from perdure.models.errors import BadInput, ForgeRefused
from perdure.models.forges import GITHUB

if TYPE_CHECKING:
    from github import Github
    from github.Requester import Requester


FORGE_TOKEN_MARGIN_S = 300.0
"""The time before its end from which on an App's token is no longer used: it lives for an hour, and could end within a
push."""


NEEDED_PERMISSIONS = (
    "a classic token needs the scope repo (public_repo for public repositories); a fine-grained token or an App needs"
    " Contents, Pull requests and Issues: read and write"
)


class Account(Protocol):
    """Our account at one server. `variable`: the environment variable that a person sets or corrects. Safe to use from
    any thread."""

    variable: str

    def token(self, repository: str) -> str | None:
        """Return the secret to show for `owner/name`, or None. Raises ForgeRefused, ForgeUnavailable when it cannot be
        had."""
        ...

    def login_name(self, repository: str) -> str:
        """Return the name of the account under which GitHub shows what we write. Raises ForgeRefused, ForgeUnavailable
        when it cannot be had."""
        ...

    def permissions(self, repository: str) -> dict[str, str] | None:
        """Return the rights of an App's installation, such as {"pull_requests": "write"}, or None."""
        ...

    def discard_token(self, repository: str) -> bool:
        """Remove a token that GitHub did not accept; return True when another try would show a different one."""
        ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return everything to keep out of what is stored or shown."""
        ...


class TokenAccount:
    """The account of a token: classic, fine-grained, or made by a build server. Without a token it is nobody's: public
    repositories can be read, nothing can be written."""

    def __init__(self, api: str, token: str | None, variable: str) -> None:
        self.variable = variable
        self._api, self._token = api, token
        self._login_name = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the token, if there is one."""
        return (self._token,) if self._token else ()

    def token(self, repository: str) -> str | None:
        """Return the token, or None; it is the same for every repository."""
        return self._token

    def login_name(self, repository: str) -> str:
        """Return the name of the token's owner, asked of GitHub once and then remembered. Raises ForgeRefused (also
        without a token), ForgeUnavailable."""
        if not self._token:
            raise no_token_error(self.variable)
        if not self._login_name:
            with raise_forge_errors(self._api, self.variable), _open_client(self._api, self._token) as github:
                self._login_name = _token_owner(github.requester)
        return self._login_name

    def permissions(self, repository: str) -> dict[str, str] | None:
        """Return None: only the permissions of an App's installation are known."""
        return None

    def discard_token(self, repository: str) -> bool:
        """Return False: there is no other token to try."""
        return False


@dataclass
class _InstallationToken:
    """A token of an App's installation on a repository. `expires_at`: in seconds since 1970 by this host's clock;
    `use_count`: how often it was handed out."""

    token: str
    expires_at: float
    permissions: dict[str, str]
    use_count: int = 0


class AppAccount:
    """A GitHub App: for each repository a token of its installation, used until shortly before it expires."""

    variable = "PERDURE_GITHUB_APP_KEY"

    def __init__(self, api: str, app_id: str, key: str) -> None:
        self._api, self.id, self._key = api, app_id, key
        self._tokens: dict[str, _InstallationToken] = {}
        self._issued_secrets: list[str] = []
        self._login_name = ""
        self._lock = threading.Lock()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the App's private key and every token that it was ever given."""
        return (self._key, *tuple(self._issued_secrets))

    def token(self, repository: str) -> str | None:
        """Return a valid token of the App's installation on a repository, new or kept. Raises ForgeRefused,
        ForgeUnavailable."""
        installation = self._current_token(repository)
        installation.use_count += 1
        return installation.token

    def permissions(self, repository: str) -> dict[str, str] | None:
        """Return the permissions of the App's installation on a repository. Raises ForgeRefused, ForgeUnavailable."""
        return self._current_token(repository).permissions

    def discard_token(self, repository: str) -> bool:
        """Remove the kept token of a repository; return True when it had been handed out before, so that a new one may
        help.

        Such a token may have ended early: the App was installed anew, or suspended for a while.
        """
        with self._lock:
            discarded = self._tokens.pop(repository.lower(), None)
        return discarded is not None and discarded.use_count > 1

    def login_name(self, repository: str) -> str:
        """Return the App's name with `[bot]` behind it, asked of GitHub once and then remembered. Raises ForgeRefused,
        ForgeUnavailable."""
        if not self._login_name:
            with (
                raise_forge_errors(self._api, self.variable),
                _open_client(self._api, app=(self.id, self._key)) as github,
            ):
                _, app = github.requester.requestJsonAndCheck("GET", "/app")
                self._login_name = f"{app['slug']}[bot]"
        return self._login_name

    def _current_token(self, repository: str) -> _InstallationToken:
        """Return the kept token of a repository, or request and keep a new one when there is none or it expires within
        FORGE_TOKEN_MARGIN_S. One thread at a time. Raises ForgeRefused, ForgeUnavailable."""
        name = repository.lower()
        with self._lock:
            current = self._tokens.get(name)
            if current is None or current.expires_at - time.time() < FORGE_TOKEN_MARGIN_S:
                current = self._tokens[name] = self._request_token(repository)
                self._issued_secrets.append(current.token)
            return current

    def _request_token(self, repository: str) -> _InstallationToken:
        """Request a new token of the App's installation on a repository from GitHub. Raises ForgeRefused (also when the
        App is not installed there), ForgeUnavailable."""
        missing = ForgeRefused(
            f"the GitHub App is not installed on {repository}, or there is no such repository",
            where="PERDURE_GITHUB_APP_ID",
            fix=f"install the App on {repository} with Contents, Pull requests and Issues: read and write",
        )
        with raise_forge_errors(self._api, self.variable, missing=missing):
            with _open_client(self._api, app=(self.id, self._key)) as github:
                request_json = github.requester.requestJsonAndCheck
                _, installation = request_json("GET", f"/repos/{repository}/installation")
                headers, answer = request_json(
                    "POST", f"/app/installations/{int(installation['id'])}/access_tokens", input={}
                )
            expires_at = datetime.fromisoformat(answer["expires_at"].replace("Z", "+00:00")).timestamp()
            lifetime_s = expires_at - server_time(headers)
            return _InstallationToken(
                str(answer["token"]), time.time() + lifetime_s, dict(answer.get("permissions") or {})
            )


def _open_client(api: str, token: str | None = None, *, app: tuple[str, str] | None = None) -> Github:
    """Open a client of the API at `api` for a `with`; imports PyGithub only then."""
    from perdure.adapters.forges.github.transport import open_client  # PyGithub: a tenth of a worker's start

    return open_client(api, token, app=app)


def _token_owner(requester: Requester) -> str:
    """Return the login of a token's owner. For a token that a build server made, GitHub tells it over GraphQL only.
    Raises what PyGithub raises."""
    from github import GithubException

    try:
        _, user = requester.requestJsonAndCheck("GET", "/user")
        return str(user["login"])
    except GithubException as error:
        if error.status != 403 or status_error(403, error.data, error.headers or {}, "", "").retryable:
            raise
        _, answer = requester.graphql_query("query { viewer { login } }", {})
        return str(answer["data"]["viewer"]["login"])


def no_token_error(variable: str) -> ForgeRefused:
    """Return the error for an account without a token, which says what to set `variable` to."""
    return ForgeRefused("there is no token for GitHub", where=variable, fix=f"set {variable}: {NEEDED_PERMISSIONS}")


GITHUB_COM, URL = GITHUB.home_url, GITHUB.server_variable
TOKEN = "PERDURE_GITHUB_TOKEN"  # noqa: S105  # the name of a variable
APP_ID = "PERDURE_GITHUB_APP_ID"
APP_KEY = "PERDURE_GITHUB_APP_KEY"
GITHUB_COM_TOKENS = ("GH_TOKEN", "GITHUB_TOKEN")
ENTERPRISE_TOKENS = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
SECRET_VARIABLES = GITHUB.secret_variables

GIT_USER = "x-access-token"
"""The user name that GitHub wants beside a token of any kind."""

_SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?!/)(?P<path>.+)")
_SSH_ALIASES = dict(GITHUB.ssh_hosts)
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True)
class GitHubServer:
    """A server of GitHub. `url`: scheme, host and port, in lower case, without a slash at its end."""

    url: str = GITHUB_COM

    @classmethod
    def parse(cls, text: str) -> GitHubServer:
        """Parse the address of a server, such as https://github.com, from PERDURE_GITHUB_URL. Raises BadInput for what
        is no such address, or would carry a token over plain http."""
        try:
            parts = urlsplit(text.strip())
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _server_url_error("it is no address") from None
        if parts.scheme not in _PORTS or not re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:.]+", host):
            raise _server_url_error("it is no http address")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise _server_url_error("it has more than scheme, host and port")
        if parts.path.strip("/") or host == "api.github.com":
            raise _server_url_error("it names the API or a page, not the server")
        if parts.scheme == "http" and not is_loopback(host):
            raise _server_url_error("a token would travel over plain http", fix="use its https:// address")
        url_host = f"[{host}]" if ":" in host else host
        return cls(f"{parts.scheme}://{url_host}" + (f":{port}" if port and port != _PORTS[parts.scheme] else ""))

    @property
    def host(self) -> str:
        """Return the host's name, without scheme and port."""
        return urlsplit(self.url).hostname or ""

    @property
    def api_url(self) -> str:
        """Return the address of the REST API: a host of its own at GitHub and Enterprise Cloud, a path on a company's
        own server."""
        if self.url == GITHUB_COM or self.host.endswith(".ghe.com"):
            return f"https://api.{self.host}"
        return f"{self.url}/api/v3"

    def repository_name(self, url: str) -> str | None:
        """Return `owner/name` of a repository on this server from its https or ssh URL or `git@host:owner/name`; None
        for any other URL."""
        if self.answers_http_url(url):
            return _parse_owner_and_name(urlsplit(url).path)
        if "://" not in url:
            match = _SCP.fullmatch(url)
            return _parse_owner_and_name(match["path"]) if match and self._is_ssh_host(match["host"]) else None
        parts = urlsplit(url)
        return (
            _parse_owner_and_name(parts.path)
            if parts.scheme == "ssh" and self._is_ssh_host(parts.hostname or "")
            else None
        )

    def answers_http_url(self, url: str) -> bool:
        """Return True when this very server answers an http(s) URL: a token for the server may be shown there, and
        nowhere else."""
        try:
            parts = urlsplit(url)
            own = urlsplit(self.url)
            port = parts.port or _PORTS.get(parts.scheme)
            return (parts.scheme, parts.hostname, port) == (
                own.scheme,
                own.hostname,
                own.port or _PORTS[own.scheme],
            )
        except ValueError:
            return False

    def _is_ssh_host(self, host: str) -> bool:
        """Return True when a host's name in an ssh URL means this server; ssh.github.com means github.com."""
        return _SSH_ALIASES.get(host.lower(), host.lower()) == self.host


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
        without a token. Raises ForgeRefused, ForgeUnavailable."""
        repository = self.server.repository_name(url) if self.server.answers_http_url(url) else None
        token = self.account.token(repository) if repository else None
        return Credential(self.server.url, GIT_USER, token) if token else None


def sites_from_environment(environ: MutableMapping[str, str]) -> list[GitHubSite]:
    """Return the servers that these variables name, each with our account there. The one meant by `owner/name` comes
    first; github.com is always among them.

    Removes the secrets from `environ`. A token for github.com is used for github.com alone. Raises BadInput for a
    malformed address or token, an App's id without its key, a key that cannot be read, a token and an App at once.
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
    Raises BadInput for half an App, or an App and a token."""
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


def _parse_owner_and_name(path: str) -> str | None:
    """Parse the path of a repository's URL into `owner/name`, without `.git`; None when it is no such path."""
    path = path.strip("/").removesuffix(".git")
    match = re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", path)
    return path if match and not set(path.split("/")) & {".", ".."} else None


def _server_url_error(reason: str, fix: str = "such as https://github.com or https://ghe.example.com") -> BadInput:
    """Return the error for a value of PERDURE_GITHUB_URL that is no address of a server."""
    return BadInput(f"{URL} is not right: {reason}", where=f"environment variable {URL}", fix=fix)
