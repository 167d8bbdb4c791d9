"""The integration branch of a backlog: whether items may be landed on it, its first push, and which items are on it.
Also copies of commits of one line on top of another commit, with authors, dates, messages and trailers kept. Used by
the activities of backlogs; how one item lands is in `git.landing`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.adapters.git.command import redact
from perdure.adapters.git.landing import merge_change_onto
from perdure.adapters.git.publish import conflicting_branch, is_branch_name, push_commit
from perdure.adapters.git.remote import Heads, remote_heads
from perdure.adapters.git.vault import Vault
from perdure.models.errors import ForgeRefused, InvalidRequest
from perdure.models.limits import NAME_CHARS
from perdure.text import escape_path, shorten

_ISSUE_NUMBER = re.compile(r"[0-9]{1,10}")

BACKLOG_TRAILER, ITEM_TRAILER, ISSUE_TRAILER = "Perdure-Backlog", "Perdure-Item", "Perdure-Issue"


@dataclass(frozen=True)
class IntegrationBranch:
    """The branch on which a backlog's items land, and the base branch that it begins at.

    `is_requested`: somebody asked for this very branch. It may then be used by others as well, and what is on it stays.
    """

    vault: Vault
    backlog: str
    branch: str
    is_requested: bool
    base: str
    base_sha: str

    def check_usable(self, heads: Heads) -> bool:
        """Return True where the branch exists on the remote and items may be landed on it, False where it has to be
        made. Fetches an existing branch; pushes nothing.

        Raises InvalidRequest where its name is none, it is the base or default branch, another branch's name is in its
        way, it shares no commit with the base, or it holds commits of others that nobody asked for. Raises ForgeRefused
        or ForgeUnavailable when it cannot be fetched.
        """
        shown, where = shorten(self.branch, NAME_CHARS), redact(self.vault.url)
        if not is_branch_name(self.vault, self.branch):
            raise InvalidRequest(f"branch: {shown!r} cannot be a branch's name", where=where)
        if self.branch in (self.base, heads.default):
            kind = "base" if self.branch == self.base else "default"
            what = f"branch: {shown} is the {kind} branch: nobody lands there"
            raise InvalidRequest(
                what, where=where, fix="name another one, or leave it out for one of the backlog's own"
            )
        if other := conflicting_branch(heads.branches, self.branch):
            what = f"branch: the remote has a branch {other}, so that {shown} cannot exist beside it"
            raise InvalidRequest(what, where=where, fix="name another one")
        if self.branch not in heads.branches:
            return False
        tip = self.vault.fetch_branch(self.branch)
        if tip is None:
            return False
        if problem := self._landing_problem(tip):
            raise InvalidRequest(f"branch: {problem}", where=where, fix=self._how_to_fix())
        return True

    def ensure_on_remote(self, heads: Heads) -> None:
        """Push the branch to the remote, at the base's commit, unless it is there already. Safe to repeat, and for
        several at once: one who loses the race finds the branch there.

        Raises InvalidRequest where nothing may be landed on a branch of that name (see `check_usable`); ForgeRefused
        when the remote does not take it, ForgeUnavailable when it does not answer.
        """
        if self.check_usable(heads):
            return
        try:
            push_commit(self.vault, self.vault.url, self.base_sha, self.branch, None)
        except ForgeRefused:
            if not self.check_usable(remote_heads(self.vault.url, self.vault.keys)):
                raise

    def _landing_problem(self, tip: str) -> str:
        """Return the reason why nothing can be landed on the existing branch, whose commit is `tip`: it shares no
        commit with the base, or holds commits of others, though nobody asked for this very branch. Empty where landing
        is fine."""
        if self.vault.git.execute("merge-base", "--end-of-options", self.base_sha, tip, ok=(0, 1)).returncode:
            return f"{self.branch} has no commit in common with {self.base}: it could not be merged there"
        log_format = f"--format=of {_value_format(BACKLOG_TRAILER)}"
        others = self.vault.git.text("log", log_format, "--end-of-options", tip, f"^{self.base_sha}").splitlines()
        if self.is_requested or set(others) <= {f"of {self.backlog}"}:
            return ""
        return f"the remote has a branch {self.branch} already, with commits that are not this backlog's ({tip[:12]})"

    def _how_to_fix(self) -> str:
        """Return what a person can do about a branch that cannot be landed on."""
        return f"begin the backlog under another id, or name the branch to land on it as it is: branch: {self.branch}"


_DROPPED_HEADERS = (b"tree", b"parent", b"gpgsig", b"gpgsig-sha256", b"mergetag")
"""Headers of a commit that are not copied: two are written anew, and a signature is over the old ones."""

_MAX_PATHS = 5
"""The most paths in conflict that are named in one line."""


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay. `head` is the last new commit, empty where the replay failed; `problem` then says why, in
    one line."""

    head: str = ""
    commits: int = 0
    problem: str = ""


