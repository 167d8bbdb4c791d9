"""The newest commits of a branch on a remote: which delivery made each, and its parents. No file of any is fetched."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.command import Git, GitError
from perdure.adapters.git.credentials import NO_KEYS, Keyring
from perdure.adapters.git.remote import remote_failure

TRAILER = "Perdure-Delivery"
_REF = "refs/heads/looked-at"


@dataclass(frozen=True)
class BranchCommit:
    """One commit of a remote branch. `delivery` is the key of the delivery that made it, by its trailer; empty when
    none did."""

    sha: str
    parents: tuple[str, ...]
    delivery: str


def fetch_branch_commits(url: str, branch: str, most: int, keys: Keyring = NO_KEYS) -> list[BranchCommit]:
    """Return at most so many of the newest commits of a branch on a remote, by first parents, the newest first.

    They are fetched, without their files, into a directory that is removed afterwards. Raises ForgeRefused for a branch
    that does not exist, ForgeUnavailable.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-commits-") as scratch:
        Git(cwd=Path(scratch)).execute("init", "--quiet", "--bare", scratch)
        git, credential = Git(git_dir=Path(scratch)), keys.credential(url)
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--filter=tree:0", f"--depth={most}")
        try:
            git.for_owner().execute("fetch", *options, "--", url, f"+refs/heads/{branch}:{_REF}", credential=credential)
        except GitError as error:
            raise remote_failure(url, error, credential) from error
        log_format = f"--format=%H%x1f%P%x1f%(trailers:key={TRAILER},valueonly,separator=%x2C)"
        lines = git.text("log", "--first-parent", f"--max-count={most}", log_format, _REF).splitlines()
    rows = [line.split("\x1f") for line in lines]
    return [BranchCommit(sha, tuple(parents.split()), delivery.strip()) for sha, parents, delivery in rows]
