"""The meaning of a remote's words, and what a person can do about them: git over https against GitHub, mostly."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.adapters.git.credentials import Credential

_WRITE = "a fine-grained token or App: Contents and Pull requests: read and write; a classic token: the repo scope"

_ACCESS: Sequence[tuple[str, str]] = (
    (
        r"enforced SAML SSO|SAML single sign-on",
        "authorize the token for the organization's single sign-on, where it was made",
    ),
    (r"archived", "unarchive the repository, or deliver to a fork"),
    (r"IP allow list", "add this host's address to the organization's IP allow list"),
    (
        r"access .*(blocked|disabled)|is disabled|suspended",
        "its owner has to make the account, App or repository usable again",
    ),
    (
        r"write access .* not granted|permission to \S+ denied|error: 403",
        f"give the token write access to it ({_WRITE})",
    ),
    (
        r"invalid username or (token|password)|authentication failed|bad credentials|error: 401",
        "the token is wrong, expired or revoked: make a new one (or a new key of the App), set PERDURE_GITHUB_TOKEN "
        "and restart the worker",
    ),
    (
        r"repository .*not found|error: 404",
        "check the name; if it is right, the token may not see this repository: add it to the token's repositories",
    ),
)
"""Git's words when the door stays closed → what opens it. The first that fits counts."""

_PUSH: Sequence[tuple[str, str]] = (
    (r"push protection|GH009", "take the secret out of the change, or allow it where the message says, then retry"),
    (r"GH001|exceeds .*file size limit", "keep the large file out of the change, or use Git LFS"),
    (
        r"without `?workflows?`? (scope|permission)",
        "give the token the workflow scope (fine-grained, App: Workflows: read and write), or keep .github/workflows "
        "out of the change",
    ),
    (
        r"GH006|GH013|protected branch|repository rule",
        "let this account bypass the rule, then retry; or set [git] branch in perdure.toml to a pattern that no rule "
        "covers, and deliver anew with --id NAME",
    ),
    (r"archived", "unarchive the repository, or deliver to a fork"),
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
        return _first(_ACCESS, said) or f"check what the token may do at {credential.server}"
    plain = f"make this work: git ls-remote {url}"
    return f"{plain}; for GitHub set PERDURE_GITHUB_TOKEN" if "could not read Username" in said else plain


def push_fix(said: str) -> str:
    """Say what to do when a remote does not take a branch; empty when its words are not known."""
    return _first(_PUSH, said)


def line_fix(said: str) -> str:
    """Say what may help when a remote could not be spoken to; empty when its words are not known."""
    return _first(_LINE, said)


def told(stderr: str) -> str:
    """The line of git's stderr that says most: the remote's own words, else git's verdict, else the first line."""
    lines = [line.strip() for line in stderr.splitlines() if not line.startswith(("warning: ", "hint: "))]
    remote = [line.removeprefix(_REMOTE).strip(" -") for line in lines if line.startswith(_REMOTE)]
    said = [re.sub(r"^error: ", "", line) for line in remote if line not in ("error:", "")]
    verdict = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    return next(iter([*said, *verdict, *filter(None, lines)]), "")


def _first(known: Sequence[tuple[str, str]], said: str) -> str:
    return next((fix for words, fix in known if re.search(words, said, re.IGNORECASE)), "")
