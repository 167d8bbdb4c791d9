"""The vault: an engine-owned bare repository, one per target repository and host, that loses nothing by itself."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from perdure.adapters.git.credentials import NO_KEYS, Keyring
from perdure.adapters.git.door import Git, GitError, redact
from perdure.adapters.git.locks import locked
from perdure.adapters.git.objects import ObjectStore
from perdure.adapters.git.remote import Heads, remote_failure, remote_heads
from perdure.adapters.git.repository import RefLocked, RefMoved, Repository
from perdure.adapters.system.files import sync_directory, write_whole
from perdure.adapters.system.home import Home
from perdure.models import ids
from perdure.models.errors import InvalidRequest, WorkspaceLost

LOOSE_MOST, PACKS_MOST = 5000, 50
"""Of objects outside packs, and of packs, before a vault is packed at the end of a delivery: some hundred turns. Packed
they take a tenth of the disk and are read five times as fast (benchmarks/README.md)."""


__all__ = ["RefLocked", "RefMoved", "Vault"]

BARE = """\
[core]
	repositoryformatversion = 0
	filemode = true
	bare = true
	logAllRefUpdates = false
"""

_CONFIG = f"""\
# Written by Perdure at creation. Nothing here may ever be collected by itself: checkpoints of a delivery that waits
# for a person for a month must be there afterwards (packing: Vault.repack).
{BARE}[gc]
	auto = 0
	pruneExpire = never
	worktreePruneExpire = never
[receive]
	autogc = false
[maintenance]
	auto = false
