"""Our account at a server of GitHub, with the tokens that it shows there: that of a personal or build token, of an App,
or of nobody. Which one is configured is decided in `github.site`."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from perdure.adapters.forges.github.errors import raise_forge_errors, server_time, status_error
from perdure.models.errors import ForgeRefused
from perdure.text import register_secrets

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
        register_secrets(*self.secrets)
        self._login_name = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the token, if there is one."""
        return (self._token,) if self._token else ()

    def token(self, repository: str) -> str | None:
        """Return the token, or None; it is the same for every repository."""
        return self._token

    def login_name(self, repository: str) -> str:
        """Return the name of the token's owner, asked of GitHub once and then remembered.

        Raises ForgeRefused without a token or when GitHub does not accept it; ForgeUnavailable when it does not answer.
        """
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
        register_secrets(key)
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
        """Remove the kept token of a repository, so that the next call requests a new one. Return True when it had been
        handed out more than once, so that it may have ended early and a new one may help; else False.

        A token ends early when the App was installed anew, or suspended for a while.
        """
        with self._lock:
            discarded = self._tokens.pop(repository.lower(), None)
        return discarded is not None and discarded.use_count > 1

    def login_name(self, repository: str) -> str:
        """Return the App's name with `[bot]` behind it, asked of GitHub once and then remembered.

        Raises ForgeRefused when GitHub does not accept the App's id and key; ForgeUnavailable when it does not answer.
        """
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
        FORGE_TOKEN_MARGIN_S; each new one is added to `secrets` for good. One thread at a time; others wait.

        Raises ForgeRefused when GitHub refuses one or the App is not installed there; ForgeUnavailable when it does not
        answer.
        """
        name = repository.lower()
        with self._lock:
            current = self._tokens.get(name)
            if current is None or current.expires_at - time.time() < FORGE_TOKEN_MARGIN_S:
                current = self._tokens[name] = self._request_token(repository)
                self._issued_secrets.append(current.token)
                register_secrets(current.token)
            return current

    def _request_token(self, repository: str) -> _InstallationToken:
        """Request a new token of the App's installation on a repository from GitHub, and return it with its end by this
        host's clock and its permissions.

        Raises ForgeRefused when the App is not installed there, or GitHub does not accept its key; ForgeUnavailable
        when GitHub does not answer.
        """
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
    """Return the login of a token's owner, from `/user` of the REST API.

    Where that is refused with a 403 that is no rate limit, as for a token that a build server made, ask over GraphQL.
    Raises what PyGithub raises.
    """
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
