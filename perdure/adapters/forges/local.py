"""Pull requests in a bare repository, for origins that are a path or `file://`.

`refs/pull/<n>/head` is the proposed commit; `refs/pull/<n>/record` a commit whose tree holds pull.json (number, title,
head, base, state, draft, delivery, beside), body.md and the pictures that it shows. Take one with
`git fetch <path> refs/pull/<n>/head`.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perdure.adapters.forges.base import Opened, Proposal, Pulled
from perdure.adapters.forges.parts import beside_others
from perdure.adapters.git.command import GitError
from perdure.adapters.git.foreign_repository import find_repository
from perdure.adapters.git.locks import LockBusy, hold_lock
from perdure.adapters.git.object_store import ObjectStore, TreeEntry
from perdure.adapters.git.refusals import main_line
from perdure.adapters.git.repository import ABSENT, Repository
from perdure.models.base import PublishedModel
from perdure.models.errors import BadInput, ForgeRefused, ForgeUnavailable
from perdure.models.result import PullRequest

_LOCK_TIMEOUT_S = 30.0

_PULLS_REMEMBERED = 1_000
"""Records that a process keeps: a commit never changes, and each delivery looks through all of them."""


class LocalPull(PublishedModel):
    """A pull request as it is stored in pull.json; `state` there is `open` or `closed`. `beside`: others of ours that
    have a part in its text, as well as `delivery`."""

    number: int
    title: str
    head: str
    base: str
    state: str = "open"
    draft: bool = False
    delivery: str = ""
    beside: tuple[str, ...] = ()

    @property
    def deliveries(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.delivery, *self.beside)))


@dataclass(frozen=True)
class PullDetails:
    """The answer of `show`. `state` is open, merged (the head is in the base) or closed; `take` a command to paste."""

    pull: LocalPull
    state: str
    url: str
    head_sha: str
    body: str
    take: str


class LocalForge:
    """The forge of a local repository. Errors: ForgeRefused, ForgeUnavailable (the path is not there)."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(url)

    def find(self, head: str) -> PullRequest | None:
        """The open pull request of a head branch, the oldest when there are several."""
        found = self._open_of(self._repository(), head)
        return self._published(found) if found else None

    def of_branch(self, head: str, delivery: str) -> Sequence[Pulled]:
        """All pull requests of a head branch in whatever state, by number."""
        repository = self._repository()
        return [
            Pulled(
                number=pull.number,
                state=_state(repository, pull),
                head_sha=repository.read_ref(_head(pull.number)) or "",
                ours=delivery in pull.deliveries,
                base=pull.base,
            )
            for pull in _pulls(repository)
            if pull.head == head
        ]

    def open_ours(self, but: str, most: int) -> int:
        repository = self._repository()
        others = (pull for pull in reversed(_pulls(repository)) if pull.deliveries and but not in pull.deliveries)
        ours = (pull for pull in others if _state(repository, pull) == "open")
        return sum(1 for _ in islice(ours, most))

    def retarget(self, number: int, base: str) -> None:
        """Write its record anew; its text and commit stay."""
        repository = self._repository()
        if repository.read_ref(f"refs/heads/{base}") is None:
            raise ForgeRefused(f"the base branch {base} is not there", where=str(self._path))
        with self._alone(repository) as held:
            pull = _read(repository, number)
            if pull.base != base and _state(repository, pull) == "open":
                self._record(repository, pull.model_copy(update={"base": base}), {}, held)

    def reopen(self, number: int) -> None:
        """Write its record anew; its text and commit stay."""
        repository = self._repository()
        with self._alone(repository) as held:
            pull = _read(repository, number)
            if pull.state == "closed":
                self._record(repository, pull.model_copy(update={"state": "open"}), {}, held)

    def create(self, proposal: Proposal) -> Opened:
        """Open one, or bring the open one of this head up to date. Safe with any number of callers at once."""
        repository = self._repository()
        if not repository.has_commit(proposal.head_sha) or repository.read_ref(f"refs/heads/{proposal.head}") is None:
            raise ForgeRefused(f"the branch {proposal.head} is not there", where=str(self._path), fix="push it first")
        if repository.read_ref(f"refs/heads/{proposal.base}") is None:
            raise ForgeRefused(f"the base branch {proposal.base} is not there", where=str(self._path))
        with self._alone(repository) as held:
            existing = self._open_of(repository, proposal.head)
            number = existing.number if existing else max(_records(repository), default=0) + 1
            owner, beside = proposal.delivery, tuple[str, ...]()
            if existing and proposal.shares:
                owner = existing.delivery or owner
                beside = tuple(dict.fromkeys((*existing.beside, *({proposal.delivery} - {owner}))))
                there = (repository.read_file(_record(number), "body.md") or b"").decode(errors="replace")
                proposal = beside_others(proposal, existing.title, there)
            pull = LocalPull(
                number=number,
                title=proposal.title,
                head=proposal.head,
                base=proposal.base,
                draft=proposal.draft,
                delivery=owner,
                beside=beside,
            )
            self._write(repository, pull, proposal, held)
        return Opened(self._published(pull))

    def check(self, base: str, *, empty: bool = False) -> None:
        """Look if a branch could be pushed here and a pull request opened. ForgeRefused names what is missing.

        `empty`: the repository has no commit, and its base branch is ours to begin.
        """
        repository = self._repository()
        for place in (repository.path, repository.path / "objects", repository.path / "refs"):
            if not os.access(place, os.W_OK | os.X_OK):
                fix = "let this user write there, or deliver to a repository that it may write to"
                raise ForgeRefused("the repository may not be written to", where=str(place), fix=fix)
        if not empty and repository.read_ref(f"refs/heads/{base}") is None:
            raise ForgeRefused(f"the base branch {base} is not there", where=str(self._path))

    def list(self) -> list[tuple[PullRequest, str]]:
        """All pull requests by number, with their states."""
        repository = self._repository()
        return [(self._published(pull), _state(repository, pull)) for pull in _pulls(repository)]

    def show(self, number: int) -> PullDetails:
        """Raises ForgeRefused when there is no such pull request."""
        repository = self._repository()
        pull = _read(repository, number)
        return PullDetails(
            pull=pull,
            state=_state(repository, pull),
            url=self._published(pull).url,
            head_sha=repository.read_ref(_head(number)) or "",
            body=(repository.read_file(_record(number), "body.md") or b"").decode(errors="replace"),
            take=f"git fetch {self._path} {_head(number)} && git checkout FETCH_HEAD",
        )

    def _repository(self) -> Repository:
        try:
            return Repository(
                find_repository(self._path).git_dir
            )  # of a linked worktree, the one that has branches and objects
        except BadInput as error:
            raise ForgeRefused(error.what, where=error.where, fix=error.fix) from error
        except (GitError, OSError) as error:
            raise ForgeUnavailable("the repository is not there", where=str(self._path)) from error

    @contextmanager
    def _alone(self, repository: Repository) -> Iterator[int]:
        """Look and create without anybody between: one pull request a head, one number a pull request."""
        try:
            with hold_lock(repository.path / "perdure-pulls.lock", _LOCK_TIMEOUT_S) as held:
                yield held
        except LockBusy as error:
            raise ForgeUnavailable(error.what, where=error.where) from error
        except PermissionError as error:
            raise ForgeRefused("the repository may not be written to", where=str(self._path)) from error

    def _open_of(self, repository: Repository, head: str) -> LocalPull | None:
        of_head = (pull for pull in _pulls(repository) if pull.head == head)
        return next((pull for pull in of_head if _state(repository, pull) == "open"), None)

    def _write(self, repository: Repository, pull: LocalPull, proposal: Proposal, held: int) -> None:
        """The record and the head in one transaction, each only if it is where it was seen."""
        head_before = repository.read_ref(_head(pull.number))
        head = f"update {_head(pull.number)} {proposal.head_sha} {head_before or ABSENT}"
        contents = {**proposal.beside, "body.md": proposal.body.encode(errors="replace")}
        self._record(repository, pull, contents, held, head)

    def _record(
        self, repository: Repository, pull: LocalPull, contents: Mapping[str, bytes], held: int, head: str = ""
    ) -> None:
        """Write a record. Without contents it keeps those that it has; `head`: how its commit moves with it."""
        objects, before = ObjectStore(repository.path / "objects"), repository.read_ref(_record(pull.number))
        files = {name: objects.write_blob(data) for name, data in contents.items()}
        if not contents and before:
            listed = repository.git.text("ls-tree", "-z", before).split("\0")[:-1]
            files = {name: entry.split()[2] for entry, _, name in (line.partition("\t") for line in listed)}
        files["pull.json"] = objects.write_blob((pull.model_dump_json(indent=1) + "\n").encode())
        tree = objects.write_tree(TreeEntry(name, sha) for name, sha in files.items())
        record = objects.write_commit(tree, [before] if before else [], f"pull request {pull.number}: {pull.title}")
        moves = [*([head] if head else []), f"update {_record(pull.number)} {record} {before or ABSENT}"]
        for ref in (_head(pull.number), _record(pull.number)):
            repository.remove_stale_locks(ref)  # alone here: whoever made one is dead
        try:
            repository.git.execute("update-ref", "--stdin", stdin=("\n".join(moves) + "\n").encode(), lock_fds=(held,))
        except GitError as error:
            raise ForgeUnavailable(
                f"the pull request could not be written: {main_line(error.stderr)}", where=str(self._path)
            ) from error

    def _published(self, pull: LocalPull) -> PullRequest:
        return PullRequest(
            number=pull.number, url=f"{self._path}#pull/{pull.number}", title=pull.title, draft=pull.draft
        )


