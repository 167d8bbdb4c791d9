"""The meaning of a remote's messages, and what a person can do about them: git over https against forges, mostly."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.adapters.git.credentials import Credential
from perdure.models.forges import FORGES, forge_of_host

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
    """Return what to do when the remote at `url` (shown to people) lets nobody in. `credential` is what it was shown,
    None where the owner's own was used."""
    if "hash algorithm" in message:
        return "use a repository with SHA-1 names"
    if credential is not None:
        return (
            _find_fix(forge_of_host(credential.server.partition("//")[2]).access_advice, message)
            or f"check what the token may do at {credential.server}"
        )
    plain = f"make this work: git ls-remote {url}"
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
