"""The first commit of a repository that has none: the engine's own, empty, and the base of the first pull request.

A pull request needs a branch to be compared with, and no forge opens one onto a repository without any. The commit is
the same wherever it is made (its date means nothing), so that two deliveries, two hosts and a retry agree on it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from perdure.adapters.git.command import Git, GitError
from perdure.adapters.git.credentials import NO_KEYS, Keyring
from perdure.adapters.git.object_store import ObjectStore
from perdure.adapters.git.remote import remote_failure, remote_refs
from perdure.models.limits import GIT_LOOK_S

FIRST_COMMIT = "2c3c92a6ebdac691d7837f8fd51a4e81bcb61415"
"""The commit that `write_first_commit` makes. A delivery with this base began in an empty repository, or in one that
was begun in this way before."""

_MADE_AT = 946684800  # the first second of the year 2000
_MESSAGE = """\
Empty first commit

The repository had no commit, and a pull request needs one to be compared with.
Made by Perdure.
"""
_UNKNOWN_BRANCH = "perdure-was-not-told"


def write_first_commit(store: ObjectStore) -> str:
    """Write FIRST_COMMIT to an object store and return its hash. Safe to repeat."""
    return store.write_commit(store.write_tree(()), (), _MESSAGE, timestamp=_MADE_AT)


def list_refs_but_head(url: str, keys: Keyring = NO_KEYS) -> list[str]:
    """List all refs that a remote shows but its HEAD: for a repository without branches its tags, pull requests and
    notes. None of them means that it is empty. Raises ForgeRefused, ForgeUnavailable."""
    return [name for name in remote_refs(url, keys) if name != "HEAD"]


def find_first_branch(url: str, keys: Keyring = NO_KEYS) -> str | None:
    """Return the name of the branch at which the HEAD of a repository without commits points; None when the remote does
    not tell, or the name is no good.

    Only a clone learns it; nothing is copied, for there is nothing. Raises ForgeRefused, ForgeUnavailable.
    """
    credential = keys.credential(url)
    with tempfile.TemporaryDirectory(prefix="perdure-first-") as scratch:
        clone = Path(scratch, "clone.git")
        git = Git(cwd=Path(scratch), as_owner=True, settings=(f"init.defaultBranch={_UNKNOWN_BRANCH}",))
        command = ("clone", "--quiet", "--bare", "--template=", "--depth=1", "--", url, str(clone))
        try:
            git.execute(*command, timeout_s=GIT_LOOK_S, credential=credential)
        except GitError as error:
            raise remote_failure(url, error, credential) from error
        name = Git(git_dir=clone).text("symbolic-ref", "HEAD").removeprefix("refs/heads/")
        is_valid = git.execute("check-ref-format", f"refs/heads/{name}", ok=(0, 1)).returncode == 0
    return name if is_valid and name not in (_UNKNOWN_BRANCH, "HEAD") and not name.startswith(("-", "refs/")) else None