def _head(number: int | str) -> str:
    return f"refs/pull/{number}/head"


def _record(number: int | str) -> str:
    return f"refs/pull/{number}/record"


def _records(repository: Repository) -> dict[int, str]:
    """The commits of all records, by the numbers of their pull requests."""
    refs = repository.refs("refs/pull/")
    return {int(ref.split("/")[2]): commit for ref, commit in refs.items() if re.fullmatch(_record(r"\d+"), ref)}


def _pulls(repository: Repository) -> list[LocalPull]:
    """All pull requests by number."""
    return [_stored(repository, number, commit) for number, commit in sorted(_records(repository).items())]


def _read(repository: Repository, number: int) -> LocalPull:
    return _stored(repository, number, repository.read_ref(_record(number)) or ABSENT)


@functools.lru_cache(_PULLS_REMEMBERED)
def _stored(repository: Repository, number: int, commit: str) -> LocalPull:
    stored = repository.read_file(commit, "pull.json")
    if stored is None:
        raise ForgeRefused(
            f"there is no pull request {number}", where=str(repository.path), fix="perdure pulls shows all"
        )
    return LocalPull.model_validate(json.loads(stored))


def _state(repository: Repository, pull: LocalPull) -> str:
    if pull.state != "open":
        return pull.state
    base = repository.read_ref(f"refs/heads/{pull.base}")
    return "merged" if base and repository.is_ancestor(_head(pull.number), base) else "open"
