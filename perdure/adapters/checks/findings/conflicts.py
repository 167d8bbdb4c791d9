"""Marks of a conflict that nobody has taken out: both sides are in the file, and whoever runs it finds out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.adapters.checks.findings.leaked import shown
from perdure.adapters.git import patch
from perdure.adapters.git.patch import ChangedPath, Hunk
from perdure.adapters.git.repository import Repository
from perdure.models.report import Finding, Rule, Severity

_BEGINS, _BETWEEN, _ENDS = b"<<<<<<< ", b"=======", b">>>>>>> "


def conflicts(
    repository: Repository, base: str, head: str, changed: Sequence[ChangedPath], binaries: set[str]
) -> list[Finding]:
    """Files to which the change has added all three marks, in their order, each at the beginning of a line."""
    text = [one for one in changed if one.path not in binaries]
    return [
        Finding(
            rule=Rule.CONFLICT,
            severity=Severity.BLOCKER,
            title="marks of a conflict are left",
            description="The lines between them are of two sides that were never brought together.",
            file=shown(path),
            line=line,
            suggestion="Make one of both sides, and take out every mark.",
        )
        for path, hunks in patch.hunks(repository, base, head, text)
        if (line := _begins(hunks)) is not None
    ]


def _begins(hunks: Iterable[Hunk]) -> int | None:
    """The line of the first conflict whose three marks the change has added; what lies between may be older."""
    first: int | None = None
    between = False
    for hunk in hunks:
        if not any(b"+" + mark in hunk.body for mark in (_BEGINS, _BETWEEN, _ENDS)):
            continue
        for line in hunk.lines():
            if not line.added:
                continue
            if line.data.startswith(_BEGINS):
                first, between = line.number, False
            elif first is not None and line.data.rstrip(b"\r") == _BETWEEN:
                between = True
            elif first is not None and between and line.data.startswith(_ENDS):
                return first
    return None
