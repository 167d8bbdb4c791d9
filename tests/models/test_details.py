"""What the Web UI and the clients read of a state."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.decisions import DecisionRecord, GateVerdict
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import PullRequest, Reason, ReviewResult, Status, StepRecord, TestsStatus
from perdure.models.delivery.state import (
    BuildingState,
    DeliveryState,
    GatesState,
    PublishingState,
    ReviewingState,
    SpendingState,
    TestingState,
    TurnsState,
)
from perdure.models.delivery.summary import next_commands, progress_of, result_of, usage_of
from perdure.models.delivery.work import TestVerdict
from perdure.models.phases import ALL_PHASES, Phase, Step
from perdure.models.webui import captions
from perdure.models.webui.details import escape_line, render_delivery_details
from perdure.text import visible
from tests.states import prepared_workspace, with_fields

REQUEST = DeliveryRequest(repository="/r", request="Add sub", base="main", budget_usd=2)
PREPARED = prepared_workspace(phases=ALL_PHASES)
NASTY = st.text(st.one_of(st.sampled_from("|`*_[]<>!-\\\n\t\x1b\u202e\x00"), st.characters()), max_size=300)


@given(NASTY, st.integers(1, 200))
def test_a_cell_is_one_line_without_markup_or_control_characters(text: str, limit: int) -> None:
    safe = escape_line(text, limit)
    assert all(c.isprintable() for c in safe)
    bare = safe.replace("&#47;", "/")
    assert not re.search(r"[`*_\[\]<>|{}()#~^$&:!]|--|^-", re.sub(r"\\.", "x", bare))
    assert len(re.sub(r"\\(.)", r"\1", bare)) <= limit + 1
    said = " ".join(visible(text).split())
    assert re.sub(r"\\(.)", r"\1", bare).removesuffix("…") == said[:limit].removesuffix("…")


@given(NASTY, NASTY, NASTY)
def test_the_table_keeps_its_columns_whatever_a_model_said(summary: str, message: str, branch: str) -> None:
    prepared = PREPARED.model_copy(update={"branch": branch})
    state = DeliveryState(
        prepared=prepared,
        message=message,
        waiting=message,
        steps=[StepRecord(step="run_tests", attempt=2, summary=summary, duration_s=2, turns=3, commit="c" * 40)],
    )
    text = render_delivery_details(state, REQUEST)
    row = text.splitlines()[-1]
    assert len(re.findall(r"(?<!\\)\|", row.replace("\\\\", ""))) == 5
    assert "<!--" not in text
    assert sum(line.startswith("- branch `") for line in text.splitlines()) == 1


def test_details_name_the_issue_and_its_title_once_it_is_known() -> None:
    request = DeliveryRequest(repository="/r", issue="#12")
    state = DeliveryState()
    assert "\n- issue #12\n" in render_delivery_details(state, request)
    state.prepared = with_fields(PREPARED, issue=12, title="Accept | <b>1h30m</b>\n- branch `main`")
    assert "\n- issue #12: Accept \\| \\<b\\>1h30m\\</b\\> - branch \\`main\\`\n" in render_delivery_details(
        state, request
    )
    assert "- request:" not in render_delivery_details(state, request)
    assert "\n- request: Add sub\n" in render_delivery_details(state, REQUEST)
    assert "- issue" not in render_delivery_details(state, REQUEST)


def test_details_say_where_it_stands_and_what_it_cost() -> None:
    state = DeliveryState()
    assert render_delivery_details(state, REQUEST).startswith("### Preparing")
    state.phase = Phase.BUILD
    assert render_delivery_details(state, REQUEST).startswith("### Running: build")
    state.status, state.reason = Status.NOT_DELIVERED, Reason.TESTS_RED
    state.prepared, state.building.head = PREPARED, "h" * 40
    state.spending.spend, state.budget.extra_usd = Spend(usd=None, at_risk_usd=0.1), 2.5
    state.publishing.pull_request = PullRequest(number=3, url="file:///r", title="t")
    state.steps = [*[StepRecord(step="implement")] * 59, StepRecord(step="run_tests")]
    text = render_delivery_details(state, REQUEST)
    assert text.startswith("### Not delivered: tests red")
    assert "- branch `perdure/d` at `hhhhhhh`" in text
    # Two bare dollar signs on one line would be a formula to the Web UI.
    cheap = StepRecord(step="plan", turns=1, cost_usd=0.001, duration_s=188)
    rows = render_delivery_details(DeliveryState(steps=[cheap]), REQUEST).splitlines()
    assert rows[-1].endswith("| 3m\u00a008s,\u00a0\\<\\$0.01 |"), "as elsewhere, without a place to break the line"
    assert "- spent unknown of \\$7.50, up to \\$0.10 more for replies cut off" in text
    assert "[#3](file:///r)" in text
    assert text.count("| implement\u00a0") == 11
    assert "| run tests\u00a0" in text.splitlines()[-1]
    assert "| 48 before\u00a0" in text


def test_details_say_who_decided_what_in_which_words_the_newest_ones() -> None:
    made = DecisionRecord(verdict=GateVerdict.APPROVED, by="Ada", note="as *we* said")
    rest = {f"budget:{number}": DecisionRecord(verdict=GateVerdict.REJECTED) for number in range(2)}
    state = DeliveryState(gates=GatesState(decided={"plan:old": made, "pull_request:1a2b3c4d": made, **rest}))
    lines = render_delivery_details(state, REQUEST).splitlines()
    assert "- pull request 1a2b3c4d: approved by Ada: as \\*we\\* said" in lines
    assert "- budget 1: rejected" in lines
    assert not any("plan old" in line for line in lines)


def test_a_pull_request_in_a_directory_is_named_and_not_linked() -> None:
    pull = PullRequest(number=3, url="/srv/my `repos/calc.git#pull/3", title="t")
    state = DeliveryState(prepared=PREPARED, publishing=PublishingState(pull_request=pull), status=Status.DELIVERED)
    text = render_delivery_details(state, REQUEST)
    assert "- pull request #3 in `/srv/my repos/calc.git`: `perdure pulls 3` there" in text
    assert next_commands(state, "d")[0] == "perdure pulls 3 --repo '/srv/my `repos/calc.git'"
    away = pull.model_copy(update={"url": "https://github.com/me/calc/pull/3"})
    assert next_commands(with_fields(state, pull_request=away), "d")[0] == "perdure diff d"


def test_the_timeline_says_what_an_activity_is_about() -> None:
    state = DeliveryState(prepared=PREPARED, building=BuildingState(head="h" * 40))
    assert captions.step_caption(Step.PREPARE, 1, DeliveryState()) == "workspace, setup, tests on the base"
    assert captions.step_caption(Step.RUN_TESTS, 2, state) == "round 2 · on a clean checkout of hhhhhhh"
    assert captions.step_caption(Step.COMMIT, 1, state, "Read\nsigns") == "Read signs"
    assert captions.step_caption(Step.OPEN_PULL_REQUEST, 1, state) == "perdure/d → main"
    assert captions.turn_caption(1, 1, "", "claude") == "turn 1 · claude"
    assert (
        captions.turn_caption(2, 3, "turn 2 · pytest -q · twice", "claude")
        == "round 2 · turn 3, after pytest -q · twice"
    )
    assert len(captions.turn_caption(1, 2, "turn 1 · " + "x" * 200, "claude")) == 66
    assert captions.wait_caption("approve the plan:\nAdd sub") == "waiting for you: approve the plan: Add sub"


def test_a_result_says_what_exists_and_a_progress_what_is_going_on() -> None:
    early = DeliveryState(status=Status.CANCELLED)
    result = result_of(early, REQUEST, "d", "run")
    assert (result.branch, result.base, result.base_sha, result.next) == (None, "main", None, ("perdure retry d",))
    assert progress_of(DeliveryState(), REQUEST, "d", "run").budget_usd == 2
    state = DeliveryState(
        prepared=PREPARED,
        building=BuildingState(head="h"),
        turns=TurnsState(checkpoint="c"),
        status=Status.DELIVERED,
        testing=TestingState(verdict=TestVerdict(status=TestsStatus.GREEN, tree="t", passed=4, failed=0, report="f00")),
        reviewing=ReviewingState(review="ba5", result=ReviewResult(blockers=0)),
    )
    result = result_of(state, REQUEST, "d", "run")
    assert (result.branch, result.head_sha) == ("perdure/d", "h")
    assert (result.tests.tree_sha, result.tests.report) == ("t", "artifact:sha256:f00")
    assert result.review.report == "artifact:sha256:ba5"
    assert result.next == ("perdure diff d", "perdure show d")
    progress = progress_of(state, REQUEST, "d", "run")
    assert (progress.queue, progress.budget_usd, progress.status) == ("q", 5.0, "delivered")
    assert next_commands(DeliveryState(prepared=PREPARED), "d")[-1] == "perdure retry d"


def test_a_rewind_hides_no_money_and_an_unknown_price_is_not_zero() -> None:
    state = DeliveryState(spending=SpendingState(usage=Usage(cost_usd=0.1), spend=Spend(usd=0.5, at_risk_usd=0.2)))
    assert usage_of(state).cost_usd == 0.5
    assert usage_of(state).at_risk_usd == 0.2
    state.spending.spend = Spend(usd=None, known_usd=0.4)
    assert usage_of(state).cost_usd is None
