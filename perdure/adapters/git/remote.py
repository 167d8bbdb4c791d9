"""Questions to the user's remote, and its failures told apart: final, or worth another try."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perdure.adapters.git.credentials import NO_KEYS, Credential, Keyring
from perdure.adapters.git.door import Git, GitError, GitTooMuch, Output, redact
from perdure.adapters.git.refusals import access_fix, line_fix, main_line
from perdure.models.errors import ForgeRefused, ForgeUnavailable, StepError
from perdure.models.limits import GIT_LOOK_S

_FINAL = re.compile(
    r"authentication failed|could not read (username|password)|permission denied|access denied|invalid credentials"
    r"|terminal prompts disabled|host key verification failed|error: 40[134]|repository .* not found|not exported"
    r"|does not appear to be a git repository|does not exist|dubious ownership|transport '\S+' not allowed"
    r"|unable to find remote helper|unsupported protocol|mismatched algorithms|pack-objects died|unpacker error"
    r"|does not support this repository's hash algorithm",
    re.IGNORECASE,
)
"""Answers that the next try would get again."""

_AWAY = re.compile(r"error: (408|429|5\d\d)|rate limit|abuse detection", re.IGNORECASE)
"""Answers of a server that is not well or wants us to wait, whatever words its page holds."""

_UNKNOWN_HOST = re.compile(r"could not resolve host", re.IGNORECASE)
"""A name without an address: misspelt, or asked for while the network is away."""

_REDIRECT = re.compile(r"^warning: redirecting to (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Heads:
    """A remote's branches with their commits; `default` is the branch its HEAD names, None when it names none.

    moved_to  where the remote lives now, when it answered with a redirect (a renamed repository): worth telling once
    """

    default: str | None
    branches: dict[str, str] = field(default_factory=dict)
    moved_to: str | None = None


def remote_heads(url: str, keys: Keyring = NO_KEYS) -> Heads:
    """Ask a remote for its branches. Raises ForgeRefused or ForgeUnavailable."""
    listed = _listed(url, keys, "HEAD", "refs/heads/*")
    default, branches = None, {}
    for line in listed.text.splitlines():
        value, _, name = line.partition("\t")
        if value.startswith("ref: ") and name == "HEAD":
            default = value.removeprefix("ref: refs/heads/")
        elif name.startswith("refs/heads/"):
            branches[name.removeprefix("refs/heads/")] = value
    return Heads(default if default in branches else None, branches, _moved(url, listed.stderr))


def remote_refs(url: str, keys: Keyring = NO_KEYS) -> list[str]:
    """The names of all that a remote shows: branches, tags, pull requests. Raises ForgeRefused or ForgeUnavailable."""
    lines = _listed(url, keys).text.splitlines()
    return [line.partition("\t")[2] for line in lines if not line.startswith("ref: ")]


def remote_tip(url: str, branch: str, keys: Keyring = NO_KEYS) -> str | None:
    """Return the commit of a branch on the remote, None when it does not exist there."""
    return remote_heads(url, keys).branches.get(branch)


def remote_failure(url: str, error: GitError, credential: Credential | None = None) -> StepError:
    """Return the error of a failed network command: ForgeRefused when it would fail again, else ForgeUnavailable."""
    away = [line.strip() for line in error.stderr.splitlines() if _AWAY.search(line)]
    said = next(iter(away), main_line(error.stderr)) or error.what
    where = redact(url)
    if isinstance(error, GitTooMuch):
        fix = "check the address; a repository this large does not fit here"
        return ForgeRefused(f"the remote is left: {said}", where=where, fix=fix)
    if error.damaged:
        fix = "git fsck --full shows what is damaged: there, or in vaults/ of PERDURE_HOME, which may be moved away"
        return ForgeRefused(f"the repository or this host's copy of it is damaged: {said}", where=where, fix=fix)
    if error.returncode is not None and _FINAL.search(error.stderr) and not away:
        fix = access_fix(where, error.stderr, credential)
        return ForgeRefused(f"the remote refuses: {said}", where=where, fix=fix)
    unknown, fix = _UNKNOWN_HOST.search(error.stderr) is not None, line_fix(error.stderr)
    return ForgeUnavailable(f"the remote cannot be reached: {said}", where=where, fix=fix, unknown_host=unknown)


def _listed(url: str, keys: Keyring, *patterns: str) -> Output:
    credential = keys.credential(url)
    try:
        asked = ("ls-remote", "--symref", "--", url, *patterns)
        return Git(as_owner=True).run(*asked, timeout_s=GIT_LOOK_S, credential=credential)
    except GitError as error:
        raise remote_failure(url, error, credential) from error


def _moved(url: str, stderr: str) -> str | None:
    """The address a redirect named, written as `url` is: with `.git` or without."""
    found = _REDIRECT.search(stderr)
    if found is None:
        return None
    address = redact(found[1]).rstrip("/")
    if not url.rstrip("/").endswith(".git"):
        address = address.removesuffix(".git")
    return address if address != url.rstrip("/") else None
