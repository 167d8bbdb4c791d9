"""Our account at a GitHub: somebody with a token, an App, or nobody."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from perdure.adapters.forges.github.errors import of_status, server_time, speaking
from perdure.models.errors import ForgeRefused

if TYPE_CHECKING:
    from github import Github
    from github.Requester import Requester

FORGE_TOKEN_MARGIN_S = 300.0
"""An App's token lives for an hour; one this close to its end could end within a push."""


NEEDED = (
    "a classic token needs the scope repo (public_repo for public repositories); a fine-grained token or an App needs"
    " Contents, Pull requests and Issues: read and write"
)


class Account(Protocol):
    """`variable` names what a person sets or mends. Safe to use from any thread."""

    variable: str

    def token(self, repository: str) -> str | None:
        """Return the secret to show for `owner/name`, or None. ForgeRefused, ForgeUnavailable when it cannot be had."""
        ...

    def login(self, repository: str) -> str:
        """The name that stands under what we write. Errors as above."""
        ...

    def permissions(self, repository: str) -> dict[str, str] | None:
        """Return the rights of an App's installation, such as {"pull_requests": "write"}, or None."""
        ...

    def renew(self, repository: str) -> bool:
        """GitHub did not take the token: whether another try would show another one."""
        ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """Everything to keep out of what is stored or shown."""
        ...


class TokenAccount:
    """Somebody's token, classic or fine-grained, or one that a build server made; without one nobody: public
    repositories can be read, nothing written."""

    def __init__(self, api: str, token: str | None, variable: str) -> None:
        self.variable = variable
        self._api, self._token = api, token
        self._login = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._token,) if self._token else ()

    def token(self, repository: str) -> str | None:
        return self._token

    def login(self, repository: str) -> str:
        if not self._token:
            raise no_token(self.variable)
        if not self._login:
            with speaking(self._api, self.variable), _connect(self._api, self._token) as github:
                self._login = _who(github.requester)
        return self._login

    def permissions(self, repository: str) -> dict[str, str] | None:
        return None

    def renew(self, repository: str) -> bool:
        return False


@dataclass
class _Installed:
    """`ends`: when, by this host's clock; `shown`: how often it has been handed out."""

    token: str
    ends: float
    permissions: dict[str, str]
    shown: int = 0


class AppAccount:
    """A GitHub App: for each repository a token of its installation, used until shortly before it ends."""

    variable = "PERDURE_GITHUB_APP_KEY"

    def __init__(self, api: str, app_id: str, key: str) -> None:
        self._api, self.id, self._key = api, app_id, key
        self._tokens: dict[str, _Installed] = {}
        self._issued: list[str] = []
        self._login = ""
        self._alone = threading.Lock()

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._key, *tuple(self._issued))

    def token(self, repository: str) -> str | None:
        installed = self._installed(repository)
        installed.shown += 1
        return installed.token

    def permissions(self, repository: str) -> dict[str, str] | None:
        return self._installed(repository).permissions

    def renew(self, repository: str) -> bool:
        """One that was shown before may have ended early: the App was installed anew, or suspended for a while."""
        with self._alone:
            known = self._tokens.pop(repository.lower(), None)
        return known is not None and known.shown > 1

    def login(self, repository: str) -> str:
        if not self._login:
            with speaking(self._api, self.variable), _connect(self._api, app=(self.id, self._key)) as github:
                _, app = github.requester.requestJsonAndCheck("GET", "/app")
                self._login = f"{app['slug']}[bot]"
        return self._login

    def _installed(self, repository: str) -> _Installed:
        name = repository.lower()
        with self._alone:
            known = self._tokens.get(name)
            if known is None or known.ends - time.time() < FORGE_TOKEN_MARGIN_S:
                known = self._tokens[name] = self._issue(repository)
                self._issued.append(known.token)
            return known

    def _issue(self, repository: str) -> _Installed:
        missing = ForgeRefused(
            f"the GitHub App is not installed on {repository}, or there is no such repository",
            where="PERDURE_GITHUB_APP_ID",
            fix=f"install the App on {repository} with Contents, Pull requests and Issues: read and write",
        )
        with speaking(self._api, self.variable, missing=missing):
            with _connect(self._api, app=(self.id, self._key)) as github:
                ask = github.requester.requestJsonAndCheck
                _, installation = ask("GET", f"/repos/{repository}/installation")
                headers, issued = ask("POST", f"/app/installations/{int(installation['id'])}/access_tokens", input={})
            ends = datetime.fromisoformat(issued["expires_at"].replace("Z", "+00:00")).timestamp()
            life = ends - server_time(headers)
            return _Installed(str(issued["token"]), time.time() + life, dict(issued.get("permissions") or {}))


def _connect(api: str, token: str | None = None, *, app: tuple[str, str] | None = None) -> Github:
    from perdure.adapters.forges.github.wire import connect  # PyGithub: a tenth of a worker's start

    return connect(api, token, app=app)


def _who(requester: Requester) -> str:
    """A person's token knows its owner; one that a build server made is only told over GraphQL."""
    from github import GithubException

    try:
        _, user = requester.requestJsonAndCheck("GET", "/user")
        return str(user["login"])
    except GithubException as error:
        if error.status != 403 or of_status(403, error.data, error.headers or {}, "", "").retryable:
            raise
        _, answer = requester.graphql_query("query { viewer { login } }", {})
        return str(answer["data"]["viewer"]["login"])


def no_token(variable: str) -> ForgeRefused:
    return ForgeRefused("there is no token for GitHub", where=variable, fix=f"set {variable}: {NEEDED}")
