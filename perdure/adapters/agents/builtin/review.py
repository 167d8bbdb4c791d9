"""Checks of a review: the places (file and line) it names are in the change, and each changed promise (a test of the
base that fails on the change) is justified by a quote from the request, or is a blocker. `answers` checks by it; the
turns say what the change and the promises are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from perdure.models.checks.report import Justification, Promise, Review, ReviewIssue, Severity
from perdure.models.checks.verdict_text import label_of
from perdure.models.limits import REVIEW_ISSUES_REPORTED
from perdure.text import one_line, shorten

QUOTE_WORDS = 3
"""Words that a quote from the request has at least: two words stand in any text by accident."""


_ENDS = "\"'`*_.,;:!? "
"""Characters that do not count at the ends of a quote: people put them there, and they do not change its words."""

_WRITTEN = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", ">": " "})
"""Characters that are typed in several forms, and the one form they are compared in; a `>` begins the lines of an issue
as it is shown."""

_QUOTED_CHARS = 200


@dataclass(frozen=True)
class RequestText:
    """A text that says what is wanted. `whole`: all of it may be quoted, though it is shorter than QUOTE_WORDS."""

    text: str
    whole: bool = True


@dataclass(frozen=True)
class ReviewPromises:
    """The changed promises (tests of the base that fail on the change) by name, each of which a review has to answer,
    and the texts in which its quotes have to stand."""

    promises: Mapping[str, Promise]
    request_texts: tuple[RequestText, ...] = ()

    def quote_problem(self, quote: str) -> str:
        """Return the mistake in a quote, as the end of a sentence; empty when it stands in the request, with
        QUOTE_WORDS words or as the whole of a text. An empty quote is no mistake: it says that nothing asks for the
        change."""
        folded_quote = _fold_text(quote)
        if not any(c.isalnum() for c in folded_quote):
            return "has no words" if quote.strip() else ""
        texts = [(request_text, _fold_text(request_text.text)) for request_text in self.request_texts]
        if any(request_text.whole and folded_quote == text for request_text, text in texts):
            return ""
        if _count_words(folded_quote) < QUOTE_WORDS:
            return f"is shorter than {QUOTE_WORDS} words"
        return "" if any(_contains_words(folded_quote, text) for _, text in texts) else "does not stand in the request"


def describe_wrong_answers(review: Review, promises: ReviewPromises) -> list[str]:
    """Return a line for each promise without exactly one answer, and for each answer with a mistake, at most
    REVIEW_ISSUES_REPORTED of them, then one that counts the others; empty: all answers are right."""
    counts, lines = dict.fromkeys(promises.promises, 0), list[str]()
    for answer in review.promises:
        if (label := _match_label(answer, counts)) not in counts:
            lines.append(f"- {_shorten(answer.test) or 'no name'}: no test of that name was shown")
            continue
        counts[label] += 1
        if problem := promises.quote_problem(answer.quote):
            lines.append(f"- {_shorten(label)}: the quote “{_shorten(answer.quote)}” {problem}")
    lines += [f"- {_shorten(label)}: has {number or 'no'} answers" for label, number in counts.items() if number != 1]
    more = [f"- and {len(lines) - REVIEW_ISSUES_REPORTED} more"] if len(lines) > REVIEW_ISSUES_REPORTED else []
    return [*lines[:REVIEW_ISSUES_REPORTED], *more]


def add_promise_blockers(review: Review, promises: ReviewPromises) -> Review:
    """Return the review with one answer for each changed promise (a test of the base that fails on the change), and a
    blocker for each that no words of the request ask for: it has no answer, or one without a quote or with a wrong one.
    Of several answers the worst counts; those about other tests are dropped."""
    answers_by_label: dict[str, list[Justification]] = {label: [] for label in promises.promises}
    for answer in review.promises:
        if (label := _match_label(answer, answers_by_label)) in answers_by_label:
            answers_by_label[label].append(answer)
    justifications, blockers = list[Justification](), list[ReviewIssue]()
    for label, answers in answers_by_label.items():
        unjustified = next(
            (
                candidate
                for candidate in answers
                if not candidate.quote.strip() or promises.quote_problem(candidate.quote)
            ),
            None,
        )
        if answers and unjustified is None:
            justifications.append(answers[0].model_copy(update={"test": label}))
            continue
        reason = unjustified.reason if unjustified is not None else ""
        quote = unjustified.quote if unjustified is not None else ""
        justifications.append(Justification(test=label, quote="", reason=reason))
        blockers.append(_make_blocker(label, promises.promises[label], quote, reason, promises.quote_problem(quote)))
    return review.model_copy(update={"issues": [*review.issues, *blockers], "promises": justifications})


def _make_blocker(label: str, promise: Promise, quote: str, reason: str, problem: str) -> ReviewIssue:
    """Return the blocker for a test of the base that now fails, where no words of the request were shown to ask for it.

    It tells the reviewer's reason, and the quote only together with `problem`, the mistake in it (empty: no mistake).
    """
    quote_text = f" The reviewer's quote “{_shorten(quote)}” {problem}." if problem else ""
    reason_text = f" The reviewer says: {one_line(reason, 500)}" if reason.strip() else ""
    failing = f"fails {promise.condition}".rstrip()
    return ReviewIssue(
        title=f"changed promise: {shorten(label, 120)}",
        description=f"{label} passes on the base and {failing} on this change, and no words of "
        f"the request that ask for it were quoted.{quote_text}{reason_text}",
        severity=Severity.BLOCKER,
        file=promise.file,
        line=None,
        suggestion="Let the change keep what this test of the base demands, and give the test back what it checked; "
        "where the request does ask for it, say with which words.",
    )


def _match_label(answer: Justification, labels: Container[str]) -> str:
    """Return the label of the promise that an answer is about, also where the model put the name between marks."""
    name = label_of(answer.test)
    return name if name in labels else label_of(answer.test.strip("`\"' "))


def _fold_text(text: str) -> str:
    """Return a text in the form in which texts are compared: one form of each letter, lower case, single blanks,
    without _ENDS around it."""
    text = unicodedata.normalize("NFKC", text).translate(_WRITTEN).casefold()
    return " ".join(text.split()).strip(_ENDS)


def _count_words(folded: str) -> int:
    """Count the words of a folded text; in a script without blanks each letter is one."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in folded)
    return wide + sum(any(map(_is_spaced_letter, word)) for word in folded.split())


