"""The first commit of a repository that has none: the engine's own, empty, and the base of the first pull request.

A pull request needs a branch to be compared with, and no forge opens one onto a repository without any. The commit is
the same one wherever it is made (its date means nothing), so that two deliveries, two hosts and a retry agree on it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from perdure.adapters.git.credentials import NO_KEYS, Keyring
from perdure.adapters.git.door import Git, GitError
from perdure.adapters.git.objects import ObjectStore
from perdure.adapters.git.remote import remote_failure, remote_refs
from perdure.models.limits import GIT_LOOK_S

FIRST_COMMIT = "2c3c92a6ebdac691d7837f8fd51a4e81bcb61415"
"""The commit of `make_first`: a delivery whose base this is began in an empty repository, or in one begun so before."""

_MADE_AT = 946684800  # the first second of the year 2000
_MESSAGE = """\
Empty first commit

The repository had no commit, and a pull request needs one to be compared with.
Made by Perdure.
"""
_NOT_TOLD = "perdure-was-not-told"


def make_first(store: ObjectStore) -> str:
    """Write FIRST_COMMIT there, and return it. Again is fine."""
    return store.commit(store.tree(()), (), _MESSAGE, at=_MADE_AT)


def refs_beside_branches(url: str, keys: Keyring = NO_KEYS) -> list[str]:
    """All that a repository without branches shows after all: tags, pull requests, notes. Nothing: it is empty."""
    return [name for name in remote_refs(url, keys) if name != "HEAD"]


def first_branch(url: str, keys: Keyring = NO_KEYS) -> str | None:
    """The branch that the HEAD of a repository without commits names, None when the remote does not tell.

    Only a clone asks for it; nothing comes along, for there is nothing. Raises ForgeRefused, ForgeUnavailable.
    """
    credential = keys.credential(url)
    with tempfile.TemporaryDirectory(prefix="perdure-first-") as scratch:
        clone = Path(scratch, "clone.git")
        git = Git(cwd=Path(scratch), as_owner=True, settings=(f"init.defaultBranch={_NOT_TOLD}",))
        asked = ("clone", "--quiet", "--bare", "--template=", "--depth=1", "--", url, str(clone))
        try:
            git.run(*asked, timeout_s=GIT_LOOK_S, credential=credential)
        except GitError as error:
            raise remote_failure(url, error, credential) from error
        name = Git(git_dir=clone).text("symbolic-ref", "HEAD").removeprefix("refs/heads/")
        sound = git.run("check-ref-format", f"refs/heads/{name}", ok=(0, 1)).returncode == 0
    return name if sound and name not in (_NOT_TOLD, "HEAD") and not name.startswith(("-", "refs/")) else None
