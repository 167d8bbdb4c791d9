"""Two deliveries side by side: their changes, verdicts, cost and turns; pure functions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from perdure.models.base import Published
from perdure.models.result import PullRequest, ReviewResult, TestsResult


class FileChanged(Published):
    """One file of a change. `sha256`: of its part of the patch, so that the same change is known again."""

    added: int
    deleted: int
    sha256: str


class ComparedFile(Published):
    """A file that one of two changes, or both, are about; null: this one leaves it as it is."""

    path: str
    left: FileChanged | None
    right: FileChanged | None
    same: bool


class Side(Published):
    """One of the two.

    added, deleted   lines of the whole change; cut: its patch is too long, later files are missing
    cost_usd         its own; null: not known; inherited_usd, inherited_turns: of the delivery that it was forked from
    turns            its own, those among them that a rewind has left behind
    forked_from      `night at implement:4`; empty: it is no fork
    """

    delivery_id: str
    status: str
    reason: str
    message: str
    repository: str
    base_sha: str
    branch: str
    head_sha: str
    pull_request: PullRequest | None
    files: dict[str, FileChanged]
    added: int
    deleted: int
    cut: bool
    tests: TestsResult
    review: ReviewResult
    cost_usd: float | None
    tokens: int
    turns: int
    seconds: float
    worker_deaths: int
    forked_from: str
    inherited_turns: int
    inherited_usd: float | None


class Comparison(Published):
    """Both, and what they have to do with each other.

    files     of both changes, by path
    same      they change the same files in the same way
    related   in words; empty: they have nothing to do with each other
    differ    why they can hardly be compared: other repositories, other bases
    cost_usd  of both together: what one inherits from the other is paid, and counted, once
    """

    left: Side
    right: Side
    files: tuple[ComparedFile, ...]
    same: bool
    related: str
    differ: tuple[str, ...]
    cost_usd: float | None


def changes_of(patch: str) -> dict[str, FileChanged]:
    """The files of a patch as git writes it; a binary one has no lines."""
    parts: dict[str, list[str]] = {}
    name = ""
    for line in patch.splitlines():
        if line.startswith("diff --git "):
            name = line.rpartition(" b/")[2].strip('"')
            parts[name] = []
        elif name:
            parts[name].append(line)
    return {name: _changed(lines) for name, lines in parts.items()}


def _changed(lines: list[str]) -> FileChanged:
    first = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    hunks = lines[first:]
    said = "\n".join(hunks or lines)  # of a binary file, the hashes of what it was and is
    return FileChanged(
        added=sum(line.startswith("+") for line in hunks),
        deleted=sum(line.startswith("-") for line in hunks),
        sha256=hashlib.sha256(said.encode()).hexdigest(),
    )


def compared(left: Side, right: Side) -> Comparison:
    """Put two sides beside each other."""
    files = tuple(_beside(path, left.files, right.files) for path in sorted({*left.files, *right.files}))
    differ = ["they are of different repositories"] if left.repository != right.repository else []
    differ += ["they began on different commits"] if not differ and left.base_sha != right.base_sha else []
    costs = left.cost_usd, right.cost_usd
    return Comparison(
        left=left,
        right=right,
        files=files,
        same=bool(files) and not (left.cut or right.cut) and all(one.same for one in files),
        related=_related(left, right) or _related(right, left),
        differ=tuple(differ),
        cost_usd=None if None in costs else round(sum(cost or 0.0 for cost in costs), 6),
    )


def _beside(path: str, left: Mapping[str, FileChanged], right: Mapping[str, FileChanged]) -> ComparedFile:
    one, other = left.get(path), right.get(path)
    return ComparedFile(path=path, left=one, right=other, same=one is not None and one == other)


def _related(one: Side, other: Side) -> str:
    if other.forked_from.startswith(f"{one.delivery_id} at "):
        return f"{other.delivery_id} is forked from {other.forked_from}"
    if one.forked_from and one.forked_from == other.forked_from:
        return f"both are forked from {one.forked_from}"
    parent = other.delivery_id.rpartition("/attempt-")[0]
    if parent and parent in (one.delivery_id, one.delivery_id.rpartition("/attempt-")[0]):
        return f"attempts of {parent}" if one.delivery_id != parent else f"{other.delivery_id} is an attempt of it"
    return ""
