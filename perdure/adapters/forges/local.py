"""Pull requests in a bare repository, for origins that are a path or `file://`: a forge without a server or issues,
whose pull requests `perdure pulls` shows.

`refs/pull/<n>/head` is the proposed commit. `refs/pull/<n>/record` is a commit whose tree holds pull.json (number,
title, head, base, state, draft, delivery, beside), body.md and the pictures that it shows. Take a pull request with
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

from perdure.adapters.forges.base import Proposal, ProposedPullRequest, PullRequestSnapshot
from perdure.adapters.forges.body import merge_part
from perdure.adapters.git.command import GitError
from perdure.adapters.git.credentials import main_line
from perdure.adapters.git.foreign_repository import find_repository
from perdure.adapters.git.objects import ObjectStore, TreeEntry
from perdure.adapters.git.repository import ABSENT, Repository
from perdure.adapters.system.files import LockBusy, hold_timed_lock
from perdure.models.base import PublishedModel
from perdure.models.delivery.result import PullRequest
from perdure.models.errors import BadInput, ForgeRefused, ForgeUnavailable
from perdure.text import shell_word

_LOCK_TIMEOUT_S = 30.0

_PULLS_REMEMBERED = 1_000
"""The number of records that a process keeps: a commit never changes, and each delivery looks through all of them."""


class LocalPull(PublishedModel):
    """A pull request as it is stored in pull.json; `state` there is `open` or `closed`. `beside`: other deliveries of
    ours that have a part in its text, as well as `delivery`."""

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
        """Return the ids of all deliveries that have a part in its text."""
        return tuple(filter(None, (self.delivery, *self.beside)))


@dataclass(frozen=True)
class PullDetails:
    """A pull request with everything that is shown of it. `state` is open, merged (the head is in the base) or closed;
    `take`: the command to paste that checks it out."""

    pull: LocalPull
    state: str
    url: str
    head_sha: str
    body: str
    take: str


class LocalForge:
    """The forge of a local repository. Errors: ForgeRefused, ForgeUnavailable (there is no repository at the path)."""

    def __init__(self, url: str) -> None:
        """Set the repository's path, given as such or as a `file://` URL; nothing is looked at yet."""
        parts = urlsplit(url)
        self._path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(url)

    def find_open_pull(self, head: str) -> PullRequest | None:
        """Return the open pull request of a head branch, the oldest when there are several, or None."""
        pull = self._find_open(self._open_repository(), head)
        return self._to_pull_request(pull) if pull else None

    def pulls_of_branch(self, head: str, delivery: str) -> Sequence[PullRequestSnapshot]:
        """Return all pull requests of a head branch in whatever state, by number; those in which `delivery` has a part
        are `ours`. Raises ForgeUnavailable when there is no repository at the path."""
        repository = self._open_repository()
        return [
            PullRequestSnapshot(
                number=pull.number,
                state=_pull_state(repository, pull),
                head_sha=repository.read_ref(_head_ref(pull.number)) or "",
                ours=delivery in pull.deliveries,
                base=pull.base,
            )
            for pull in _read_pulls(repository)
            if pull.head == head
        ]

    def count_open_pulls(self, except_delivery: str, limit: int) -> int:
        """Count the open pull requests that deliveries have made, without those in which `except_delivery` has a part;
        stop counting at `limit`. Raises ForgeUnavailable when there is no repository at the path."""
        repository = self._open_repository()
        others = (
            pull
            for pull in reversed(_read_pulls(repository))
            if pull.deliveries and except_delivery not in pull.deliveries
        )
        ours = (pull for pull in others if _pull_state(repository, pull) == "open")
        return sum(1 for _ in islice(ours, limit))

    def change_base(self, number: int, base: str) -> None:
        """Set the base branch of an open pull request by writing its record anew; its text and commit stay. Does
        nothing when it is not open, or is into that branch already.

        Raises ForgeRefused when there is no such branch or pull request, or the repository may not be written to;
        ForgeUnavailable when there is no repository at the path, or others have its lock for too long.
        """
        repository = self._open_repository()
        if repository.read_ref(f"refs/heads/{base}") is None:
            raise ForgeRefused(f"the base branch {base} is not there", where=str(self._path))
        with self._lock_pulls(repository) as lock_fd:
            pull = _read_pull(repository, number)
            if pull.base != base and _pull_state(repository, pull) == "open":
                self._write_record(repository, pull.model_copy(update={"base": base}), {}, lock_fd)

    def reopen_pull(self, number: int) -> None:
        """Open a closed pull request again by writing its record anew; its text and commit stay. Does nothing when it
        is open or merged.

        Raises ForgeRefused when there is no such pull request, or the repository may not be written to;
        ForgeUnavailable when there is no repository at the path, or others have its lock for too long.
        """
        repository = self._open_repository()
        with self._lock_pulls(repository) as lock_fd:
            pull = _read_pull(repository, number)
            if pull.state == "closed":
                self._write_record(repository, pull.model_copy(update={"state": "open"}), {}, lock_fd)

    def open_or_update_pull(self, proposal: Proposal) -> ProposedPullRequest:
        """Open a pull request, or bring the open one of this head branch up to date, and return it: its record is
        written, and its head ref moved to the proposed commit. A new one gets the next number. Safe with any number of
        callers at once; waits for the lock on pull requests.

        Where the proposal shares a text, an existing pull request stays that of the delivery that opened it, and this
        one's part is merged into its text. Raises ForgeRefused when the head branch, its commit or the base branch does
        not exist, or the repository may not be written to; ForgeUnavailable when there is no repository at the path,
        others have its lock for too long, or git cannot write.
        """
        repository = self._open_repository()
        if not repository.has_commit(proposal.head_sha) or repository.read_ref(f"refs/heads/{proposal.head}") is None:
            raise ForgeRefused(f"the branch {proposal.head} is not there", where=str(self._path), fix="push it first")
        if repository.read_ref(f"refs/heads/{proposal.base}") is None:
            raise ForgeRefused(f"the base branch {proposal.base} is not there", where=str(self._path))
        with self._lock_pulls(repository) as lock_fd:
            existing = self._find_open(repository, proposal.head)
            number = existing.number if existing else max(_record_commits(repository), default=0) + 1
            owner, beside = proposal.delivery, tuple[str, ...]()
            if existing and proposal.shares_body:
                owner = existing.delivery or owner
                beside = tuple(dict.fromkeys((*existing.beside, *({proposal.delivery} - {owner}))))
                existing_body = (repository.read_file(_record_ref(number), "body.md") or b"").decode(errors="replace")
                proposal = merge_part(proposal, existing.title, existing_body)
            pull = LocalPull(
                number=number,
                title=proposal.title,
                head=proposal.head,
                base=proposal.base,
                draft=proposal.draft,
                delivery=owner,
                beside=beside,
            )
            self._write_pull(repository, pull, proposal, lock_fd)
        return ProposedPullRequest(self._to_pull_request(pull))

    def check_access(self, base: str, *, empty: bool = False, existing_branch: str = "") -> None:
        """Check that a branch could be pushed here and a pull request opened; nothing is written.

        empty            the repository has no commit, and its base branch is ours to begin
        existing_branch  a branch that is there, and commits are to be pushed to it; empty: to a new one

        Raises ForgeRefused when this user may not write there, the base branch is missing, or the existing one is
        checked out, rebased or bisected in a working tree; ForgeUnavailable when there is no repository at the path.
        """
        repository = self._open_repository()
        for directory in (repository.path, repository.path / "objects", repository.path / "refs"):
            if not os.access(directory, os.W_OK | os.X_OK):
                fix = "let this user write there, or deliver to a repository that it may write to"
                raise ForgeRefused("the repository may not be written to", where=str(directory), fix=fix)
        if not empty and repository.read_ref(f"refs/heads/{base}") is None:
            raise ForgeRefused(f"the base branch {base} is not there", where=str(self._path))
        if existing_branch:
            _check_not_checked_out(repository, existing_branch)

    def list_pulls(self) -> list[tuple[PullRequest, str]]:
        """List all pull requests by number, each with its state: open, merged or closed."""
        repository = self._open_repository()
        return [(self._to_pull_request(pull), _pull_state(repository, pull)) for pull in _read_pulls(repository)]

    def pull_details(self, number: int) -> PullDetails:
        """Return everything about one pull request, with its state and the command that checks it out. Raises
        ForgeRefused when there is no such number; ForgeUnavailable when there is no repository at the path."""
        repository = self._open_repository()
        pull = _read_pull(repository, number)
        return PullDetails(
            pull=pull,
            state=_pull_state(repository, pull),
            url=self._to_pull_request(pull).url,
            head_sha=repository.read_ref(_head_ref(number)) or "",
            body=(repository.read_file(_record_ref(number), "body.md") or b"").decode(errors="replace"),
            take=f"git fetch {shell_word(self._path)} {_head_ref(number)} && git checkout FETCH_HEAD",
        )

    def _open_repository(self) -> Repository:
        """Open the repository at the path; of a linked worktree, the one that has branches and objects.

        Raises ForgeUnavailable when there is none; ForgeRefused when it is one that we do not work in, such as a bare
        one inside a checkout.
        """
        try:
            return Repository(
                find_repository(self._path).git_dir
            )  # of a linked worktree, the one that has branches and objects
        except BadInput as error:
            raise ForgeRefused(error.what, where=error.where, fix=error.fix) from error
        except (GitError, OSError) as error:
            raise ForgeUnavailable("the repository is not there", where=str(self._path)) from error

    @contextmanager
    def _lock_pulls(self, repository: Repository) -> Iterator[int]:
        """Hold the repository's lock on pull requests during the block, and yield its file descriptor: one pull request
        a head, one number a pull request.

        Raises ForgeUnavailable when somebody else has the lock for _LOCK_TIMEOUT_S, ForgeRefused when the repository
        may not be written to.
        """
        try:
            with hold_timed_lock(repository.path / "perdure-pulls.lock", _LOCK_TIMEOUT_S) as lock_fd:
                yield lock_fd
        except LockBusy as error:
            raise ForgeUnavailable(error.what, where=error.where) from error
        except PermissionError as error:
            raise ForgeRefused("the repository may not be written to", where=str(self._path)) from error

    def _find_open(self, repository: Repository, head: str) -> LocalPull | None:
        """Return the open pull request of a head branch, the oldest when there are several, or None."""
        of_head = (pull for pull in _read_pulls(repository) if pull.head == head)
        return next((pull for pull in of_head if _pull_state(repository, pull) == "open"), None)

    def _write_pull(self, repository: Repository, pull: LocalPull, proposal: Proposal, lock_fd: int) -> None:
        """Write a pull request's record and move its head ref to the proposed commit in one transaction. Each moves
        only if nobody else has moved it meanwhile; needs the lock `lock_fd`.

        Raises ForgeUnavailable when git could not write.
        """
        head_before = repository.read_ref(_head_ref(pull.number))
        head_update = f"update {_head_ref(pull.number)} {proposal.head_sha} {head_before or ABSENT}"
        contents = {**proposal.attachments, "body.md": proposal.body.encode(errors="replace")}
        self._write_record(repository, pull, contents, lock_fd, head_update)

    def _write_record(
        self,
        repository: Repository,
        pull: LocalPull,
        contents: Mapping[str, bytes],
        lock_fd: int,
        head_update: str = "",
    ) -> None:
        """Write a new commit with a pull request's pull.json and files, and move its record ref to it; needs the lock
        `lock_fd`.

        contents     name → bytes; empty: the files of the record until now stay
        head_update  a line for `git update-ref --stdin` that moves the head ref in the same transaction; empty: it
                     stays

        Stale lock files of both refs are removed. Raises ForgeUnavailable when git could not write.
        """
        before = repository.read_ref(_record_ref(pull.number))
        with ObjectStore(repository.path / "objects").write_together() as objects:
            files = {name: objects.write_blob(data) for name, data in contents.items()}
            if not contents and before:
                entries = repository.git.text("ls-tree", "-z", before).split("\0")[:-1]
                files = {name: entry.split()[2] for entry, _, name in (line.partition("\t") for line in entries)}
            files["pull.json"] = objects.write_blob((pull.model_dump_json(indent=1) + "\n").encode())
            tree = objects.write_tree(TreeEntry(name, sha) for name, sha in files.items())
            record = objects.write_commit(tree, [before] if before else [], f"pull request {pull.number}: {pull.title}")
        updates = [
            *([head_update] if head_update else []),
            f"update {_record_ref(pull.number)} {record} {before or ABSENT}",
        ]
        for ref in (_head_ref(pull.number), _record_ref(pull.number)):
            repository.remove_stale_locks(ref)  # nobody else writes here: whoever left a lock is dead
        try:
            repository.git.execute(
                "update-ref", "--stdin", stdin=("\n".join(updates) + "\n").encode(), lock_fds=(lock_fd,)
            )
        except GitError as error:
            raise ForgeUnavailable(
                f"the pull request could not be written: {main_line(error.stderr)}", where=str(self._path)
            ) from error

    def _to_pull_request(self, pull: LocalPull) -> PullRequest:
        """Convert a stored pull request to the model that all forges share, with an address of the form
        `path#pull/3`."""
        return PullRequest(
            number=pull.number, url=f"{self._path}#pull/{pull.number}", title=pull.title, draft=pull.draft
        )


