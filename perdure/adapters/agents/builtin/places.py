"""A check that the places (file and line) which a review names are in the change it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perdure.models.limits import REVIEW_ISSUES_REPORTED
from perdure.models.report import Review, ReviewIssue
from perdure.text import one_line, shortened

_PATHS_LISTED = 30
_PATH_CHARS = 120


@dataclass(frozen=True)
class ReviewedChange:
    """The files of a change, with the lines of its new side that the diff shows, as ranges (first, last).

    A file with None instead of ranges has no known lines, as one that is too large; one without ranges has no lines, as
    a file that is gone.
    """

    files: Mapping[str, tuple[tuple[int, int], ...] | None]

    def find_path(self, written_path: str) -> str | None:
        """Return the changed file that a path means, also with `./`, `a/` or `b/` before it; None when the change does
        not have it."""
        for path in (
            written_path,
            written_path.removeprefix("./"),
            written_path.removeprefix("a/"),
            written_path.removeprefix("b/"),
        ):
            if path in self.files:
                return path
        return None

    def place_problem(self, issue: ReviewIssue) -> str:
        """Return what is wrong with the place of an issue; empty when it is right. No file, no line, and line 0 are
        never wrong."""
        if not issue.file.strip():
            return ""
        path = self.find_path(issue.file.strip())
        if path is None:
            return "is not in the diff"
        ranges = self.files[path]
        if not issue.line or ranges is None or any(first <= issue.line <= last for first, last in ranges):
            return ""
        if not ranges:
            return "has no lines after the change"
        shown = ", ".join(f"{first}-{last}" for first, last in ranges[:10])
        return f"has no such line in the diff, which shows {shown}{' …' if len(ranges) > 10 else ''}"


def describe_wrong_places(review: Review, change: ReviewedChange) -> list[str]:
    """Return a line for each issue whose place is not in the change, then one with the files that are; empty when all
    are right."""
    lines = [
        f"- {one_line(issue.title, 60)}: {_format_place(issue)} {problem}"
        for issue in review.issues
        if (problem := change.place_problem(issue))
    ]
    if not lines:
        return []
    more = [f"- and {len(lines) - REVIEW_ISSUES_REPORTED} more"] if len(lines) > REVIEW_ISSUES_REPORTED else []
    return [*lines[:REVIEW_ISSUES_REPORTED], *more, f"Files in the diff: {_list_paths(change.files)}."]


def correct_places(review: Review, change: ReviewedChange) -> Review:
    """Return the review with places as the change writes them. An issue keeps its severity whatever its place is: a
    wrong place is dropped, and the description says so."""
    return review.model_copy(update={"issues": [_correct_place(issue, change) for issue in review.issues]})


def _correct_place(issue: ReviewIssue, change: ReviewedChange) -> ReviewIssue:
    """Return an issue with its place as the change writes it; without a place, which its description then tells, where
    it is wrong."""
    if change.place_problem(issue):
        description = f"{issue.description}\n\n(The reviewer named {_format_place(issue)}, which is not in the diff.)"
        return issue.model_copy(update={"file": "", "line": None, "description": description})
    path = change.find_path(issue.file.strip()) or ""
    return issue.model_copy(update={"file": path, "line": (issue.line or None) if path else None})


def _format_place(issue: ReviewIssue) -> str:
    """Return the place that an issue names as `file:line`; "no file" where it names none."""
    path = one_line(issue.file, _PATH_CHARS) or "no file"
    return f"{path}:{issue.line}" if issue.line else path


def _list_paths(paths: Iterable[str]) -> str:
    """Return paths as one text, at most _PATHS_LISTED of them, then how many more there are."""
    names = [shortened(path, _PATH_CHARS) for path in paths]
    more = f" and {len(names) - _PATHS_LISTED} more" if len(names) > _PATHS_LISTED else ""
    return (", ".join(names[:_PATHS_LISTED]) or "none") + more
