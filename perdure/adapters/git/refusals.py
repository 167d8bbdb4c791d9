"""The meaning of a remote's words, and what a person can do about them: git over https against forges, mostly."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.adapters.git.credentials import Credential
from perdure.models.forges import FORGES, forge_at

_PUSH = (
    *(words for forge in FORGES for words in forge.declines),
    (r"\.lock'?: File exists", "if no git is at work in that repository, remove the lock file it names, then retry"),
)
"""A remote's words when it takes no commit for a branch → what would make it do so."""

_LINE: Sequence[tuple[str, str]] = (
    (
        r"SSL certificate problem|certificate verification failed|self.signed certificate",
        "let git trust the server's certificate: git config --global http.sslCAInfo FILE, or set GIT_SSL_CAINFO",
    ),
    (r"\b407\b|proxy authentication", "give the proxy's name and password in HTTPS_PROXY, and restart the worker"),
    (r"could not resolve (host|proxy)", "check the name, the network and the proxy"),
)
"""Words when the server was not even spoken to → what may help. A hotel's network does this too: it passes."""

_REMOTE = "remote: "


def access_fix(url: str, said: str, credential: Credential | None) -> str:
    """Say what to do when a remote at `url` (shown to people) lets nobody in. `credential`: what it was shown."""
    if "hash algorithm" in said:
        return "use a repository with SHA-1 names"
    if credential is not None:
        return (
            _first(forge_at(credential.server.partition("//")[2]).refuses, said)
            or f"check what the token may do at {credential.server}"
        )
    plain = f"make this work: git ls-remote {url}"
    tokens = "".join(f"; for {forge.name} set {forge.tokens[0]}" for forge in FORGES)
    return plain + tokens if "could not read Username" in said else plain


def push_fix(said: str) -> str:
    """Say what to do when a remote does not take a branch; empty when its words are not known."""
    return _first(_PUSH, said)


def line_fix(said: str) -> str:
    """Say what may help when a remote could not be spoken to; empty when its words are not known."""
    return _first(_LINE, said)


def main_line(stderr: str) -> str:
    """The line of git's stderr that says most: the remote's own words, else git's verdict, else the first line."""
    lines = [line.strip() for line in stderr.splitlines() if not line.startswith(("warning: ", "hint: "))]
    remote = [line.removeprefix(_REMOTE).strip(" -") for line in lines if line.startswith(_REMOTE)]
    said = [re.sub(r"^error: ", "", line) for line in remote if line not in ("error:", "")]
    verdict = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    return next(iter([*said, *verdict, *filter(None, lines)]), "")


def _first(known: Sequence[tuple[str, str]], said: str) -> str:
    return next((fix for words, fix in known if re.search(words, said, re.IGNORECASE)), "")
