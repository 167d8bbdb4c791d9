"""The newest commits of a branch on a remote: whose each is, and what it stands on. No file of any is fetched."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.credentials import NO_KEYS, Keyring
from perdure.adapters.git.door import Git, GitError
from perdure.adapters.git.remote import remote_failure

TRAILER = "Perdure-Delivery"
_REF = "refs/heads/looked-at"


@dataclass(frozen=True)
class BranchCommit:
    """`delivery`: the key of the delivery that made it, by its trailer; empty: nobody's."""

    sha: str
    parents: tuple[str, ...]
    delivery: str


def branch_commits(url: str, branch: str, most: int, keys: Keyring = NO_KEYS) -> list[BranchCommit]:
    """At most so many, the newest first, by their first parents; fetched into a directory that is gone afterwards.

    ForgeRefused for a branch that is not there, ForgeUnavailable.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-commits-") as place:
        Git(cwd=Path(place)).run("init", "--quiet", "--bare", place)
        git, credential = Git(git_dir=Path(place)), keys.credential(url)
        only = ("--quiet", "--no-tags", "--no-write-fetch-head", "--filter=tree:0", f"--depth={most}")
        try:
            git.owner().run("fetch", *only, "--", url, f"+refs/heads/{branch}:{_REF}", credential=credential)
        except GitError as error:
            raise remote_failure(url, error, credential) from error
        told = f"--format=%H%x1f%P%x1f%(trailers:key={TRAILER},valueonly,separator=%x2C)"
        lines = git.text("log", "--first-parent", f"--max-count={most}", told, _REF).splitlines()
    found = [line.split("\x1f") for line in lines]
    return [BranchCommit(sha, tuple(parents.split()), delivery.strip()) for sha, parents, delivery in found]
