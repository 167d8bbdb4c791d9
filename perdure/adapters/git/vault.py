"""Open, fetch into, lock and pack the vault: an engine-owned bare repository, one per target repository and host, that
loses nothing by itself; and keep deliveries' artifacts in it, by their SHA-256.

Refs and objects are read in `repository` and `objects`. For activities, the worker and the adapters, not for the CLI.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from perdure.adapters.git import refs
from perdure.adapters.git.command import Git, GitError, redact
from perdure.adapters.git.credentials import NO_KEYS, Keyring
from perdure.adapters.git.filters import format_filters, transfer_lfs_objects
from perdure.adapters.git.foreign_repository import foreign_git
from perdure.adapters.git.object_journal import restore_objects
from perdure.adapters.git.objects import ObjectStore
from perdure.adapters.git.remote import Heads, remote_failure, remote_heads, remote_tags
from perdure.adapters.git.repository import RefLocked, RefMoved, Repository
from perdure.adapters.system.files import hold_timed_lock, sync_directory, write_whole
from perdure.adapters.system.home import Home
from perdure.models import ids
from perdure.models.errors import InvalidRequest, WorkspaceLost

MAX_LOOSE, MAX_PACKS = 5000, 50
"""The most objects outside packs, and the most packs, that a vault may have at the end of a delivery without being
packed: some hundred turns. Packed objects take a tenth of the disk and are read five times as fast
(benchmarks/README.md)."""


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
# for a person for a month must be there afterwards (packing: Vault.pack_objects).
{BARE}[gc]
	auto = 0
	pruneExpire = never
	worktreePruneExpire = never
[receive]
	autogc = false
[maintenance]
	auto = false
"""


_FETCH_OPTIONS = (
    *("--quiet", "--no-tags", "--no-prune", "--no-recurse-submodules"),
    *("--no-auto-gc", "--no-write-fetch-head"),
)


