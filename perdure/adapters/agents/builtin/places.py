"""A check that the places a review names are in the change it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perdure.models.limits import REVIEW_ISSUES_TOLD
from perdure.models.report import Issue, Review
from perdure.text import one_line, shortened

_PATHS_TOLD = 30
_CHARS = 120


@dataclass(frozen=True)
class Change:
    """Path → ranges of lines (first, last) of its new side that the diff shows. None: no lines of it are known, as of
    a file that is too large; empty: it has none, as a file that is gone."""

    files: Mapping[str, tuple[tuple[int, int], ...] | None]

    def path(self, named: str) -> str | None:
        """The path of the change that is meant, None when it is not in it."""
        for path in (named, named.removeprefix("./"), named.removeprefix("a/"), named.removeprefix("b/")):
            if path in self.files:
                return path
        return None

    def problem(self, issue: Issue) -> str:
        """Say what is wrong with the place of an issue; empty when it is right. No line, or line 0, is no claim."""
        if not issue.file.strip():
            return ""
        path = self.path(issue.file.strip())
        if path is None:
            return "is not in the diff"
        ranges = self.files[path]
        if not issue.line or ranges is None or any(first <= issue.line <= last for first, last in ranges):
            return ""
        if not ranges:
            return "has no lines after the change"
        shown = ", ".join(f"{first}-{last}" for first, last in ranges[:10])
        return f"has no such line in the diff, which shows {shown}{' …' if len(ranges) > 10 else ''}"


def wrong_places(review: Review, change: Change) -> list[str]:
    """A line for each issue whose place is not in the change, then which files are; empty when all are right."""
    wrong = [
        f"- {one_line(issue.title, 60)}: {_place(issue)} {problem}"
        for issue in review.issues
        if (problem := change.problem(issue))
    ]
    if not wrong:
        return []
    more = [f"- and {len(wrong) - REVIEW_ISSUES_TOLD} more"] if len(wrong) > REVIEW_ISSUES_TOLD else []
    return [*wrong[:REVIEW_ISSUES_TOLD], *more, f"Files in the diff: {_listed(change.files)}."]


def placed(review: Review, change: Change) -> Review:
    """The review with places as the change writes them. An issue keeps its severity whatever its place is: one that is
    wrong is dropped, and the description says so."""
    return review.model_copy(update={"issues": [_placed(issue, change) for issue in review.issues]})


def _placed(issue: Issue, change: Change) -> Issue:
    if change.problem(issue):
        words = f"{issue.description}\n\n(The reviewer named {_place(issue)}, which is not in the diff.)"
        return issue.model_copy(update={"file": "", "line": None, "description": words})
    path = change.path(issue.file.strip()) or ""
    return issue.model_copy(update={"file": path, "line": (issue.line or None) if path else None})


def _place(issue: Issue) -> str:
    path = one_line(issue.file, _CHARS) or "no file"
    return f"{path}:{issue.line}" if issue.line else path


def _listed(paths: Iterable[str]) -> str:
    known = [shortened(path, _CHARS) for path in paths]
    more = f" and {len(known) - _PATHS_TOLD} more" if len(known) > _PATHS_TOLD else ""
    return (", ".join(known[:_PATHS_TOLD]) or "none") + more
