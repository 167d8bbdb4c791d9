"""Credentials for a remote: a name and a secret, for one server and nobody else."""

from __future__ import annotations

import base64
import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol
from urllib.parse import urlsplit

from perdure.models.errors import BadInput
from perdure.models.forges import FORGES

CREDENTIAL_ANSWERS = 4
"""The most answers with a token to one git command. git asks once, and once more after each redirect; more is a
loop."""


_LONGEST = 2000  # characters of name and secret; all answers together fit into every system's pipe


@dataclass(frozen=True)
class Credential:
    """A name and a secret for one server, given to git for that server alone.

    `server` is scheme, host and port (`https://github.com`). Raises BadInput for a server that is not one, for plain
    http to another machine, and for characters that cannot be passed to git.
    """

    server: str
    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.server)
        if parts.scheme not in ("http", "https") or self.server != f"{parts.scheme}://{parts.netloc}":
            raise BadInput("this is not the address of a server", where=self.server, fix="such as https://github.com")
        if parts.username or not parts.hostname or set(self.server) & set(" =\n'\""):
            raise BadInput("this is not the address of a server", fix="such as https://github.com")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise BadInput("a token is not sent over plain http", where=self.server, fix="use its https:// address")
        combined = self.username + self.password
        if not combined.isprintable() or not self.password or len(combined) > _LONGEST:
            fix = "copy it again: one line, nothing around it"
            raise BadInput("the token is empty, too long, or has a line break in it", where=self.server, fix=fix)

    def redact_secret(self, text: str) -> str:
        """Return a text with `***` in place of the secret, as it is and as Basic authentication encodes it."""
        encoded = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return reduce(
            lambda result, secret: result.replace(secret, "***"), (self.password, encoded, encoded.rstrip("=")), text
        )


class Keyring(Protocol):
    """The source of credentials for remotes: what to show to which server, and which server is the home of
    `owner/name`."""

    def credential(self, url: str) -> Credential | None:
        """Return what to show to the server of a repository URL; None: the owner's own git configuration answers."""
        ...

    def home_server(self) -> str:
        """Return the server on which a repository named `owner/name` lives, without a slash at its end."""
        ...


class NoKeys:
    """A keyring without credentials: the owner's own credential helpers and ssh keys are used."""

    def credential(self, url: str) -> Credential | None:
        return None

    def home_server(self) -> str:
        return FORGES[0].home_url


NO_KEYS: Keyring = NoKeys()


@dataclass(frozen=True)
class CredentialOffer:
    """The way one git command gets a secret: settings for its command line, environment variables, descriptors to
    inherit."""

    settings: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    descriptors: tuple[int, ...] = ()


@contextmanager
def offer_credential(credential: Credential | None) -> Iterator[CredentialOffer]:
    """Yield what lets a git command read the secret from a pipe, for one server, while the block runs; of the pipe
    others can see only its name and number. With None nothing is offered.

    Other helpers are switched off: a keychain must neither answer with another account nor store ours. git asks once,
    and again after a redirect; when the pipe is empty git fails at once, for nobody is there to be prompted.
    """
    if credential is None:
        yield CredentialOffer()
        return
    read_end, write_end = os.pipe()
    try:
        try:
            answer = f"{credential.username}\n{credential.password}\n"
            os.write(write_end, answer.encode() * CREDENTIAL_ANSWERS)
        finally:
            os.close(write_end)
        # `read` takes no byte beyond its line from a pipe, and `printf` is a builtin: no argv has the secret. By path,
        # because a plain sh knows descriptors of one digit only.
        helper = f'!f() {{ test "$1" = get && {{ IFS= read -r n && IFS= read -r p; }} </dev/fd/{read_end} &&'
        helper += ' printf "username=%s\\npassword=%s\\n" "$n" "$p"; }; f'
        settings = (
            "credential.helper=",
            f"credential.{credential.server}.helper={helper}",
            "credential.useHttpPath=false",
            f"http.{credential.server}/.followRedirects=initial",
        )
        yield CredentialOffer(settings, {"GIT_ASKPASS": ""}, (read_end,))
    finally:
        os.close(read_end)


def is_loopback(host: str) -> bool:
    """Return True for `localhost` and for a loopback IP address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
