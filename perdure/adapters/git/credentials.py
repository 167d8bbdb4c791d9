"""Credentials for a remote (a name and a secret, for one server and nobody else) and the way to give one to a git
command; and what a person can do when a remote refuses, read from git's messages. The forges make credentials; the
modules of `adapters.git` use them."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from perdure.models.errors import BadInput
from perdure.models.forges import FORGES, forge_of_host
from perdure.text import redact_values, register_secrets, shell_word

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
        register_secrets(self.password)

    def redact_secret(self, text: str) -> str:
        """Return a text with `***` in place of the secret, as it is and as it is encoded."""
        return redact_values(text, (self.password,), "***")


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
    """Yield the settings, variables and descriptor by which one git command reads the secret from a pipe, for one
    server; the pipe is closed when the block ends. With None as credential the offer is empty.

    No command line and no environment has the secret. Other credential helpers are switched off: a keychain must
    neither answer with another account nor store ours. When the pipe is empty, after CREDENTIAL_ANSWERS questions, git
    fails at once, for nobody is there to be prompted.
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


_PUSH = (
    *(refusal for forge in FORGES for refusal in forge.push_advice),
    (r"\.lock'?: File exists", "if no git is at work in that repository, remove the lock file it names, then retry"),
)
"""Patterns of a remote's messages when it takes no commit for a branch, each with what would make it do so."""

_CONNECTION: Sequence[tuple[str, str]] = (
    (
        r"SSL certificate problem|certificate verification failed|self.signed certificate",
        "let git trust the server's certificate: git config --global http.sslCAInfo FILE, or set GIT_SSL_CAINFO",
    ),
    (r"\b407\b|proxy authentication", "give the proxy's name and password in HTTPS_PROXY, and restart the worker"),
    (r"could not resolve (host|proxy)", "check the name, the network and the proxy"),
)
"""Patterns of messages when the server could not even be spoken to, each with what may help. A hotel's network does
this too: it passes."""

_REMOTE = "remote: "


def access_fix(url: str, message: str, credential: Credential | None) -> str:
    """Return advice for a person whom the remote at `url` does not let in, chosen by git's message.

    credential  what the remote was shown; None: the owner's own git configuration answered
    """
    if "hash algorithm" in message:
        return "use a repository with SHA-1 names"
    if credential is not None:
        return (
            _find_fix(forge_of_host(credential.server.partition("//")[2]).access_advice, message)
            or f"check what the token may do at {credential.server}"
        )
    plain = f"make this work: git ls-remote {shell_word(url)}"
    tokens = "".join(f"; for {forge.name} set {forge.token_variables[0]}" for forge in FORGES)
    return plain + tokens if "could not read Username" in message else plain


def push_fix(message: str) -> str:
    """Return what to do when a remote does not take a branch; empty when its message is not known."""
    return _find_fix(_PUSH, message)


def connection_fix(message: str) -> str:
    """Return what may help when a remote could not be spoken to; empty when its message is not known."""
    return _find_fix(_CONNECTION, message)


def main_line(stderr: str) -> str:
    """Return the line of git's stderr that says most: the remote's own message, else git's error, else the first line;
    empty without any."""
    lines = [line.strip() for line in stderr.splitlines() if not line.startswith(("warning: ", "hint: "))]
    remote = [line.removeprefix(_REMOTE).strip(" -") for line in lines if line.startswith(_REMOTE)]
    remote_messages = [re.sub(r"^error: ", "", line) for line in remote if line not in ("error:", "")]
    errors = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    return next(iter([*remote_messages, *errors, *filter(None, lines)]), "")


def _find_fix(fixes: Sequence[tuple[str, str]], message: str) -> str:
    """Return the fix of the first pattern that the message matches; empty when none does."""
    return next((fix for pattern, fix in fixes if re.search(pattern, message, re.IGNORECASE)), "")