"""


_ONLY_THE_BRANCH = (
    *("--quiet", "--no-tags", "--no-prune", "--no-recurse-submodules"),
    *("--no-auto-gc", "--no-write-fetch-head"),
)


@dataclass(frozen=True)
class Vault(Repository):
    """`path` is the bare repository, `url` where the target repository lives, `keys` what opens it there."""

    url: str
    keys: Keyring = field(default=NO_KEYS, repr=False, compare=False)

    @classmethod
    def open(cls, home: Home, url: str, keys: Keyring = NO_KEYS) -> Vault:
        """The vault of a repository, created when it is not there yet; any number of openers at once are fine."""
        plain = redact(url)
        name = f"{ids.repository_name(plain)}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"
        vault = cls(home.vaults / f"{name}.git", url, keys)
        if not vault.path.exists():
            with locked(home.vaults / f"{name}.lock"):
                if not vault.path.exists():
                    _create(vault.path, plain)
        return vault

    @classmethod
    def at(cls, path: Path) -> Vault:
        """An existing vault. Raises WorkspaceLost when there is none."""
        try:
            return cls(path, (path / "description").read_text().strip())
        except OSError as error:
            raise WorkspaceLost("the vault is not on this host", where=str(path)) from error

    def with_keys(self, keys: Keyring) -> Vault:
        """The same vault, for talking to the remote with these keys; none of them is written down."""
        return replace(self, keys=keys)

    @property
    def objects(self) -> ObjectStore:
        return ObjectStore(self.path / "objects")

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Alone with the vault's metadata (worktrees, packing, deleted refs); yields the descriptor for `hold=`.

        Whoever holds it knows that the lock files of these files have no living owner.
        """
        with locked(self.path / "perdure.lock") as held:
            for stale in ("packed-refs.lock", "config.lock", "HEAD.lock"):
                (self.path / stale).unlink(missing_ok=True)
            yield held

    def fetch(self, branch: str | None = None, heads: Heads | None = None) -> tuple[str, str]:
        """Fetch one branch (None: the remote's default branch) and return its name and commit.

        heads  the remote's branches, where they have just been looked at

        Raises InvalidRequest for a branch that is not there, ForgeRefused, ForgeUnavailable.
        """
        heads = heads or remote_heads(self.url, self.keys)
        name = branch or heads.default
        if name is None:
            raise InvalidRequest("base: the repository's HEAD names no branch", where=redact(self.url), fix="name one")
        if name not in heads.branches:
            raise InvalidRequest(f"base: there is no branch {name}", where=redact(self.url))
        sha = self.fetch_branch(name)
        if sha is None:
            raise InvalidRequest(f"base: there is no branch {name} any more", where=redact(self.url))
        return name, sha

    def fetch_branch(self, name: str) -> str | None:
        """Fetch an existing branch into `refs/remotes/origin/…` and return its commit; None when it does not exist."""
        if not self.is_ref_name(f"refs/heads/{name}"):
            return None
        with locked(self.path / "perdure-fetch.lock") as held:  # its own: a slow line must not stop other workspaces
            try:
                try:
                    self._fetch(name, held)
                except GitError as error:
                    if "cannot lock ref" in error.stderr:
                        self._make_room(name)
                        self._fetch(name, held)
                    elif "did not send all necessary objects" in error.stderr:
                        # Its check of everything reachable met a worktree that was just being made or removed.
                        with self.lock() as metadata:
                            self._fetch(name, held, metadata)
                    else:
                        raise
            except GitError as error:
                if "couldn't find remote ref" in error.stderr:
                    return None
                raise remote_failure(self.url, error, self.keys.credential(self.url)) from error
            return self.read_ref(_tracking(name))

    def _fetch(self, name: str, *held: int) -> None:
        self.remove_stale_locks(_tracking(name))
        refspec = f"+refs/heads/{name}:{_tracking(name)}"
        credential = self.keys.credential(self.url)
        self.git.owner().run("fetch", *_ONLY_THE_BRANCH, "--", self.url, refspec, hold=held, credential=credential)

    def _make_room(self, name: str) -> None:
        """Forget remembered branches that cannot exist beside this one: `a` was deleted, `a/b` is new."""
        parents = [name[:at] for at, character in enumerate(name) if character == "/"]
        with self.lock():  # deleting is what writes packed-refs
            for ref in [*map(_tracking, parents), *self.refs(f"{_tracking(name)}/")]:
                self.remove_stale_locks(ref)  # who fetches is alone
                if self.read_ref(ref):
                    self.delete_ref(ref)

    def put_artifact(self, delivery: str, data: bytes) -> str:
        """Keep bytes for as long as the delivery and return their SHA-256 in hex. Putting them twice is fine."""
        sha256 = hashlib.sha256(data).hexdigest()
        ref, blob = ids.artifact_ref(delivery, sha256), self.objects.blob(data)
        for attempt in range(3):
            try:
                self.git.run("update-ref", ref, blob)
                break
            except GitError:
                if self.read_ref(ref) == blob:
                    break
                if attempt == 2:
                    raise
                self.remove_stale_locks(ref)  # git itself has waited 1 s for a living writer of the same bytes
        return sha256

    def share_artifacts(self, origin: str, delivery: str) -> None:
        """Keep what was written for one delivery for another, too. Safe to repeat."""
        for ref, blob in self.refs(ids.artifact_ref(origin, "")).items():
            with suppress(RefMoved):
                self.move_ref(ids.artifact_ref(delivery, ref.rpartition("/")[2]), blob, None)

    def get_artifact(self, delivery: str, sha256: str) -> bytes:
        """The bytes behind a hash. Raises WorkspaceLost when they are missing or damaged."""
        ref = ids.artifact_ref(delivery, sha256)
        blob = self.loose.ref(ref)
        data = self.loose.content("blob", blob) if blob else None
        try:
            if data is None:
                data = self.git.run("cat-file", "blob", ref).stdout
        except GitError as error:
            raise WorkspaceLost(f"artifact {sha256[:12]} is not in the vault", where=str(self.path)) from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise WorkspaceLost(f"artifact {sha256[:12]} is damaged", where=str(self.path))
        return data

    def repack(self, *, together: bool = False) -> None:
        """Pack loose objects and refs, removing nothing that is not packed. `together`: all packs into one."""
        all_of_it = ("-a", "--keep-unreachable") if together else ()
        with self.lock() as held:
            self.git.run("repack", "-d", "--quiet", *all_of_it, hold=(held,))
            self.git.run("pack-refs", "--all", hold=(held,))

    def pack_when_it_pays(self, loose: int = LOOSE_MOST, packs: int = PACKS_MOST) -> bool:
        """Pack a vault with more loose objects or packs than that: True when it was done."""
        counted = dict(line.split(": ", 1) for line in self.git.text("count-objects", "-v").splitlines())
        many = int(counted["packs"]) > packs
        if int(counted["count"]) <= loose and not many:
            return False
        self.repack(together=many)
        return True


def _tracking(branch: str) -> str:
    return f"refs/remotes/origin/{branch}"


def _create(path: Path, url: str) -> None:
    """Make the repository beside its place and move it there whole."""
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=path.parent))
    try:
        Git(cwd=fresh).run("init", "--quiet", "--bare", "--template=", "--initial-branch=none", str(fresh))
        (fresh / "info").mkdir()
        for name, text in (("HEAD", "ref: refs/heads/none\n"), ("config", _CONFIG), ("description", f"{url}\n")):
            write_whole(fresh / name, text.encode(), mode=0o644)  # git syncs none of them, nor what they lie in
        os.replace(fresh, path)
        sync_directory(path.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
