"""Refs read and written as git's own files, without a git process for each; used by `git.repository` alone.

Where git has to be asked (another format of refs, a file that means something else), the caller is told.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from perdure.adapters.git.objects import LooseObjects, is_full_hash

LOCK_WAIT_S = 1.0
"""The longest wait for another writer of the same ref; as git's (core.filesRefLockTimeout)."""

_OWN_REF = re.compile(r"refs/(?:perdure|artifacts)(?:/[A-Za-z0-9_~-]+)+")


def read_packed_refs(repository: Path) -> dict[str, str] | None:
    """Return the refs of a repository's `packed-refs`; none where there is no such file. None: git has to be asked.
    Read the files of refs before: packing writes here first and then removes them."""
    if (repository / "reftable").exists() or (repository / "commondir").exists():
        return None
    try:
        lines = (repository / "packed-refs").read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return {} if (repository / "HEAD").is_file() else None
    refs = dict[str, str]()
    for line in lines:
        sha, _, name = line.partition(" ")
        if is_full_hash(sha) and name:
            refs[name] = sha
        elif not line.startswith(("#", "^")):
            return None
    return refs


def list_refs(repository: Path, folder: str) -> dict[str, str] | None:
    """Return all refs in a folder of refs (`refs/tags/`) and below, each with its object, by name. None: git has to be
    asked."""
    loose, refs = LooseObjects(repository), dict[str, str]()
    for directory, _, names in os.walk(repository / folder):
        for name in (name for name in names if not name.endswith(".lock")):
            ref = str((Path(directory) / name).relative_to(repository))
            if (sha := loose.read_ref(ref)) is not None:
                refs[ref] = sha
            elif (Path(directory) / name).exists():  # not one that was packed or deleted meanwhile
                return None
    packed = read_packed_refs(repository)
    if packed is None:
        return None
    all_refs = {ref: sha for ref, sha in packed.items() if ref.startswith(folder)} | refs
    return dict(sorted(all_refs.items()))


def read_ref(repository: Path, ref: str) -> str | None:
    """Return the object that a ref points at, from its own file or `packed-refs`; None where there is no such ref.
    Raises LookupError where git has to be asked."""
    if (sha := LooseObjects(repository).read_ref(ref)) is not None:
        return sha
    if not ref.startswith("refs/") or os.path.lexists(repository / ref):
        raise LookupError(ref)
    packed = read_packed_refs(repository)
    if packed is None:
        raise LookupError(ref)
    return packed.get(ref)


def write_ref(repository: Path, ref: str, new: str, old: str | None) -> bool:
    """Set a ref of a delivery's own to the loose object `new` if it is at `old` (None: it does not exist yet), as git
    does: by a lock file that is synced and renamed. Return False, having changed nothing, where it is not at `old`,
    somebody else has the lock for LOCK_WAIT_S, or git has to do it."""
    path, lock = repository / ref, repository / f"{ref}.lock"
    if not _OWN_REF.fullmatch(ref) or not (repository / "objects" / new[:2] / new[2:]).is_file():
        return False
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            break
        except FileExistsError:
            if time.monotonic() > deadline or not lock.exists():
                return False
            time.sleep(0.01)
        except OSError:  # a file stands in the place of a folder
            return False
    try:
        with open(descriptor, "w") as file:
            if read_ref(repository, ref) == old:
                file.write(f"{new}\n")
                file.flush()
                os.fsync(file.fileno())
                os.replace(lock, path)
                return True
    except (LookupError, OSError):  # an empty folder stands in its place, the disk is full: git says it
        pass
    lock.unlink(missing_ok=True)
    return False
