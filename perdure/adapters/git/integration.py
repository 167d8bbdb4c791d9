"""The integration branch of a backlog: its name, whether commits may be landed on it, and its first push."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.adapters.git.branch import conflicting_branch, is_branch_name, push_commit
from perdure.adapters.git.command import redact
from perdure.adapters.git.remote import Heads, remote_heads
from perdure.adapters.git.vault import Vault
from perdure.models.errors import ForgeRefused, InvalidRequest
from perdure.models.limits import NAME_CHARS

BACKLOG_TRAILER = "Perdure-Backlog"


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
        """Return True where the branch exists on the remote and may be landed on, False where it has to be made.

        Fetches an existing branch. Raises InvalidRequest where the branch can be neither used nor made, before anything
        is pushed or paid for; ForgeRefused, ForgeUnavailable.
        """
        shown, where = self.branch[:NAME_CHARS], redact(self.vault.url)
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
        several at once.

        Raises InvalidRequest, ForgeRefused, ForgeUnavailable.
        """
        if self.check_usable(heads):
            return
        try:
            push_commit(self.vault, self.vault.url, self.base_sha, self.branch, None)
        except ForgeRefused:
            if not self.check_usable(remote_heads(self.vault.url, self.vault.keys)):
                raise

    def _landing_problem(self, tip: str) -> str:
        """Return the reason why nothing can be landed on the existing branch, whose commit is `tip`; empty where
        landing is fine."""
        if self.vault.git.execute("merge-base", "--end-of-options", self.base_sha, tip, ok=(0, 1)).returncode:
            return f"{self.branch} has no commit in common with {self.base}: it could not be merged there"
        log_format = f"--format=of %(trailers:key={BACKLOG_TRAILER},valueonly,separator=%x2C)"
        others = self.vault.git.text("log", log_format, "--end-of-options", tip, f"^{self.base_sha}").splitlines()
        if self.is_requested or set(others) <= {f"of {self.backlog}"}:
            return ""
        return f"the remote has a branch {self.branch} already, with commits that are not this backlog's ({tip[:12]})"

    def _how_to_fix(self) -> str:
        """Return what a person can do about a branch that cannot be landed on."""
        return f"begin the backlog under another id, or name the branch to land on it as it is: branch: {self.branch}"