def replay_commits(vault: Vault, head: str, onto: str, *excluded: str) -> ReplayResult:
    """Write the commits that `head` has, and neither `onto` nor any of `excluded` has, once more on top of `onto`, and
    return the last of the new ones with their number. No ref is moved.

    A merge among them, a commit without a parent, or a conflict ends it: the result then has no head, and a `problem`
    that names the commit. The same commits always give the same new ones. A change that is there already stays as an
    empty commit, because its message names the item.
    """
    exclusions = [f"^{commit}" for commit in (onto, *excluded) if vault.has_commit(commit)]
    listed = vault.git.text("log", "--reverse", "--topo-order", "--format=%H %P", "--end-of-options", head, *exclusions)
    lines = [line.split() for line in listed.splitlines()]
    tip = onto
    for commit, *parents in lines:
        if len(parents) != 1:
            kind = "a merge" if parents else "another beginning"
            return ReplayResult(problem=f"{_describe_commit(vault, commit)} is {kind}, and it is one line of commits")
        merged = merge_change_onto(vault, parents[0], tip, commit)
        if merged.conflicts:
            more = f" and {len(merged.conflicts) - _MAX_PATHS} more" if len(merged.conflicts) > _MAX_PATHS else ""
            paths = ", ".join(escape_path(path) for path in merged.conflicts[:_MAX_PATHS])
            return ReplayResult(problem=f"{_describe_commit(vault, commit)} conflicts in {shorten(paths, 300)}{more}")
        tip = _copy_commit(vault, commit, merged.tree, tip)
    return ReplayResult(tip, len(lines))


def _value_format(trailer: str) -> str:
    """Return the part of a format of `git log` that gives a trailer's values in one line, with commas between."""
    return f"%(trailers:key={trailer},valueonly,unfold,separator=%x2C)"


@dataclass(frozen=True)
class LandedCommit:
    """A commit of a backlog on its branch, by its own message. `issue`: the number that it says it is for, or None."""

    commit: str
    item: str
    subject: str
    issue: int | None


def list_landed(vault: Vault, tip: str, base: str, backlog: str) -> list[LandedCommit]:
    """Return the commits of this backlog that `tip` has and `base` has not, the oldest first. Nobody but who may push
    to the branch can have written what they say."""
    trailers = "%x00".join(_value_format(name) for name in (BACKLOG_TRAILER, ITEM_TRAILER, ISSUE_TRAILER))
    output = vault.git.execute(
        "log", "--reverse", "--topo-order", f"--format={trailers}%x00%H%x00%s", "--end-of-options", tip, f"^{base}"
    )
    parts = (line.split("\0", 4) for line in output.lines)
    return [
        LandedCommit(commit, item, subject, int(issue) if _ISSUE_NUMBER.fullmatch(issue) else None)
        for owner, item, issue, commit, subject in parts
        if owner == backlog
    ]


def landed_items(vault: Vault, tip: str, base: str, backlog: str) -> dict[str, str]:
    """Return, by item, the oldest commit for it of this backlog that `tip` has and `base` has not."""
    landed = list_landed(vault, tip, base, backlog)
    return {commit.item: commit.commit for commit in reversed(landed) if commit.item}


def _copy_commit(vault: Vault, commit: str, tree: str, parent: str) -> str:
    """Write a copy of a commit with another tree and parent, and return it. Its message and all headers but
    _DROPPED_HEADERS stay."""
    content = vault.git.execute("cat-file", "commit", commit).stdout
    headers, _, message = content.partition(b"\n\n")
    kept_headers, is_kept = list[bytes](), True
    for line in headers.split(b"\n"):
        is_kept = is_kept if line.startswith(b" ") else line.partition(b" ")[0] not in _DROPPED_HEADERS
        kept_headers += [line] if is_kept else []
    lines = (f"tree {tree}".encode(), f"parent {parent}".encode(), *kept_headers)
    return vault.objects.write_raw_commit(b"\n".join(lines) + b"\n\n" + message)


def _describe_commit(vault: Vault, commit: str) -> str:
    """Return a commit's item, subject and short hash for a message: `page ("feat: show it", 4e5f123)`. Without an item:
    `a commit (…)`."""
    log_format = f"--format={_value_format(ITEM_TRAILER)}%x00%s"
    item, _, subject = vault.git.text("log", "-1", log_format, "--end-of-options", commit).partition("\0")
    return f'{item or "a commit"} ("{shorten(subject, 80)}", {commit[:7]})'
