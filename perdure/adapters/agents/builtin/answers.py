"""The answers of structured steps: their schemas, and how they are parsed and checked. A parse failure is a failure,
never a pass. Used for the built-in agent and for agents with a command line of their own."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from perdure.adapters.agents.builtin.model_request import closed_schema
from perdure.adapters.agents.builtin.review import (
    ReviewedChange,
    ReviewPromises,
    add_promise_blockers,
    correct_places,
    describe_wrong_answers,
    describe_wrong_places,
)
from perdure.adapters.agents.text import first_line
from perdure.models.backlog.touches import patterns_of_paths
from perdure.models.checks.report import Classification, Justification, Review, ReviewIssue, Severity
from perdure.models.delivery.result_text import count_severities
from perdure.models.delivery.steps import STEPS, Decomposition, Plan, Role
from perdure.models.delivery.turn import SUMMARY_LIMIT, Outcome
from perdure.models.limits import PLAN_SHOWN_BYTES
from perdure.models.phases import Kind, Step
from perdure.text import format_count, one_line, shorten

TITLE_CHARS = 60

_PROBLEM_CHARS = 2000


def schema_for(step: Step, *, with_promises: bool = False, roles: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the JSON schema of the step's answer; None for steps that answer in free text.

    with_promises  a review is shown changed promises (tests of the base that fail on the change), and has to answer
                   each; else the schema does not ask about any
    roles          of the specialists that a plan's tasks are for; empty: those that every plan may name
    """
    model = STEPS[step].answer
    if model is None:
        return None
    schema = closed_schema(model)
    if step is Step.REVIEW and not with_promises:
        del schema["properties"]["promises"], schema["$defs"][Justification.__name__]
        schema["required"].remove("promises")
    if step is Step.PLAN and roles:
        schema["$defs"][Role.__name__]["enum"] = list(roles)
    return schema


def schema_request(schema: dict[str, Any]) -> str:
    """Return what a prompt says at its end where only the prompt asks for an answer by its schema."""
    rule = "End with one JSON object that follows this JSON Schema, and with nothing beside it:"
    return f"\n\n{rule}\n{json.dumps(schema)}"


