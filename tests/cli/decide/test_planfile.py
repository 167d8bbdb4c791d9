"""A plan as a person edits it: nothing is lost on the way there and back, and each mistake has its line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.client.yaml_files import is_blank, parse_plan, to_editable
from perdure.models.delivery.steps import Plan, Task
from perdure.models.errors import BadInput

words = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60)
lines = st.lists(words, max_size=4).map("\n".join)
tasks = st.builds(Task, title=words, details=lines, files=st.lists(words, max_size=3))
plans = st.builds(
    Plan,
    title=words.map(lambda text: f"t{text}"),
    problem=lines,
    solution=lines.map(lambda text: f"s{text}"),
    relevant_files=st.lists(words, max_size=3),
    tasks=st.lists(tasks, max_size=3),
    validation=st.lists(words, max_size=3),
)

PLAN = Plan(
    title="Add sub",
    problem="None.\n\n  def sub(a, b):  \n\treturn a - b\n",
    solution="Write: it",
    relevant_files=["calc.py"],
    tasks=[Task(title="Write sub", details="Beside add.", files=["calc.py", "a b.py"])],
    validation=["sub(3, 2) is 1"],
)


def squeezed(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(value.split())
    if isinstance(value, list):
        return [squeezed(one) for one in value]
    return {name: squeezed(one) for name, one in value.items()} if isinstance(value, dict) else value


@given(plans)
def test_whatever_a_plan_says_comes_back_but_for_blanks_that_nobody_sees(plan: Plan) -> None:
    text, ending = to_editable(plan.model_dump_json(), "calc-sub")
    assert ending == ".yaml"
    made, title = parse_plan(text, markdown=False)
    found = Plan.model_validate_json(made)
    assert squeezed(found.model_dump()) == squeezed(plan.model_dump())
    assert title == found.title


def test_a_plan_reads_as_people_write_it() -> None:
    text, _ = to_editable(PLAN.model_dump_json(), "calc-sub")
    assert text.splitlines()[2:] == [
        "title: Add sub",
        "problem: |-",
        "  None.",
        "",
        "    def sub(a, b):",
        "      return a - b",
        "solution: 'Write: it'",
        "relevant_files:",
        "  - calc.py",
        "tasks:",
        "  - title: Write sub",
        "    details: Beside add.",
        "    files:",
        "      - calc.py",
        "      - a b.py",
        "validation:",
        "  - sub(3, 2) is 1",
    ]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("title: Add sub", "title: [", "line 4: this is not YAML: "),
        ("title: Add sub\n", "", "line 1: title: required field is missing"),
        ("title: Add sub", "title: 3", "line 3: title: Input should be a valid string"),
        ("title: Add sub", "title: ''", "line 3: title: is empty"),
        ("    details:", "    detail:", "line 14: tasks.0.detail: unknown field (did you mean details?)"),
        ("      - a b.py", "      - {a: b}", "line 17: tasks.0.files.1: Input should be a valid string"),
        ("validation:\n  - sub(3, 2) is 1", "validation: yes", "line 18: validation: Input should be a valid list"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_its_field(old: str, new: str, says: str) -> None:
    text, _ = to_editable(PLAN.model_dump_json(), "calc-sub")
    assert old in text
    with pytest.raises(BadInput) as refusal:
        parse_plan(text.replace(old, new, 1), markdown=False)
    assert refusal.value.what.startswith(says)


@pytest.mark.parametrize(
    "text", ["", "- a\n- b\n", "Just do it", "# Add sub\n", "!!python/object:os.system {}", "[" * 700]
)
def test_what_is_no_plan_at_all_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_plan(text, markdown=False)


def test_a_plan_in_somebody_s_own_words_stays_in_them() -> None:
    text, ending = to_editable("# Add sub\n\nBeside add.\n", "calc-sub")
    assert (text, ending) == ("# Add sub\n\nBeside add.\n", ".md")
    assert parse_plan(text + "And mul.", markdown=True) == ("# Add sub\n\nBeside add.\nAnd mul.", "Add sub")


def test_comments_alone_are_nothing_to_send() -> None:
    assert is_blank("# a\n\n  # b\n")
    assert not is_blank("# a\ntitle: x\n")