@dataclass(frozen=True)
class Vault(Repository):
    """The bare repository of the engine for one target repository on this host.

    `path` is the bare repository, `url` where the target repository lives, `keys` what gives access to it there.
    """

    url: str
    keys: Keyring = field(default=NO_KEYS, repr=False, compare=False)

    @classmethod
    def open_or_create(cls, home: Home, url: str, keys: Keyring = NO_KEYS, filters: Iterable[str] = ()) -> Vault:
        """Return the vault of a repository in this home, and create it when it does not exist yet; any number of
        callers at once are fine. Its name is made from the address without credentials.

        filters  of .gitattributes that run in it from now on, and no others: the host's settings name them

        Raises InvalidRequest for a filter that this host has no program for.
        """
        plain = redact(url)
        name = f"{ids.repository_name(plain)}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"
        vault = cls(home.vaults / f"{name}.git", url, keys)
        if not vault.path.exists():
            with hold_timed_lock(home.vaults / f"{name}.lock"):
                if not vault.path.exists():
                    _create_repository(vault.path, plain)
        config = _CONFIG + format_filters(filters)
        if (vault.path / "config").read_text() != config:
            write_whole(vault.path / "config", config.encode(), mode=0o644)
        restore_objects(vault.path)
        return vault

    @classmethod
    def open_existing(cls, path: Path) -> Vault:
        """Return the existing vault at a path, for the address that it was made for, without keys. Raises WorkspaceLost
        when there is none."""
        try:
            vault = cls(path, (path / "description").read_text().strip())
        except OSError as error:
            raise WorkspaceLost("the vault is not on this host", where=str(path)) from error
        restore_objects(path)
        return vault

    def with_keys(self, keys: Keyring) -> Vault:
        """Return the same vault, for talking to the remote with these keys; none of them is written down."""
        return replace(self, keys=keys)

    @property
    def objects(self) -> ObjectStore:
        return ObjectStore(self.path / "objects", journaled=True)

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Hold the lock on the vault's metadata (worktrees, packing, deleted refs) while the block runs, and yield its
        descriptor for `lock_fds=`. Raises LockBusy when it is not free in time.

        Lock files of git about this metadata have no living owner then, and are removed.
        """
        with hold_timed_lock(self.path / "perdure.lock") as lock_fd:
            for stale in ("packed-refs.lock", "config.lock", "HEAD.lock"):
                (self.path / stale).unlink(missing_ok=True)
            yield lock_fd

    def fetch(self, branch: str | None = None, heads: Heads | None = None) -> tuple[str, str]:
        """Fetch one branch from the remote (None: its default branch), and the tags of commits that the vault then has;
        return (the branch's name, its commit).

        heads  the remote's branches, where they have just been fetched

        Raises InvalidRequest for a branch that does not exist, or when there is no default one; ForgeRefused when the
        remote refuses; ForgeUnavailable when it does not answer.
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
        self._fetch_tags()
        return name, sha

    def fetch_checkout(self) -> tuple[str, str]:
        """Fetch what a checkout on this host has as its HEAD, and its tags, and return (the name of its branch; `HEAD`
        where it is on none, its commit); of a shallow one as much history as it has. Raises ForgeRefused where it is
        damaged or lacks files."""
        with hold_timed_lock(self.path / "perdure-fetch.lock") as lock_fd:
            try:
                self._fetch_refs({_tracking_ref("HEAD"): "HEAD"}, lock_fd, options=("--update-shallow",))
            except GitError as error:
                raise remote_failure(self.url, error) from error
        self._fetch_tags()
        commit = self.git.text("rev-parse", _tracking_ref("HEAD"))
        transfer_lfs_objects(self.git, self.url, "fetch", "origin", commit, keys=self.keys)
        branch = foreign_git(Path(self.url)).execute("symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1)).text
        return branch or "HEAD", commit

    def fetch_branch(self, name: str) -> str | None:
        """Fetch a branch into `refs/remotes/origin/…`, and what git-lfs stores for it where that filter runs, and
        return its commit; None when the remote has none of that name, or the name is not allowed. Waits for other
        fetches into this vault.

        Raises ForgeRefused when the remote refuses; ForgeUnavailable when it does not answer.
        """
        if not self.is_ref_name(f"refs/heads/{name}"):
            return None
        with hold_timed_lock(
            self.path / "perdure-fetch.lock"
        ) as lock_fd:  # its own: a slow line must not stop other workspaces
            try:
                try:
                    self._fetch_refs({_tracking_ref(name): f"refs/heads/{name}"}, lock_fd)
                except GitError as error:
                    if "cannot lock ref" in error.stderr:
                        self._delete_conflicting_refs(name)
                        self._fetch_refs({_tracking_ref(name): f"refs/heads/{name}"}, lock_fd)
                    elif "did not send all necessary objects" in error.stderr:
                        # Its check of everything reachable met a worktree that was just being made or removed.
                        with self.lock() as metadata_fd:
                            self._fetch_refs({_tracking_ref(name): f"refs/heads/{name}"}, lock_fd, metadata_fd)
                    else:
                        raise
            except GitError as error:
                if "couldn't find remote ref" in error.stderr:
                    return None
                raise remote_failure(self.url, error, self.keys.credential(self.url)) from error
            if (tip := self.read_ref(_tracking_ref(name))) is not None:
                transfer_lfs_objects(self.git, self.url, "fetch", "origin", tip, keys=self.keys)
            return tip

    def reachable_tags(self, *commits: str) -> dict[str, str]:
        """Return the remote's tags that are reachable from any of these commits, by name, each with its object, as they
        were when a branch was fetched last."""
        names: dict[str, str] = {}
        if not self.list_refs(_TAGS):
            return names
        for commit in dict.fromkeys(commits):
            listed = self.git.text("for-each-ref", "--format=%(objectname) %(refname)", f"--merged={commit}", _TAGS)
            names |= {ref.removeprefix(_TAGS): sha for sha, ref in (line.split(" ", 1) for line in listed.splitlines())}
        return names

    def _fetch_tags(self) -> None:
        """Bring the tags in the vault to what the remote has now: those of commits that are in the vault, for a tag of
        another commit would bring its history. Waits for other fetches into this vault.

        They lie below _TAGS and not in refs/tags, where git would prefer one that is named like a branch. Raises
        ForgeRefused when the remote refuses; ForgeUnavailable when it does not answer.
        """
        listed = remote_tags(self.url, self.keys)
        kinds = self._object_kinds(commit for _, commit in listed.values())
        with hold_timed_lock(self.path / "perdure-fetch.lock") as lock_fd:
            wanted = {_TAGS + name: sha for name, (sha, commit) in listed.items() if kinds[commit] == "commit"}
            known = self.list_refs(_TAGS)
            self._update_refs([f"delete {ref}" for ref in known.keys() - wanted.keys()])
            moved = {ref: sha for ref, sha in wanted.items() if known.get(ref) != sha}
            kinds = self._object_kinds(moved.values())
            self._update_refs([f"update {ref} {sha}" for ref, sha in moved.items() if kinds[sha] != "missing"])
            missing = [ref for ref, sha in moved.items() if kinds[sha] == "missing"]
            try:
                self._fetch_refs({ref: f"refs/tags/{ref.removeprefix(_TAGS)}" for ref in missing}, lock_fd)
            except GitError as error:
                if "couldn't find remote ref" not in error.stderr:  # it was deleted meanwhile: the next fetch knows
                    raise remote_failure(self.url, error, self.keys.credential(self.url)) from error

    def _object_kinds(self, names: Iterable[str]) -> dict[str, str]:
        """Return what each of these objects is in the vault: `commit`, `tag`, …; `missing`: it is not there."""
        stdin = "".join(f"{name}\n" for name in names).encode()
        if not stdin:
            return {}
        lines = self.git.execute("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=stdin).text.splitlines()
        return dict(line.split() for line in lines)

    def _update_refs(self, lines: Iterable[str]) -> None:
        """Change refs by these lines of `update-ref --stdin`, all or none, under the vault's lock, after removing stale
        locks of theirs. Nothing is done without lines."""
        if lines := list(lines):
            with self.lock() as lock_fd:
                for line in lines:
                    self.remove_stale_locks(line.split()[1])
                self.git.execute("update-ref", "--stdin", stdin="\n".join([*lines, ""]).encode(), lock_fds=(lock_fd,))

    def _fetch_refs(self, refs: Mapping[str, str], *lock_fds: int, options: Sequence[str] = ()) -> None:
        """Fetch refs of the remote, each into the vault's ref that is its key, with the owner's git and the keys'
        credential, after removing stale locks of theirs; git inherits the locks in `lock_fds`. Nothing is done without
        refs. The caller holds the lock for fetches. Raises GitError, also where the remote has no complete history."""
        for ref in refs:
            self.remove_stale_locks(ref)
        refspecs = "".join(f"+{source}:{ref}\n" for ref, source in refs.items()).encode()
        command = ("fetch", *_FETCH_OPTIONS, *options, "--stdin", "--", self.url)
        if refs:
            credential = self.keys.credential(self.url)
            done = self.git.for_owner().execute(*command, stdin=refspecs, lock_fds=lock_fds, credential=credential)
            if "shallow roots" in done.stderr:
                raise GitError(command, done.returncode, done.stderr)

    def _delete_conflicting_refs(self, name: str) -> None:
        """Delete the fetched branches that cannot exist beside this one, under the vault's lock: `a` was deleted on the
        remote, `a/b` is new. Stale locks of their refs are removed first."""
        parents = [name[:at] for at, character in enumerate(name) if character == "/"]
        with self.lock():  # deleting is what writes packed-refs
            for ref in [*map(_tracking_ref, parents), *self.list_refs(f"{_tracking_ref(name)}/")]:
                self.remove_stale_locks(ref)  # who fetches is alone
                if self.read_ref(ref):
                    self.delete_ref(ref)

    def put_artifact(self, delivery: str, data: bytes) -> str:
        """Write bytes to the vault, to be kept as long as the delivery, and return their SHA-256 in hex. Writing them
        twice is fine, also by two at once. Raises GitError when their ref cannot be set."""
        sha256 = hashlib.sha256(data).hexdigest()
        ref, blob = ids.artifact_ref(delivery, sha256), self.objects.write_blob(data)
        for attempt in range(3):
            try:
                before = self.read_ref(ref)
                if before != blob and not refs.write_ref(self.path, ref, blob, before):
                    self.git.execute("update-ref", ref, blob)
                break
            except GitError:
                if attempt == 2:
                    raise
                self.remove_stale_locks(ref)  # git itself has waited 1 s for a living writer of the same bytes
        return sha256

    def share_artifacts(self, origin: str, delivery: str) -> None:
        """Keep the artifacts of the delivery `origin` for another delivery, too. Safe to repeat."""
        for ref, blob in self.list_refs(ids.artifact_ref(origin, "")).items():
            with suppress(RefMoved):
                self.move_ref(ids.artifact_ref(delivery, ref.rpartition("/")[2]), blob, None)

    def get_artifact(self, delivery: str, sha256: str) -> bytes:
        """Return the bytes of an artifact by their SHA-256. Raises WorkspaceLost when they are missing or damaged."""
        ref = ids.artifact_ref(delivery, sha256)
        blob = self.loose.read_ref(ref)
        data = self.loose.content("blob", blob) if blob else None
        try:
            if data is None:
                data = self.git.execute("cat-file", "blob", ref).stdout
        except GitError as error:
            raise WorkspaceLost(f"artifact {sha256[:12]} is not in the vault", where=str(self.path)) from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise WorkspaceLost(f"artifact {sha256[:12]} is damaged", where=str(self.path))
        return data

    def pack_objects(self, *, fewer_packs: bool = False) -> None:
        """Write loose objects into packs, and refs into one file, under the vault's lock; no object is dropped.
        `fewer_packs`: make one of so many small packs that each larger one has twice as much as all before it: what a
        delivery costs does not grow with the vault. Raises GitError when git fails."""
        options = ("--geometric=2",) if fewer_packs else ()
        with self.lock() as lock_fd:
            self.git.execute("repack", "-d", "--quiet", *options, lock_fds=(lock_fd,))
            self.git.execute("pack-refs", "--all", lock_fds=(lock_fd,))

    def pack_delivery(self, delivery: str, base: str) -> None:
        """Write the loose objects that an ended delivery's refs reach, and its base does not, into one pack, and remove
        their own files, under the vault's lock: a block of the disk for each object is ten times what is in it. Raises
        GitError when git fails; nothing is lost then."""
        folders = (f"refs/perdure/{delivery}/", ids.artifact_ref(delivery, ""))
        tips = {tip for folder in folders for tip in self.list_refs(folder).values()}
        branch = self.read_ref(f"refs/heads/{ids.branch_name(delivery)}")
        revisions = "".join(f"{name}\n" for name in (*sorted(tips), *((branch,) if branch else ()), f"^{base}"))
        packs = self.path / "objects" / "pack"
        options = ("--revs", "--unpacked", "--non-empty", "--delta-base-offset", "--quiet")
        with self.lock() as lock_fd:
            self.git.execute(
                "pack-objects", *options, str(packs / "pack"), stdin=revisions.encode(), lock_fds=(lock_fd,)
            )
            sync_directory(packs)
            self.git.execute("prune-packed", "--quiet", lock_fds=(lock_fd,))

    def pack_if_large(self, max_loose: int = MAX_LOOSE, max_packs: int = MAX_PACKS) -> bool:
        """Pack the objects of a vault that has more loose ones or packs than that, and return True; return False where
        it is smaller. Of too many packs small ones become one."""
        has_many_packs = len(list(self.path.glob("objects/pack/*.pack"))) > max_packs
        if not has_many_packs and sum(1 for _ in self.path.glob("objects/[0-9a-f][0-9a-f]/*")) <= max_loose:
            return False
        self.pack_objects(fewer_packs=has_many_packs)
        return True


_TAGS = "refs/origin/tags/"


def _tracking_ref(branch: str) -> str:
    """Return the ref under which the vault has a fetched branch of the remote."""
    return f"refs/remotes/origin/{branch}"


def _create_repository(path: Path, url: str) -> None:
    """Create the vault's bare repository in a temporary directory and rename it to `path` when it is whole and synced.
    On an error nothing is left."""
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=path.parent))
    try:
        Git(cwd=fresh).execute("init", "--quiet", "--bare", "--template=", "--initial-branch=none", str(fresh))
        (fresh / "info").mkdir()
        for name, text in (("HEAD", "ref: refs/heads/none\n"), ("config", _CONFIG), ("description", f"{url}\n")):
            write_whole(fresh / name, text.encode(), mode=0o644)  # git syncs none of them, nor what they lie in
        os.replace(fresh, path)
        sync_directory(path.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
