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
"""Answers with a token to one git command: it asks once, and again after each redirect; more is a loop."""


_LONGEST = 2000  # characters of name and secret; all answers together fit into every system's pipe


@dataclass(frozen=True)
class Credential:
    """`server` is scheme, host and port (`https://github.com`); the secret is given to git for it alone.

    BadInput for a server that is not one, for plain http to another machine, for characters git could not be told.
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
        said = self.username + self.password
        if not said.isprintable() or not self.password or len(said) > _LONGEST:
            fix = "copy it again: one line, nothing around it"
            raise BadInput("the token is empty, too long, or has a line break in it", where=self.server, fix=fix)

    def hide(self, text: str) -> str:
        """A text without the secret, as it is and as Basic authentication has it."""
        packed = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return reduce(
            lambda told, secret: told.replace(secret, "***"), (self.password, packed, packed.rstrip("=")), text
        )


class Keyring(Protocol):
    def credential(self, url: str) -> Credential | None:
        """Return what to show to the server of a repository URL; None: the owner's own git configuration answers."""
        ...

    def home_server(self) -> str:
        """The server on which a repository named `owner/name` lives, without a slash at its end."""
        ...


class NoKeys:
    """The owner's own credential helpers and ssh keys, nothing of ours."""

    def credential(self, url: str) -> Credential | None:
        return None

    def home_server(self) -> str:
        return FORGES[0].home


NO_KEYS: Keyring = NoKeys()


@dataclass(frozen=True)
class Offer:
    """The way one git command gets a secret: settings for its command line, variables, descriptors to inherit."""

    settings: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    descriptors: tuple[int, ...] = ()


@contextmanager
def offered(credential: Credential | None) -> Iterator[Offer]:
    """Let git read the secret from a pipe, for one server; its name and number are all that others can see.

    Other helpers are switched off: a keychain must neither answer with another account nor store ours. git asks once,
    and again after a redirect; then the pipe is empty and git fails at once, for nobody is there to be prompted.
    """
    if credential is None:
        yield Offer()
        return
    reading, writing = os.pipe()
    try:
        try:
            answer = f"{credential.username}\n{credential.password}\n"
            os.write(writing, answer.encode() * CREDENTIAL_ANSWERS)
        finally:
            os.close(writing)
        # `read` takes no byte beyond its line from a pipe, and `printf` is a builtin: no argv has the secret. By path,
        # because a plain sh knows descriptors of one digit only.
        helper = f'!f() {{ test "$1" = get && {{ IFS= read -r n && IFS= read -r p; }} </dev/fd/{reading} &&'
        helper += ' printf "username=%s\\npassword=%s\\n" "$n" "$p"; }; f'
        settings = (
            "credential.helper=",
            f"credential.{credential.server}.helper={helper}",
            "credential.useHttpPath=false",
            f"http.{credential.server}/.followRedirects=initial",
        )
        yield Offer(settings, {"GIT_ASKPASS": ""}, (reading,))
    finally:
        os.close(reading)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