def _head_ref(number: int | str) -> str:
    """Return the ref of a pull request's proposed commit."""
    return f"refs/pull/{number}/head"


def _record_ref(number: int | str) -> str:
    """Return the ref of a pull request's record."""
    return f"refs/pull/{number}/record"


def _record_commits(repository: Repository) -> dict[int, str]:
    """Return the commits of all records, by the numbers of their pull requests."""
    refs = repository.list_refs("refs/pull/")
    return {int(ref.split("/")[2]): commit for ref, commit in refs.items() if re.fullmatch(_record_ref(r"\d+"), ref)}


def _read_pulls(repository: Repository) -> list[LocalPull]:
    """Return all pull requests of a repository by number."""
    return [_load_record(repository, number, commit) for number, commit in sorted(_record_commits(repository).items())]


def _read_pull(repository: Repository, number: int) -> LocalPull:
    """Return the pull request of a number. Raises ForgeRefused when there is none."""
    return _load_record(repository, number, repository.read_ref(_record_ref(number)) or ABSENT)


@functools.lru_cache(_PULLS_REMEMBERED)
def _load_record(repository: Repository, number: int, commit: str) -> LocalPull:
    """Load a pull request from the record at `commit`. Answers are cached. Raises ForgeRefused when there is none."""
    content = repository.read_file(commit, "pull.json")
    if content is None:
        raise ForgeRefused(
            f"there is no pull request {number}", where=str(repository.path), fix="perdure pulls shows all"
        )
    return LocalPull.model_validate(json.loads(content))


