"""Questions to the user's remote, and its failures told apart: final, or worth another try."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perdure.adapters.git.door import Git, GitError, redact
from perdure.models.errors import ForgeRefused, ForgeUnavailable, StepError

_LOOK_TIMEOUT_S = 60.0  # ls-remote answers in seconds or not at all
_FINAL = re.compile(
    r"authentication failed|could not read (username|password)|permission denied|access denied|invalid credentials"
    r"|terminal prompts disabled|host key verification failed|error: 40[134]|repository .* not found|not exported"
    r"|does not appear to be a git repository|does not exist|dubious ownership|transport '\S+' not allowed"
    r"|unable to find remote helper|unsupported protocol|mismatched algorithms|pack-objects died|unpacker error",
    re.IGNORECASE,
)
"""Answers that the next try would get again."""


@dataclass(frozen=True)
class Heads:
    """A remote's branches with their commits; `default` is the branch its HEAD names, None when it names none."""

    default: str | None
    branches: dict[str, str] = field(default_factory=dict)


def remote_heads(url: str) -> Heads:
    """Ask a remote for its branches. Raises ForgeRefused or ForgeUnavailable."""
    try:
        listed = Git(as_owner=True).run(
            "ls-remote", "--symref", "--", url, "HEAD", "refs/heads/*", timeout_s=_LOOK_TIMEOUT_S
        )
    except GitError as error:
        raise remote_failure(url, error) from error
    default, branches = None, {}
    for line in listed.text.splitlines():
        value, _, name = line.partition("\t")
        if value.startswith("ref: ") and name == "HEAD":
            default = value.removeprefix("ref: refs/heads/")
        elif name.startswith("refs/heads/"):
            branches[name.removeprefix("refs/heads/")] = value
    return Heads(default if default in branches else None, branches)


def remote_tip(url: str, branch: str) -> str | None:
    """Where a branch is on the remote, None when it does not exist there."""
    return remote_heads(url).branches.get(branch)


def default_branch(url: str) -> str | None:
    """The branch the remote's HEAD names (asked, never assumed), None when it names none that exists."""
    return remote_heads(url).default


def remote_failure(url: str, error: GitError) -> StepError:
    """What a failed network command means: ForgeRefused when it would fail again, else ForgeUnavailable."""
    last = error.stderr.splitlines()[0] if error.stderr else error.what
    where = redact(url)
    if error.returncode is not None and _FINAL.search(error.stderr):
        return ForgeRefused(f"the remote refuses: {last}", where=where, fix=f"make this work: git ls-remote {where}")
    return ForgeUnavailable(f"the remote cannot be reached: {last}", where=where)