_FENCED = re.compile(r"^```[\w-]*[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def _strip_fence(text: str) -> str:
    """Return the only fenced block of a text, without its fences; the text itself where there is none, or more."""
    blocks = _FENCED.findall(text)
    return blocks[0] if len(blocks) == 1 else text


def fallback_classification(answer: str) -> Outcome:
    """Return the outcome of a classification whose answer cannot be used: the only kind that it names, else a feature,
    of which most is asked."""
    named = [kind for kind in Kind if re.search(rf"\b{kind}\b", answer, re.IGNORECASE)]
    kind = named[0] if len(named) == 1 else Kind.FEATURE
    return Outcome(summary=f"{kind}, taken for one: the classification was not usable", data={"kind": str(kind)})


def parse_answer(
    step: Step,
    text: str,
    change: ReviewedChange | None = None,
    promises: ReviewPromises | None = None,
    *,
    is_last: bool = False,
) -> tuple[Outcome, bytes | None]:
    """Parse the text of a structured step's answer. Returns the step's outcome, and the whole answer as JSON; None in
    place of the JSON for a classification, whose outcome says all.

    change    what a review is about; None: not known, and its places (file and line) are believed
    promises  the changed promises a review was shown (tests of the base that fail on the change); None: not known
    is_last   the model cannot be asked again: wrong places are dropped and issues listed twice are merged, because
              neither may turn a blocker into a pass or end a delivery; a promise without a quote that stands in the
              request becomes a blocker

    Raises ValueError with what is wrong with the text, for the model to correct; AssertionError for a step that answers
    in free text.
    """
    model = STEPS[step].answer
    assert model, f"{step} answers in its own words"
    try:
        answer = model.model_validate_json(_strip_fence(text))
    except ValidationError as error:
        errors = error.errors(include_input=False, include_url=False)
        lines = [f"{'.'.join(map(str, problem['loc'])) or 'answer'}: {problem['msg']}" for problem in errors]
        message = "\n".join(lines).replace(": Value error, ", ": ")  # pydantic puts its own label before our message
        raise ValueError(shorten(message, _PROBLEM_CHARS)) from None
    match answer:
        case Classification():
            return Outcome(summary=str(answer.kind), data={"kind": str(answer.kind)}), None
        case Plan():
            outcome = _plan_outcome(answer)
        case Decomposition():
            data = {"title": answer.title, "items": len(answer.items), "words": answer.to_text(PLAN_SHOWN_BYTES)}
            outcome = Outcome(summary=one_line(answer.title, SUMMARY_LIMIT), data=data)
        case Review():
            answer = _check_review(answer, change, promises, is_last=is_last)
            outcome = _review_outcome(answer)
        case _:
            raise TypeError(f"step {step} answers in free text")
    return outcome, answer.model_dump_json().encode()


def _plan_outcome(plan: Plan) -> Outcome:
    """Return the outcome of a plan: how many tasks and files it has, its title and text, and the patterns of files it
    touches. Raises ValueError for a plan without a title or without tasks."""
    title = one_line(plan.title, TITLE_CHARS).rstrip(".")
    if not title or not plan.tasks:
        raise ValueError("a plan needs a title and at least one task")
    files = len(set(plan.relevant_files))
    data = {"title": title, "tasks": len(plan.tasks), "files": files, "words": plan.to_text(PLAN_SHOWN_BYTES)}
    data["touches"] = list(patterns_of_paths(plan.relevant_files, *(task.files for task in plan.tasks)))
    return Outcome(summary=f"{format_count(len(plan.tasks), 'task')}, {format_count(files, 'file')}", data=data)


def _check_review(
    review: Review, change: ReviewedChange | None, promises: ReviewPromises | None, *, is_last: bool
) -> Review:
    """Return the review with each issue once, places as the change writes them, and a blocker for each changed promise
    (a test of the base that fails on the change) that the request does not ask for.

    Raises ValueError, for the model to correct, where an issue has no title or description, and unless `is_last` also
    where an issue is listed twice, a place is not in the change, or a promise is not answered as it must be. `change`
    or `promises` None: places or promises are not checked.
    """
    empty_issues = [
        number
        for number, issue in enumerate(review.issues, 1)
        if not (_has_words(issue.title) and _has_words(issue.description))
    ]
    if empty_issues:
        raise ValueError(
            f"an issue needs a title and a description: issue {', '.join(map(str, empty_issues[:10]))} has none"
        )
    merged = _merge_duplicates(review)
    if len(merged.issues) < len(review.issues) and not is_last:
        raise ValueError("an issue is listed more than once: name each once, with the severity it has")
    place_problems = describe_wrong_places(merged, change) if change is not None else []
    place_message = [
        "these places are not in the diff; name a file and line that are, or leave the file empty:",
        *place_problems,
    ]
    promise_problems = describe_wrong_answers(merged, promises) if promises is not None and promises.promises else []
    promise_message = [
        "`promises` needs one answer for each changed promise that was shown, by its name, with a quote that stands in "
        "the request or its issue (an empty one where nothing asks for it):",
        *promise_problems,
    ]
    problems = [*(place_message if place_problems else []), *(promise_message if promise_problems else [])]
    if problems and not is_last:
        raise ValueError("\n".join(problems))
    review_with_places = correct_places(merged, change) if change is not None else merged
    return add_promise_blockers(review_with_places, promises) if promises is not None else review_with_places


def _has_words(text: str) -> bool:
    """Return whether a text has a letter or digit."""
    return any(c.isalnum() for c in text)


def _merge_duplicates(review: Review) -> Review:
    """Return the review with each issue once, with the worst severity it was given. Issues are the same when title,
    description, file and line are equal but for case and white space."""
    order = list(Severity)
    issue_by_key: dict[tuple[str, ...], ReviewIssue] = {}
    for issue in review.issues:
        parts = (issue.title, issue.description, issue.file, str(issue.line or 0))
        key = tuple(" ".join(part.lower().split()) for part in parts)
        duplicate = issue_by_key.get(key)
        if duplicate is None or order.index(issue.severity) < order.index(duplicate.severity):
            issue_by_key[key] = issue
    return review.model_copy(update={"issues": list(issue_by_key.values())})


def _review_outcome(review: Review) -> Outcome:
    """Return the outcome of a review: how many issues there are of each severity, as summary and as data."""
    counts = Counter(issue.severity for issue in review.issues)
    summary = count_severities(*(counts[severity] for severity in Severity)) or "no issues"
    return Outcome(summary=summary, data={str(severity): counts[severity] for severity in Severity})


def free_text_summary(text: str) -> str:
    """Return the first line of an answer in free text, at most SUMMARY_LIMIT characters, for the commit and for people;
    "done" where it has no words."""
    return first_line(text, SUMMARY_LIMIT) or "done"
