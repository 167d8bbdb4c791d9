"""The servers of GitHub and our accounts there, as the environment names them, and the repositories of each.

No model output comes near this: server and account are the environment's, owner and name the origin's.
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from perdure.adapters.forges.base import HostedForge
from perdure.adapters.forges.github.accounts import Account, AppAccount, TokenAccount
from perdure.adapters.git.credentials import Credential, is_loopback
from perdure.models.errors import BadInput
from perdure.models.forges import GITHUB

GITHUB_COM, URL = GITHUB.home_url, GITHUB.server_variable
TOKEN = "PERDURE_GITHUB_TOKEN"  # noqa: S105  # the name of a variable
APP_ID = "PERDURE_GITHUB_APP_ID"
APP_KEY = "PERDURE_GITHUB_APP_KEY"
OF_GITHUB_COM = ("GH_TOKEN", "GITHUB_TOKEN")
OF_ENTERPRISE = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
SECRET_VARIABLES = GITHUB.secret_variables

GIT_USER = "x-access-token"
"""The name that GitHub wants beside a token of any kind."""

_SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?!/)(?P<path>.+)")
_SSH_ALIASES = dict(GITHUB.ssh_hosts)
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True)
class Server:
    """A GitHub. `url`: scheme, host and port, lower case, without a slash at its end."""

    url: str = GITHUB_COM

    @classmethod
    def parse(cls, text: str) -> Server:
        """BadInput for what is not the address of a server, or would carry a token over plain http."""
        try:
            parts = urlsplit(text.strip())
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _malformed("it is no address") from None
        if parts.scheme not in _PORTS or not re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:.]+", host):
            raise _malformed("it is no http address")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise _malformed("it has more than scheme, host and port")
        if parts.path.strip("/") or host == "api.github.com":
            raise _malformed("it names the API or a page, not the server")
        if parts.scheme == "http" and not is_loopback(host):
            raise _malformed("a token would travel over plain http", fix="use its https:// address")
        named = f"[{host}]" if ":" in host else host
        return cls(f"{parts.scheme}://{named}" + (f":{port}" if port and port != _PORTS[parts.scheme] else ""))

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def api(self) -> str:
        """The address of the REST API: a host of its own at GitHub and Enterprise Cloud, a path on one's own server."""
        if self.url == GITHUB_COM or self.host.endswith(".ghe.com"):
            return f"https://api.{self.host}"
        return f"{self.url}/api/v3"

    def repository(self, url: str) -> str | None:
        """`owner/name` of a repository here, by https, ssh or `git@host:owner/name`; None for any other URL."""
        if self.over_http(url):
            return _owner_and_name(urlsplit(url).path)
        if "://" not in url:
            found = _SCP.fullmatch(url)
            return _owner_and_name(found["path"]) if found and self._by_ssh(found["host"]) else None
        parts = urlsplit(url)
        return _owner_and_name(parts.path) if parts.scheme == "ssh" and self._by_ssh(parts.hostname or "") else None

    def over_http(self, url: str) -> bool:
        """True where this very server answers an http(s) URL: a token for it may be shown there, and nowhere else."""
        try:
            parts = urlsplit(url)
            mine = urlsplit(self.url)
            port = parts.port or _PORTS.get(parts.scheme)
            return (parts.scheme, parts.hostname, port) == (
                mine.scheme,
                mine.hostname,
                mine.port or _PORTS[mine.scheme],
            )
        except ValueError:
            return False

    def _by_ssh(self, host: str) -> bool:
        return _SSH_ALIASES.get(host.lower(), host.lower()) == self.host


@dataclass(frozen=True)
class Site:
    """A server with our account there (forges.base.ForgeSite)."""

    server: Server
    account: Account

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.account.secrets

    def forge(self, url: str) -> HostedForge | None:
        from perdure.adapters.forges.github.forge import GitHub

        repository, by_http = self.server.repository(url), self.server.over_http(url)
        return GitHub(self.server, repository, self.account, pushed_with_token=by_http) if repository else None

    def credential(self, url: str) -> Credential | None:
        repository = self.server.repository(url) if self.server.over_http(url) else None
        token = self.account.token(repository) if repository else None
        return Credential(self.server.url, GIT_USER, token) if token else None


def sites(environ: MutableMapping[str, str]) -> list[Site]:
    """The servers that these variables name, the one meant by `owner/name` first, and who we are to each.

    Takes the secrets out of `environ`. A token for github.com is for github.com alone. BadInput for a malformed
    address or token, an App's id without its key, a key that cannot be read, a token and an App at once.
    """
    given = {name: environ.pop(name, "").strip() for name in SECRET_VARIABLES}
    given |= {name: environ.get(name, "").strip() for name in (URL, APP_ID)}
    home = Server.parse(given[URL]) if given[URL] else Server()
    found = [Site(home, _configured(given, home))]
    return found if home == Server() else [*found, Site(Server(), _first(given, OF_GITHUB_COM, Server()))]


def _configured(given: dict[str, str], home: Server) -> Account:
    app_id, app_key = given[APP_ID], given[APP_KEY]
    if bool(app_id) != bool(app_key):
        there, missing = (APP_ID, APP_KEY) if app_id else (APP_KEY, APP_ID)
        fix = f"set {APP_ID} to the App's id and {APP_KEY} to the path of its private key, or neither"
        raise BadInput(f"{there} is set without {missing}", where=f"environment variable {missing}", fix=fix)
    if app_id and given[TOKEN]:
        raise BadInput("a token and an App are set, and only one can act", where=f"{TOKEN}, {APP_ID}", fix="unset one")
    if app_id:
        return AppAccount(home.api, app_id, _key(app_key))
    return _first(given, (TOKEN, *(OF_GITHUB_COM if home == Server() else OF_ENTERPRISE)), home)


def _first(given: dict[str, str], variables: tuple[str, ...], server: Server) -> Account:
    for name in variables:
        token = given[name]
        if token and (not token.isascii() or not token.isprintable() or " " in token):
            fix = "copy it again: one line, nothing around it"
            raise BadInput("the token has characters in it that no token has", where=name, fix=fix)
        if token:
            return TokenAccount(server.api, token, name)
    return TokenAccount(server.api, None, variables[0])


def _key(path: str) -> str:
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


def _owner_and_name(path: str) -> str | None:
    path = path.strip("/").removesuffix(".git")
    found = re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", path)
    return path if found and not set(path.split("/")) & {".", ".."} else None


def _malformed(why: str, fix: str = "such as https://github.com or https://ghe.example.com") -> BadInput:
    return BadInput(f"{URL} is not right: {why}", where=f"environment variable {URL}", fix=fix)
