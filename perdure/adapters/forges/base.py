"""The one interface behind which pull requests are opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from perdure.models.result import PullRequest


@dataclass(frozen=True)
class Proposal:
    """A pull request to be: `head` and `base` are branch names on the forge, `head_sha` what `head` points at."""

    delivery: str
    title: str
    body: str
    head: str
    head_sha: str
    base: str
    draft: bool = False


class Forge(Protocol):
    """Sync: called from a thread. Errors: ForgeRefused (final), ForgeUnavailable (try again)."""

    def find(self, head: str) -> PullRequest | None:
        """The open pull request of a head branch, the oldest when there are several."""
        ...

    def create(self, proposal: Proposal) -> PullRequest:
        """Open one; finding one for the same head first means returning (and updating) that one instead."""
        ...
