"""The integration branch of a backlog: its name, whether it may be landed on, and its first push."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.adapters.git.branch import in_the_way, is_branch_name, push
from perdure.adapters.git.door import redact
from perdure.adapters.git.remote import Heads, remote_heads
from perdure.adapters.git.vault import Vault
from perdure.models.errors import ForgeRefused, InvalidRequest
from perdure.models.limits import NAME_CHARS

BACKLOG_TRAILER = "Perdure-Backlog"


@dataclass(frozen=True)
class Integration:
    """`named`: somebody asked for this very branch; it may then be others' as well, and what is on it stays."""

    vault: Vault
    backlog: str
    branch: str
    named: bool
    base: str
    base_sha: str

    def check(self, heads: Heads) -> bool:
        """True where the branch is there and may be landed on, False where it has to be made. InvalidRequest where
        neither can be, before anything is pushed or paid for."""
        shown, where = self.branch[:NAME_CHARS], redact(self.vault.url)
        if not is_branch_name(self.vault, self.branch):
            raise InvalidRequest(f"branch: {shown!r} cannot be a branch's name", where=where)
        if self.branch in (self.base, heads.default):
            kind = "base" if self.branch == self.base else "default"
            what = f"branch: {shown} is the {kind} branch: nobody lands there"
            raise InvalidRequest(
                what, where=where, fix="name another one, or leave it out for one of the backlog's own"
            )
        if other := in_the_way(heads.branches, self.branch):
            what = f"branch: the remote has a branch {other}, so that {shown} cannot exist beside it"
            raise InvalidRequest(what, where=where, fix="name another one")
        if self.branch not in heads.branches:
            return False
        tip = self.vault.fetch_branch(self.branch)
        if tip is None:
            return False
        if problem := self._problem(tip):
            raise InvalidRequest(f"branch: {problem}", where=where, fix=self._fix())
        return True

    def make(self, heads: Heads) -> None:
        """Bring it to the remote, at the base's commit. Safe to repeat, and for several at once.

        Raises InvalidRequest, ForgeRefused, ForgeUnavailable.
        """
        if self.check(heads):
            return
        try:
            push(self.vault, self.vault.url, self.base_sha, self.branch, None)
        except ForgeRefused:
            if not self.check(remote_heads(self.vault.url, self.vault.keys)):
                raise

    def _problem(self, tip: str) -> str:
        """The reason why a branch that is there is not landed on; empty where it is."""
        if self.vault.git.run("merge-base", "--end-of-options", self.base_sha, tip, ok=(0, 1)).returncode:
            return f"{self.branch} has no commit in common with {self.base}: it could not be merged there"
        told = f"--format=of %(trailers:key={BACKLOG_TRAILER},valueonly,separator=%x2C)"
        others = self.vault.git.text("log", told, "--end-of-options", tip, f"^{self.base_sha}").splitlines()
        if self.named or set(others) <= {f"of {self.backlog}"}:
            return ""
        return f"the remote has a branch {self.branch} already, with commits that are not this backlog's ({tip[:12]})"

    def _fix(self) -> str:
        return f"begin the backlog under another id, or name the branch to land on it as it is: branch: {self.branch}"