def _contains_words(quote: str, text: str) -> bool:
    """Return whether a folded quote stands in a folded text as whole words: not as the end of one and the beginning of
    another."""
    pattern = re.escape(quote)
    before = r"(?<!\w)" if _is_spaced_letter(quote[0]) else ""
    after = r"(?!\w)" if _is_spaced_letter(quote[-1]) else ""
    return re.search(before + pattern + after, text) is not None


def _is_spaced_letter(c: str) -> bool:
    """Return whether a character is a letter or digit of a script that puts blanks between words."""
    return c.isalnum() and unicodedata.east_asian_width(c) not in "WF"


def _shorten(text: str) -> str:
    """Return a text on one line, at most _QUOTED_CHARS characters."""
    return one_line(text, _QUOTED_CHARS)


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
        """Return what is wrong with the place of an issue; empty when it is right.

        An issue without a file is always right. Else the file must be in the diff, and the line in one of the ranges
        that the diff shows of it; no line, line 0 and any line of a file whose ranges are not known (None) are right.
        """
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
    """Return a line for each issue whose place is not in the change, at most REVIEW_ISSUES_REPORTED of them, then one
    that counts the others and one with the files that are in the change; empty when all places are right."""
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
    names = [shorten(path, _PATH_CHARS) for path in paths]
    more = f" and {len(names) - _PATHS_LISTED} more" if len(names) > _PATHS_LISTED else ""
    return (", ".join(names[:_PATHS_LISTED]) or "none") + more
