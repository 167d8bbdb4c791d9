"""Questions to the user's remote, and its failures told apart: final, or worth another try."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perdure.adapters.git.command import Git, GitError, GitLimitExceeded, GitOutput, redact
from perdure.adapters.git.credentials import NO_KEYS, Credential, Keyring
from perdure.adapters.git.refusals import access_fix, connection_fix, main_line
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
"""Messages that the next try would get again."""

_AWAY = re.compile(r"error: (408|429|5\d\d)|rate limit|abuse detection", re.IGNORECASE)
"""Messages of a server that is not well or wants us to wait, whatever else its page says."""

_UNKNOWN_HOST = re.compile(r"could not resolve host", re.IGNORECASE)
"""A message about a name without an address: misspelt, or looked up while the network is away."""

_REDIRECT = re.compile(r"^warning: redirecting to (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Heads:
    """A remote's branches with their commits; `default` is the branch that its HEAD names, None when it names none.

    moved_to  the remote's new address, when it answered with a redirect (a renamed repository): worth telling once
    """

    default: str | None
    branches: dict[str, str] = field(default_factory=dict)
    moved_to: str | None = None


def remote_heads(url: str, keys: Keyring = NO_KEYS) -> Heads:
    """Fetch the list of a remote's branches and return it. Raises ForgeRefused or ForgeUnavailable."""
    listed = _list_remote(url, keys, "HEAD", "refs/heads/*")
    default, branches = None, {}
    for line in listed.text.splitlines():
        value, _, name = line.partition("\t")
        if value.startswith("ref: ") and name == "HEAD":
            default = value.removeprefix("ref: refs/heads/")
        elif name.startswith("refs/heads/"):
            branches[name.removeprefix("refs/heads/")] = value
    return Heads(default if default in branches else None, branches, _redirect_address(url, listed.stderr))


def remote_refs(url: str, keys: Keyring = NO_KEYS) -> list[str]:
    """Return the names of all refs that a remote shows: branches, tags, pull requests. Raises ForgeRefused or
    ForgeUnavailable."""
    lines = _list_remote(url, keys).text.splitlines()
    return [line.partition("\t")[2] for line in lines if not line.startswith("ref: ")]


def remote_tip(url: str, branch: str, keys: Keyring = NO_KEYS) -> str | None:
    """Return the commit of a branch on the remote, None when it does not exist there. Raises ForgeRefused or
    ForgeUnavailable."""
    return remote_heads(url, keys).branches.get(branch)


def remote_failure(url: str, error: GitError, credential: Credential | None = None) -> StepError:
    """Return the error of a failed network command: ForgeRefused when it would fail again, else ForgeUnavailable."""
    busy_lines = [line.strip() for line in error.stderr.splitlines() if _AWAY.search(line)]
    message = next(iter(busy_lines), main_line(error.stderr)) or error.what
    where = redact(url)
    if isinstance(error, GitLimitExceeded):
        fix = "check the address; a repository this large does not fit here"
        return ForgeRefused(f"the remote is left: {message}", where=where, fix=fix)
    if error.damaged:
        fix = "git fsck --full shows what is damaged: there, or in vaults/ of PERDURE_HOME, which may be moved away"
        return ForgeRefused(f"the repository or this host's copy of it is damaged: {message}", where=where, fix=fix)
    if error.returncode is not None and _FINAL.search(error.stderr) and not busy_lines:
        fix = access_fix(where, error.stderr, credential)
        return ForgeRefused(f"the remote refuses: {message}", where=where, fix=fix)
    unknown, fix = _UNKNOWN_HOST.search(error.stderr) is not None, connection_fix(error.stderr)
    return ForgeUnavailable(f"the remote cannot be reached: {message}", where=where, fix=fix, unknown_host=unknown)


def _list_remote(url: str, keys: Keyring, *patterns: str) -> GitOutput:
    """Run `git ls-remote` for refs that match the patterns, all without any, and return its output. Raises ForgeRefused
    or ForgeUnavailable."""
    credential = keys.credential(url)
    try:
        command = ("ls-remote", "--symref", "--", url, *patterns)
        return Git(as_owner=True).execute(*command, timeout_s=GIT_LOOK_S, credential=credential)
    except GitError as error:
        raise remote_failure(url, error, credential) from error


def _redirect_address(url: str, stderr: str) -> str | None:
    """Return the address that a redirect in git's stderr named, written as `url` is (with `.git` or without); None
    without a redirect to another one."""
    match = _REDIRECT.search(stderr)
    if match is None:
        return None
    address = redact(match[1]).rstrip("/")
    if not url.rstrip("/").endswith(".git"):
        address = address.removesuffix(".git")
    return address if address != url.rstrip("/") else None
