"""A server of GitHub by its address: the address of its API, and which repositories' URLs are its own. Nothing is asked
of it here. `github.site` makes servers of what the environment names.

No model output comes near this: the server is from the environment, owner and name from the origin's URL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from perdure.adapters.git.credentials import is_loopback
from perdure.models.errors import BadInput
from perdure.models.forges import GITHUB

GITHUB_COM, URL = GITHUB.home_url, GITHUB.server_variable

_SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?!/)(?P<path>.+)")
_SSH_ALIASES = dict(GITHUB.ssh_hosts)
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True)
class GitHubServer:
    """A server of GitHub. `url`: scheme, host and port, in lower case, without a slash at its end."""

    url: str = GITHUB_COM

    @classmethod
    def parse(cls, text: str) -> GitHubServer:
        """Parse the address of a server, such as https://github.com, from PERDURE_GITHUB_URL, and return the server.

        Raises BadInput for what is no http address or has more than scheme, host and port, for the API's address, and
        for plain http to another machine, which would carry a token.
        """
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


def _parse_owner_and_name(path: str) -> str | None:
    """Parse the path of a repository's URL into `owner/name`, without `.git`; None when it is no such path."""
    path = path.strip("/").removesuffix(".git")
    match = re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", path)
    return path if match and not set(path.split("/")) & {".", ".."} else None


def _server_url_error(reason: str, fix: str = "such as https://github.com or https://ghe.example.com") -> BadInput:
    """Return the error for a value of PERDURE_GITHUB_URL that is no address of a server."""
    return BadInput(f"{URL} is not right: {reason}", where=f"environment variable {URL}", fix=fix)
