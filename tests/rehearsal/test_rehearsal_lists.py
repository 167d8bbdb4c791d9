"""A screenplay may leave out the empty lists of things it lists; what the answer itself has to have it must write."""

from __future__ import annotations

from perdure.adapters.agents.builtin.conversation import schema_for
from perdure.models.phases import Step
from perdure.rehearsal.wire import answer_problem, fill_empties

ISSUE = {"title": "t", "description": "d", "severity": "blocker", "file": "", "line": 0, "suggestion": "s"}


def test_a_review_written_before_there_were_screenshots_is_an_answer_the_api_could_send() -> None:
    schema = schema_for(Step.REVIEW)
    assert schema is not None
    old = {"summary": "s", "issues": [ISSUE, {**ISSUE, "screenshots": ["/"]}]}
    assert answer_problem(old, schema) == "answer.issues[0].screenshots is missing"
    sent = fill_empties(old, schema)
    assert answer_problem(sent, schema) is None
    assert [issue["screenshots"] for issue in sent["issues"]] == [[], ["/"]]


def test_issues_and_words_are_never_made_up() -> None:
    schema = schema_for(Step.REVIEW)
    assert schema is not None
    assert answer_problem(fill_empties({"summary": "s"}, schema), schema) == "answer.issues is missing"
    mute = {"summary": "s", "issues": [{name: value for name, value in ISSUE.items() if name != "title"}]}
    assert answer_problem(fill_empties(mute, schema), schema) == "answer.issues[0].title is missing"
    assert fill_empties({"summary": "s", "issues": ["x", None]}, schema)["issues"] == ["x", None]


def test_a_plan_written_before_tasks_had_roles_is_an_answer_too() -> None:
    schema = schema_for(Step.PLAN)
    assert schema is not None
    task = {"title": "t", "details": "d", "files": []}
    plan = {"title": "t", "problem": "", "solution": "s", "relevant_files": [], "tasks": [task], "validation": []}
    sent = fill_empties(plan, schema)
    assert answer_problem(sent, schema) is None
    assert sent["tasks"] == [task | {"role": None, "depends_on": []}]
