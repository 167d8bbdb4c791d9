"""What structured steps have to answer, and what becomes of the answer. A parse failure is a failure, never a pass."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import BaseModel, ValidationError

from perdure.adapters.agents.schema import closed
from perdure.adapters.agents.text import one_line, plain
from perdure.models.phases import Step
from perdure.models.report import Classification, Plan, Review, Severity
from perdure.models.turn import SUMMARY_LIMIT, Outcome

ANSWERS: dict[Step, type[BaseModel]] = {Step.CLASSIFY: Classification, Step.PLAN: Plan, Step.REVIEW: Review}

TITLE_CHARS = 60

_PROBLEM_CHARS = 2000


def schema_for(step: Step) -> dict[str, Any] | None:
    """The JSON schema of the step's answer; None for steps that answer in free text."""
    model = ANSWERS.get(step)
    return None if model is None else closed(model)


def read_answer(step: Step, text: str) -> tuple[Outcome, bytes | None]:
    """(outcome, the whole answer as JSON when it is worth keeping). ValueError says what is wrong with the text."""
    try:
        answer = ANSWERS[step].model_validate_json(text)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        lines = [f"{'.'.join(map(str, problem['loc'])) or 'answer'}: {problem['msg']}" for problem in found]
        raise ValueError("\n".join(lines)[:_PROBLEM_CHARS]) from None
    match answer:
        case Classification():
            return Outcome(summary=str(answer.kind), data={"kind": str(answer.kind)}), None
        case Plan():
            outcome = _planned(answer)
        case Review():
            outcome = _reviewed(answer)
        case _:
            raise TypeError(f"step {step} answers in free text")
    return outcome, answer.model_dump_json().encode()


def _planned(plan: Plan) -> Outcome:
    title = plain(plan.title, TITLE_CHARS).rstrip(".")
    if not title or not plan.tasks:
        raise ValueError("a plan needs a title and at least one task")
    files = len(set(plan.relevant_files))
    data = {"title": title, "tasks": len(plan.tasks), "files": files}
    return Outcome(summary=f"{count(len(plan.tasks), 'task')}, {count(files, 'file')}", data=data)


def _reviewed(review: Review) -> Outcome:
    found = Counter(issue.severity for issue in review.issues)
    words = {Severity.BLOCKER: "blocker", Severity.TECH_DEBT: "tech debt", Severity.SKIPPABLE: "skippable"}
    named = [
        f"{found[severity]} {word}" if severity is not Severity.BLOCKER else count(found[severity], word)
        for severity, word in words.items()
        if found[severity]
    ]
    return Outcome(
        summary=", ".join(named) or "no issues", data={str(severity): found[severity] for severity in Severity}
    )


def written_summary(text: str) -> str:
    """What a free answer says in its first line, for the commit and for people."""
    return one_line(text, SUMMARY_LIMIT) or "done"


def count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
