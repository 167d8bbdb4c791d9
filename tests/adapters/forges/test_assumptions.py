"""What agents assumed stands in the pull request, as words and nothing else."""

from __future__ import annotations

import re

from body_fixtures import CONTRACT, PIECES, WORK, plan_of, shapes, shown
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.forges.body import marker, pull_request_body


def test_assumptions_are_listed_one_a_line_between_plan_and_evidence() -> None:
    assumed = ("Which order? a - b (as in add)\nFloats? yes", "Sign? minus")
    whole = pull_request_body(WORK.model_copy(update={"assumptions": assumed}), CONTRACT, plan_of("x"), None)
    said = whole.partition("### Assumptions\n\n")[2].partition("\n\n###")[0]
    assert said.splitlines() == [
        "Nobody was asked, so this was assumed:",
        "",
        "- Which order? a - b (as in add)",
        "- Floats? yes",
        "- Sign? minus",
    ]
    assert whole.index("### Tasks") < whole.index("### Assumptions") < whole.index("### Evidence")


def test_a_delivery_that_assumed_nothing_says_nothing_about_it() -> None:
    assert "ssum" not in pull_request_body(WORK, CONTRACT, None, None)


@given(st.lists(PIECES, max_size=3))
def test_an_assumption_calls_nobody_and_closes_nothing(assumed: list[str]) -> None:
    whole = pull_request_body(WORK.model_copy(update={"assumptions": tuple(assumed)}), CONTRACT, None, None)
    ours = shapes(whole)
    assert not {"link_open", "image", "html_inline"} & set(ours)
    assert (ours.count("html_block"), ours[-1]) == (1, "html_block")
    assert whole.splitlines()[-1] == marker("d")
    assert not re.search(r"@\w|#\d", shown(whole))


def test_who_let_red_tests_through_stands_among_the_evidence() -> None:
    whole = pull_request_body(WORK.model_copy(update={"accepted": "approved by Ada: #7 is @old"}), CONTRACT, None, None)
    (said,) = [line for line in whole.splitlines() if "let through" in line]
    assert said.startswith("- red tests let through by a person who looked, approved by Ada: ")
    assert "@old" not in said