def _pull_state(repository: Repository, pull: LocalPull) -> str:
    """Return `merged` when an open pull request's head is in its base branch; else the stored state, open or closed."""
    if pull.state != "open":
        return pull.state
    base = repository.read_ref(f"refs/heads/{pull.base}")
    return "merged" if base and repository.is_ancestor(_head_ref(pull.number), base) else "open"


_PAUSED = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
"""Files of a working tree's git directory that name the branch on which a rebase or a bisection goes on; its HEAD names
none meanwhile."""


def _check_not_checked_out(repository: Repository, branch: str) -> None:
    """Raise ForgeRefused, with the command that helps, where git would refuse a push to the branch because a working
    tree of the repository has it checked out, or is in the middle of a rebase or bisection on it."""
    for entry in repository.git.text("worktree", "list", "--porcelain").split("\n\n"):
        lines = entry.splitlines()
        if f"branch refs/heads/{branch}" in lines:
            place = lines[0].removeprefix("worktree ")
            is_gone = any(line.startswith("prunable") for line in lines)
            fix = f"git -C {shell_word(place)} switch --detach"
            if is_gone:
                fix = f"where that directory is gone for good: git -C {shell_word(repository.path)} worktree prune"
            what = f"branch {branch} is checked out in {place}: nothing can be pushed to it"
            raise ForgeRefused(what, where=place, fix=fix)
    for git_dir in (repository.path, *repository.path.glob("worktrees/*")):
        names = [(git_dir / name).read_text(errors="replace").strip() for name in _PAUSED if (git_dir / name).is_file()]
        if {branch, f"refs/heads/{branch}"} & {*names}:
            link = git_dir / "gitdir"
            place = str(Path(link.read_text().strip() if link.is_file() else git_dir).parent)
            what = f"a rebase or bisection of branch {branch} goes on in {place}: nothing can be pushed to it"
            raise ForgeRefused(what, where=place, fix=f"finish it: git -C {shell_word(place)} status")
