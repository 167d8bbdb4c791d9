"""The answers that structured steps have to give, and their reading. A parse failure is a failure, never a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from perdure.adapters.agents.builtin.places import Change, placed, wrong_places
from perdure.adapters.agents.builtin.promised import Promised, judged, wrong_answers
from perdure.adapters.agents.builtin.schema import closed
from perdure.adapters.agents.text import first_line
from perdure.models.decomposition import Decomposition
from perdure.models.limits import PLAN_SHOWN_BYTES
from perdure.models.phases import Step
from perdure.models.plan import Plan, Role
from perdure.models.report import Classification, Issue, Justification, Review, Severity
from perdure.models.steps import STEPS
from perdure.models.touches import learnt
from perdure.models.turn import SUMMARY_LIMIT, Outcome
from perdure.text import one_line

TITLE_CHARS = 60

_PROBLEM_CHARS = 2000


def schema_for(step: Step, *, promised: bool = False, roles: Sequence[str] = ()) -> dict[str, Any] | None:
    """The JSON schema of the step's answer; None for steps that answer in free text.

    promised  a review is shown changed promises, and has to answer each; else it is not asked about any
    roles     of the specialists that a plan's tasks are for; none: those that every plan may name
    """
    model = STEPS[step].answer
    if model is None:
        return None
    schema = closed(model)
    if step is Step.REVIEW and not promised:
        del schema["properties"]["promises"], schema["$defs"][Justification.__name__]
        schema["required"].remove("promises")
    if step is Step.PLAN and roles:
        schema["$defs"][Role.__name__]["enum"] = list(roles)
    return schema


def read_answer(
    step: Step, text: str, change: Change | None = None, promised: Promised | None = None, *, last: bool = False
) -> tuple[Outcome, bytes | None]:
    """(outcome, the whole answer as JSON when it is worth keeping). ValueError says what is wrong with the text.

    change    what a review is about; None: not known, and its places are believed
    promised  the changed promises it was shown; None: not known
    last      it cannot be asked for again: places that are wrong are dropped, and issues that were said twice folded,
              because neither may turn a blocker into a pass or end a delivery; a promise without a quote that stands in
              the request is a blocker
    """
    model = STEPS[step].answer
    assert model, f"{step} answers in its own words"
    try:
        answer = model.model_validate_json(text)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        lines = [f"{'.'.join(map(str, problem['loc'])) or 'answer'}: {problem['msg']}" for problem in found]
        said = "\n".join(lines).replace(": Value error, ", ": ")  # pydantic's own words before ours
        raise ValueError(said[:_PROBLEM_CHARS]) from None
    match answer:
        case Classification():
            return Outcome(summary=str(answer.kind), data={"kind": str(answer.kind)}), None
        case Plan():
            outcome = _planned(answer)
        case Decomposition():
            data = {"title": answer.title, "items": len(answer.items), "words": answer.words(PLAN_SHOWN_BYTES)}
            outcome = Outcome(summary=one_line(answer.title, SUMMARY_LIMIT), data=data)
        case Review():
            answer = _sound(answer, change, promised, last=last)
            outcome = _reviewed(answer)
        case _:
            raise TypeError(f"step {step} answers in free text")
    return outcome, answer.model_dump_json().encode()


def _planned(plan: Plan) -> Outcome:
    title = one_line(plan.title, TITLE_CHARS).rstrip(".")
    if not title or not plan.tasks:
        raise ValueError("a plan needs a title and at least one task")
    files = len(set(plan.relevant_files))
    data = {"title": title, "tasks": len(plan.tasks), "files": files, "words": plan.words(PLAN_SHOWN_BYTES)}
    data["touches"] = list(learnt(plan.relevant_files, *(task.files for task in plan.tasks)))
    return Outcome(summary=f"{count(len(plan.tasks), 'task')}, {count(files, 'file')}", data=data)


def _sound(review: Review, change: Change | None, promised: Promised | None, *, last: bool) -> Review:
    """The review, each issue once and with words, and where it says; each changed promise justified or a blocker."""
    mute = [
        number for number, issue in enumerate(review.issues, 1) if not (_says(issue.title) and _says(issue.description))
    ]
    if mute:
        raise ValueError(f"an issue needs a title and a description: issue {', '.join(map(str, mute[:10]))} has none")
    single = _folded(review)
    if len(single.issues) < len(review.issues) and not last:
        raise ValueError("an issue is listed more than once: name each once, with the severity it has")
    wrong = wrong_places(single, change) if change is not None else []
    said = ["these places are not in the diff; name a file and line that are, or leave the file empty:", *wrong]
    unjustified = wrong_answers(single, promised) if promised is not None and promised.promises else []
    about = [
        "`promises` needs one answer for each changed promise that was shown, by its name, with a quote that stands in "
        "the request or its issue (an empty one where nothing asks for it):",
        *unjustified,
    ]
    problems = [*(said if wrong else []), *(about if unjustified else [])]
    if problems and not last:
        raise ValueError("\n".join(problems))
    sound = placed(single, change) if change is not None else single
    return judged(sound, promised) if promised is not None else sound


def _says(words: str) -> bool:
    return any(c.isalnum() for c in words)


def _folded(review: Review) -> Review:
    """Each issue once, with the worst severity it was given."""
    order = list(Severity)
    kept: dict[tuple[str, ...], Issue] = {}
    for issue in review.issues:
        said = (issue.title, issue.description, issue.file, str(issue.line or 0))
        key = tuple(" ".join(words.lower().split()) for words in said)
        known = kept.get(key)
        if known is None or order.index(issue.severity) < order.index(known.severity):
            kept[key] = issue
    return review.model_copy(update={"issues": list(kept.values())})


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
    """Return the first line of a free answer, for the commit and for people."""
    return first_line(text, SUMMARY_LIMIT) or "done"


def count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
