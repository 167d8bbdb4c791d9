"""Two deliveries side by side, as `perdure compare` shows and publishes them: their changes, verdicts, cost and turns;
pure functions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from perdure.models.base import PublishedModel
from perdure.models.delivery.result import PullRequest, ReviewResult, TestsResult
from perdure.models.patch import FilePatch, read_files
from perdure.text import escape_path


class FileChange(PublishedModel):
    """The change of one file. `sha256`: of its part of the patch, by which two equal changes are recognised."""

    added: int
    deleted: int
    sha256: str


class ComparedFile(PublishedModel):
    """A file that one of two deliveries, or both, change; null: that delivery leaves it as it is."""

    path: str
    left_change: Annotated[FileChange | None, Field(alias="left")]
    right_change: Annotated[FileChange | None, Field(alias="right")]
    same: bool


class ComparedDelivery(PublishedModel):
    """One of the two deliveries.

    added, deleted   lines of the whole change; cut: its patch is too long, later files are missing
    cost_usd         its own; null: not known; inherited_usd, inherited_turns: of the delivery that it was forked from
    turns            its own, with those that a rewind has left behind
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
    files: dict[str, FileChange]
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


class Comparison(PublishedModel):
    """Two deliveries, and what they have to do with each other.

    files     of both changes, by path
    same      they change the same files in the same way
    related   how they are related, in words; empty: they are not
    differ    why they can hardly be compared: other repositories, other bases
    cost_usd  of both together: what one inherits from the other is paid, and counted, once
    """

    left_delivery: Annotated[ComparedDelivery, Field(alias="left")]
    right_delivery: Annotated[ComparedDelivery, Field(alias="right")]
    files: tuple[ComparedFile, ...]
    same: bool
    related: str
    differ: tuple[str, ...]
    cost_usd: float | None


def parse_patch(patch: str) -> dict[str, FileChange]:
    """Return the change of each file of a patch as git writes it, by path as people read it (the new one of a renamed
    file); a binary file has 0 lines added and deleted."""
    return {escape_path(file.path): _file_change(file) for file in read_files(patch.encode(errors="replace"))}


def _file_change(file: FilePatch) -> FileChange:
    """Return how many lines a patch adds to a file and deletes, and the SHA-256 of its hunks, without any that of its
    head."""
    added, deleted = file.count_lines()
    # A binary file has no hunks: its index line holds the hashes before and after.
    content = b"".join(hunk.place + hunk.body for hunk in file.hunks) or file.head
    return FileChange(added=added, deleted=deleted, sha256=hashlib.sha256(content).hexdigest())


def compare_deliveries(left_delivery: ComparedDelivery, right_delivery: ComparedDelivery) -> Comparison:
    """Return the comparison of two deliveries, file by file.

    `same` is false when neither changes a file or a patch was cut; the cost is None when that of one is not known.
    """
    files = tuple(
        _compare_file(path, left_delivery.files, right_delivery.files)
        for path in sorted({*left_delivery.files, *right_delivery.files})
    )
    differ = ["they are of different repositories"] if left_delivery.repository != right_delivery.repository else []
    differ += (
        ["they began on different commits"] if not differ and left_delivery.base_sha != right_delivery.base_sha else []
    )
    costs = left_delivery.cost_usd, right_delivery.cost_usd
    return Comparison(
        left_delivery=left_delivery,
        right_delivery=right_delivery,
        files=files,
        same=bool(files) and not (left_delivery.cut or right_delivery.cut) and all(file.same for file in files),
        related=_relation_text(left_delivery, right_delivery) or _relation_text(right_delivery, left_delivery),
        differ=tuple(differ),
        cost_usd=None if None in costs else round(sum(cost or 0.0 for cost in costs), 6),
    )


def _compare_file(
    path: str, left_files: Mapping[str, FileChange], right_files: Mapping[str, FileChange]
) -> ComparedFile:
    """Return what each of the two deliveries does with a file."""
    left_change, right_change = left_files.get(path), right_files.get(path)
    return ComparedFile(
        path=path,
        left_change=left_change,
        right_change=right_change,
        same=left_change is not None and left_change == right_change,
    )


def _relation_text(first: ComparedDelivery, second: ComparedDelivery) -> str:
    """Return, in words, how the two are related: the second is forked from the first, both are forks of one turn, or
    attempts at one plan. Empty when none of these holds."""
    if second.forked_from.startswith(f"{first.delivery_id} at "):
        return f"{second.delivery_id} is forked from {second.forked_from}"
    if first.forked_from and first.forked_from == second.forked_from:
        return f"both are forked from {first.forked_from}"
    parent = second.delivery_id.rpartition("/attempt-")[0]
    if parent and parent in (first.delivery_id, first.delivery_id.rpartition("/attempt-")[0]):
        return f"attempts of {parent}" if first.delivery_id != parent else f"{second.delivery_id} is an attempt of it"
    return ""
