"""Changed promises in a review: each is justified by words that stand in the request, or it is a blocker."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Mapping
from dataclasses import dataclass

from perdure.models.experiment import Promise
from perdure.models.limits import REVIEW_ISSUES_TOLD
from perdure.models.promised import label_of
from perdure.models.report import Issue, Justification, Review, Severity
from perdure.text import one_line, shortened

QUOTE_WORDS = 3
"""That a quote from the request has at least: two words stand in any text by accident."""


_ENDS = "\"'`*_.,;:!? "
"""Around a quote: what people put there, and what does not change the words."""

_WRITTEN = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", ">": " "})
"""One form for what is typed in several; a `>` begins the lines of an issue as it is shown."""

_QUOTED_CHARS = 200


@dataclass(frozen=True)
class PromisedText:
    """One text that says what is wanted. `whole`: all of it may be quoted, though it is shorter than QUOTE_WORDS."""

    text: str
    whole: bool = True


@dataclass(frozen=True)
class Promised:
    """The changed promises a review has to answer by name, and the texts in which its quotes have to stand."""

    promises: Mapping[str, Promise]
    words: tuple[PromisedText, ...] = ()

    def problem(self, quote: str) -> str:
        """The mistake in a quote; empty when it stands in the request. An empty one says that nothing asks for it."""
        wanted = _folded(quote)
        if not any(c.isalnum() for c in wanted):
            return "has no words" if quote.strip() else ""
        texts = [(words, _folded(words.text)) for words in self.words]
        if any(words.whole and wanted == text for words, text in texts):
            return ""
        if _count(wanted) < QUOTE_WORDS:
            return f"is shorter than {QUOTE_WORDS} words"
        return "" if any(_stands(wanted, text) for _, text in texts) else "does not stand in the request"


def wrong_answers(review: Review, promised: Promised) -> list[str]:
    """A line for each promise without exactly one answer, and for each answer with a mistake; empty: all are right."""
    told, wrong = dict.fromkeys(promised.promises, 0), list[str]()
    for answer in review.promises:
        if (label := _label(answer, told)) not in told:
            wrong.append(f"- {_short(answer.test) or 'no name'}: no test of that name was shown")
            continue
        told[label] += 1
        if problem := promised.problem(answer.quote):
            wrong.append(f"- {_short(label)}: the quote “{_short(answer.quote)}” {problem}")
    wrong += [f"- {_short(label)}: has {number or 'no'} answers" for label, number in told.items() if number != 1]
    more = [f"- and {len(wrong) - REVIEW_ISSUES_TOLD} more"] if len(wrong) > REVIEW_ISSUES_TOLD else []
    return [*wrong[:REVIEW_ISSUES_TOLD], *more]


def judged(review: Review, promised: Promised) -> Review:
    """The review with one answer for each promise, and a blocker for each that no words of the request ask for.

    Of several answers the worst counts; those about other tests are dropped.
    """
    given: dict[str, list[Justification]] = {label: [] for label in promised.promises}
    for answer in review.promises:
        if (label := _label(answer, given)) in given:
            given[label].append(answer)
    kept, blockers = list[Justification](), list[Issue]()
    for label, answers in given.items():
        bad = next((one for one in answers if not one.quote.strip() or promised.problem(one.quote)), None)
        if answers and bad is None:
            kept.append(answers[0].model_copy(update={"test": label}))
            continue
        reason = bad.reason if bad is not None else ""
        said = bad.quote if bad is not None else ""
        kept.append(Justification(test=label, quote="", reason=reason))
        blockers.append(_blocker(label, promised.promises[label], said, reason, promised.problem(said)))
    return review.model_copy(update={"issues": [*review.issues, *blockers], "promises": kept})


def _blocker(label: str, promise: Promise, quote: str, reason: str, problem: str) -> Issue:
    said = f" The reviewer's quote “{_short(quote)}” {problem}." if problem else ""
    why = f" The reviewer says: {one_line(reason, 500)}" if reason.strip() else ""
    return Issue(
        title=f"changed promise: {shortened(label, 120)}",
        description=f"{label} passes on the base and fails on this change, and no words of the request that ask for it "
        f"were quoted.{said}{why}",
        severity=Severity.BLOCKER,
        file=promise.file,
        line=None,
        suggestion="Let the change keep what this test of the base demands, and give the test back what it checked; "
        "where the request does ask for it, say with which words.",
    )


def _label(answer: Justification, known: Container[str]) -> str:
    """The name an answer is about; a model may put it between marks."""
    name = label_of(answer.test)
    return name if name in known else label_of(answer.test.strip("`\"' "))


def _folded(text: str) -> str:
    """Letters and blanks in one form, without what stands around."""
    text = unicodedata.normalize("NFKC", text).translate(_WRITTEN).casefold()
    return " ".join(text.split()).strip(_ENDS)


def _count(folded: str) -> int:
    """Words; of a script without blanks each letter is one."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in folded)
    return wide + sum(any(map(_spaced, word)) for word in folded.split())


def _stands(wanted: str, text: str) -> bool:
    """Whole words: not the end of one and the beginning of another."""
    found = re.escape(wanted)
    before = r"(?<!\w)" if _spaced(wanted[0]) else ""
    after = r"(?!\w)" if _spaced(wanted[-1]) else ""
    return re.search(before + found + after, text) is not None


def _spaced(c: str) -> bool:
    """A letter or digit of a script that puts blanks between words."""
    return c.isalnum() and unicodedata.east_asian_width(c) not in "WF"


def _short(text: str) -> str:
    return one_line(text, _QUOTED_CHARS)
