"""Backlogs, items and large requests as people send them: what is taken, and the one line of refusal."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.agents.builtin.answers import parse_answer, schema_for
from perdure.models.backlog.request import ITEMS_MOST, BacklogItem, BacklogRequest
from perdure.models.backlog.state import BacklogState, ItemPhase, ItemState
from perdure.models.errors import InvalidRequest
from perdure.models.phases import Step
from perdure.models.rules.backlog import (
    backlog_attach_refusal,
    conflicting_backlog,
    digest_of_items,
    parse_backlog,
    parse_item,
)
from perdure.models.rules.changes import change_refusal, decompose_item, reopen_backlog
from perdure.models.rules.dependencies import Dependencies
from perdure.models.rules.inbox import NotCounted
from perdure.models.rules.scheduling import count_items_to_land
from tests.models.backlog_night import NOON, backlog

API = {"id": "api", "request": "Add GET /durations"}
PAGE = {"id": "page", "request": "Show them", "depends_on": ["api"]}


def of(*items: Any, **terms: Any) -> dict[str, Any]:
    return {"repository": "/r", "items": list(items)} | terms


@pytest.mark.parametrize(
    ("raw", "words", "where"),
    [
        ([], "expected one JSON object, got a list", ""),
        (None, "expected one JSON object, got null", ""),
        ({"items": [API]}, "repository: required field is missing", ""),
        ({"repository": "/r"}, "items: required field is missing", ""),
        (of(), "items: there is none", ""),
        (of(*[{"id": f"i{at}", "request": "x"} for at in range(1001)]), "items: 1001 of them, at most 1000 fit", ""),
        (of(API, parallell=2), "parallell: unknown field (did you mean parallel?)", ""),
        (of(API, parallel=0), "parallel: Input should be greater than or equal to 1", ""),
        (of(API, parallel="4"), "parallel: is a string: write a number", ""),
        (of(API, questions="no"), "questions: is neither true nor false", ""),
        (of(API, land="stack", branch="x"), "branch: a stack has none of its own", ""),
        (of({**API, "check": ["make"]}, land="stack"), "items.0.check: runs with each landing", "item api"),
        (
            of(API, {**API, "id": "web"}, {"id": "top", "request": "x", "depends_on": ["api", "web"]}, land="stack"),
            "items.2.depends_on: api and web: a pull request has one base, and neither stands on the other",
            "item top",
        ),
        (of(API, land="trunk"), "land: Input should be 'branch' or 'stack'", ""),
        (of(API, window="23:00-23:00"), "window: 23:00-23:00 never opens", ""),
        (of(API, window="24:00-00:00"), "window: 24:00-00:00 never opens", ""),
        (of(API, window="at night"), "window: 'at night' are no hours: write 23:00-07:00", ""),
        (of(API, window="25:00-07:00"), "window: 25:00 is no time of a day", ""),
        (of(API, window="23:00-07:00 +15:00"), "window: +15:00 is no offset", ""),
        (of(API, window="23:00-07:00 ../etc"), "window: '../etc' is no time zone", ""),
        (of(5), "items.0: Input should be an object", "item 1"),
        (of(API, {"reqest": "x", "id": "page"}), "items.1.reqest: unknown field (did you mean request?)", "item page"),
        (of({"request": "x"}), "items.0.id: required field is missing", "item 1"),
        (of({"id": "api"}), "items.0.request: is missing (or name an issue)", "item api"),
        (of({"id": "api", "request": " \n"}), "items.0.request: is empty: say what you want", "item api"),
        (of({"id": "api", "request": "x" * 65_537}), "items.0.request: is 65537 bytes, at most 65536", "item api"),
        (of({"issue": "next"}), "items.0.issue: 'next' names no issue: write 12", "item 1"),
        (of({"issue": True}), "items.0.issue: is true or false: write 12", "item 1"),
        (of({"issue": 14}, {"issue": "#14"}), "items.1.id: issue-14 is the id of item 1, too", "item issue-14"),
        (of({"id": "My api", "request": "x"}), "items.0.id: 'My api' is no id: lower case letters", "item My api"),
        (of(API | {"priority": True}), "items.0.priority: is true or false: write a number", "item api"),
        (of(API | {"budget_usd": 0}), "items.0.budget_usd: Input should be greater than", "item api"),
        (of(API, API), "items.1.id: api is the id of item 1, too", "item api"),
        (of(API | {"depends_on": "page"}), "items.0.depends_on: Input should be a list", "item api"),
        (of(API | {"depends_on": ["api"]}), "items.0.depends_on: api depends on itself", "item api"),
        (
            of(API, PAGE | {"depends_on": ["apii"]}),
            "items.1.depends_on: there is no item apii (did you mean api?)",
            "item page",
        ),
        (of(API, PAGE | {"depends_on": ["zz"]}), "items.1.depends_on: there is no item zz", "item page"),
        (
            of(PAGE, API | {"depends_on": ["page"]}),
            "items.1.depends_on: none of these can be the first: api → page → api",
            "item api",
        ),
        (
            of(*[{"id": f"i{at}", "request": "x", "depends_on": [f"i{(at + 1) % 4}"]} for at in (2, 0, 3, 1)]),
            "items.1.depends_on: none of these can be the first: i0 → i1 → i2 → i3 → i0",
            "item i0",
        ),
        (of(API | {"touches": ["../x"]}), "items.0.touches: '../x' leaves the repository", "item api"),
        (of(API | {"touches": ["a/../../x"]}), "items.0.touches: 'a/../../x' leaves the repository", "item api"),
        (of(API | {"touches": ["/etc/**"]}), "items.0.touches: '/etc/**' is absolute", "item api"),
        (of(API | {"touches": ["C:\\x"]}), "items.0.touches: 'C:\\\\x' is absolute", "item api"),
        (of(API | {"touches": ["~/x"]}), "items.0.touches: '~/x' is absolute", "item api"),
        (of(API | {"touches": ["!src"]}), "items.0.touches: '!src' takes back", "item api"),
        (of(API | {"touches": ["./"]}), "items.0.touches: './' names no files", "item api"),
        (of(API | {"touches": "src"}), "items.0.touches: Input should be a list", "item api"),
        (
            of({"issue": "https://github.com/me/calc/issues/14"}, repository="git@github.com:you/calc"),
            "items.0.issue: https://github.com/me/calc/issues/14 is not an issue of git@github.com:you/calc",
            "item issue-14",
        ),
    ],
)
def test_the_item_and_the_field_that_are_wrong_are_named(raw: Any, words: str, where: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_backlog(raw)
    assert refused.value.what.startswith(words)
    assert refused.value.where == where
    assert "\n" not in refused.value.what
    assert len(refused.value.what) < 1000


@pytest.mark.parametrize("issue", [14, "#14", "https://github.com/me/calc/issues/14"])
def test_an_issue_names_an_item_that_has_no_id(issue: int | str) -> None:
    read = parse_backlog(of({"issue": issue, "id": None}, {"id": "docs", "issue": issue}, base=None))
    assert [item.id for item in read.items] == ["issue-14", "docs"]
    assert read.items[0].caption == "#14"
    assert parse_item({"issue": issue}) == read.items[0]
    assert parse_backlog(read.model_dump(mode="json", exclude_defaults=True)) == read
    assert parse_backlog(read.model_dump(mode="json")) == read


def test_an_item_alone_is_refused_by_its_field() -> None:
    with pytest.raises(InvalidRequest, match=r"^reqest: unknown field \(did you mean request\?\)"):
        parse_item({"id": "api", "reqest": "x"})
    with pytest.raises(InvalidRequest, match=r"^request: is missing"):
        parse_item({"id": "api"})


SENT = parse_backlog(of(API, PAGE))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (of(API, PAGE), ""),
        (of(PAGE, API), ""),
        (of(API, PAGE, repository="/r.git", parallel=9, budget_usd=5, window="1:00-2:00", model="m"), ""),
        (of(API), "a backlog of other items: page"),
        (of(API, PAGE | {"request": "Show it"}), "a backlog of other items: page"),
        (of(API, PAGE, {"issue": 14}), "a backlog of other items: issue-14"),
        (of(API, PAGE, repository="/other"), "a backlog of another repository, /r"),
        (of(API, PAGE, base="next"), "a backlog of another base or branch"),
        (of(API, PAGE, branch="next"), "a backlog of another base or branch"),
        (of(API, PAGE, land="stack"), "a backlog that lands as a branch, not as a stack"),
    ],
)
def test_the_same_backlog_attaches_and_another_one_is_refused(raw: dict[str, Any], words: str) -> None:
    sent = parse_backlog(raw)
    assert conflicting_backlog(SENT, sent) == words
    _, state = backlog(API, PAGE)
    assert backlog_attach_refusal(SENT, state, raw) == (f"the id is taken by {words}" if words else "")
    state.items_digest = digest_of_items(SENT)
    later = backlog_attach_refusal(BacklogRequest.model_construct(**(dict(SENT) | {"items": ()})), state, raw)
    assert later == (f"the id is taken by {words.partition(':')[0]}" if words else "")


def test_nothing_attaches_to_any_backlog_and_nonsense_to_none() -> None:
    _, state = backlog(API)
    assert backlog_attach_refusal(SENT, state, {}) == backlog_attach_refusal(SENT, state, None) == ""
    assert backlog_attach_refusal(SENT, state, {"repository": "/r", "itms": []}).startswith("itms: unknown field")


@pytest.mark.parametrize(
    ("phase", "change", "words"),
    [
        ("waiting", "edit", ""),
        ("waiting", "skip", ""),
        ("waiting", "cancel_item", ""),
        ("waiting", "prioritise", ""),
        ("waiting", "retry", "api has not begun yet"),
        ("building", "edit", "api has begun: cancel and skip it"),
        ("building", "skip", "api is being built: cancel it first"),
        ("building", "retry", "api is being built"),
        ("building", "cancel_item", ""),
        ("building", "prioritise", ""),
        ("landed", "edit", "api has landed"),
        ("landed", "skip", "api has landed"),
        ("landed", "retry", "api has landed: nothing is left to do"),
        ("landed", "cancel_item", "api has landed"),
        ("landed", "prioritise", "api has landed"),
        ("failed", "edit", "api has failed: retry goes on with it, skip leaves it out"),
        ("failed", "skip", ""),
        ("failed", "retry", ""),
        ("failed", "cancel_item", "api has failed"),
        ("cancelled", "retry", ""),
        ("cancelled", "skip", ""),
        ("cancelled", "edit", "api was cancelled"),
        ("skipped", "skip", "api was left out"),
        ("skipped", "retry", "api was left out: nothing is left to do"),
        ("skipped", "edit", "api was left out"),
    ],
)
def test_each_change_counts_only_where_it_can_still_be_made(phase: str, change: str, words: str) -> None:
    _, state = backlog(API, PAGE)
    state.items["api"].phase = state.items["api"].phase.__class__(phase)
    item = BacklogItem(id="api", request="Add it") if change == "edit" else None
    said = change_refusal(state, change, "api", item)
    assert said.startswith(words)
    assert bool(said) == bool(words)


def test_of_a_backlog_that_ended_an_item_that_had_not_begun_may_be_retried_like_the_rest() -> None:
    _, ended = backlog(API, {"id": "docs"}, {"id": "guide", "depends_on": ("docs",)})
    ended.status, ended.items["docs"].phase = "cancelled", ItemPhase.FAILED
    again = reopen_backlog(ended, "retry", "api", "", NOON)
    assert (again.status, again.items["api"].phase) == ("running", ItemPhase.WAITING)
    assert again.items["docs"].phase is ItemPhase.FAILED
    with pytest.raises(NotCounted, match="guide is blocked by docs: retry docs"):
        reopen_backlog(ended, "retry", "guide", "", NOON)


def test_an_item_that_was_begun_once_is_not_edited_although_it_waits_again() -> None:
    _, state = backlog(API)
    state.items["api"].child.runs = 1
    assert change_refusal(state, "edit", "api", BacklogItem(id="api", request="x")).startswith("api has begun")


@pytest.mark.parametrize(
    ("change", "item", "words"),
    [
        ("add", {"id": "docs", "request": "x", "depends_on": ("page",)}, ""),
        ("add", {"id": "page", "request": "x"}, "id: there is an item page already: edit changes it"),
        ("add", {"id": "docs", "request": "x", "depends_on": ("pag",)}, "depends_on: there is no item pag (did you"),
        ("add", {"id": "docs", "request": "x", "depends_on": ("docs",)}, "depends_on: docs depends on itself"),
        ("add", {"issue": "https://github.com/a/b/issues/1"}, "issue: https://github.com/a/b/issues/1 is not an issue"),
        ("edit", {"id": "docs", "request": "x"}, "there is no item docs"),
        ("edit", {"id": "pagee", "request": "x"}, "there is no item pagee (did you mean page?)"),
        ("edit", {"id": "page", "request": "x"}, ""),
        (
            "edit",
            {"id": "api", "request": "x", "depends_on": ("page",)},
            "depends_on: none of these can be the first: api → page → api",
        ),
    ],
)
def test_an_item_is_added_or_edited_only_where_it_fits_the_others(
    change: str, item: dict[str, Any], words: str
) -> None:
    _, state = backlog(API, PAGE)
    new = BacklogItem.model_validate(item)
    said = change_refusal(state, change, new.id, new, "https://github.com/me/calc")
    assert said.startswith(words)
    assert bool(said) == bool(words)


def test_a_backlog_takes_no_item_more_than_it_may_begin_with() -> None:
    _, state = backlog(*[{"id": f"i{at}"} for at in range(1000)])
    new = BacklogItem(id="one-more", request="x")
    assert change_refusal(state, "add", new.id, new) == "a backlog has at most 1000 items: start another one"


def test_items_that_no_run_could_carry_along_are_refused_before_anything_starts() -> None:
    items = [{"id": f"i{at}", "request": "x" * 1100} for at in range(900)]
    with pytest.raises(InvalidRequest, match=r"items: 1\.0\d MB of them, at most 1 MB fits"):
        parse_backlog({"repository": "/r", "items": items})
    _, state = backlog(*items[:800])
    long = BacklogItem(id="long", request="x" * 60_000)
    assert change_refusal(state, "add", "long", long) == ""
    state.items["long"] = ItemState(item=long)
    again = long.model_copy(update={"id": "again"})
    assert change_refusal(state, "add", "again", again).startswith("items: 1.02 MB of them")


def test_all_that_is_known_of_a_thousand_items_goes_along_into_another_run() -> None:
    """A value of 2 MB is all that a server takes: more ends the backlog where it stands."""
    _, state = backlog(*[{"id": f"i{at}", "request": "x" * 900} for at in range(1000)])
    for id, at in state.items.items():
        at.phase, at.child.id, at.child.run_id, at.landing.commit = ItemPhase.FAILED, f"night/{id}", "r" * 36, "c" * 40
        at.child.began_at = at.child.ended_at = at.added_at = at.landing.checked_at = NOON
        at.child.status, at.child.reason, at.message, at.child.usd, at.child.granted_usd, at.child.runs = (
            "not_delivered",
            "tests_red",
            "w" * 300,
            1.1,
            2.2,
            3,
        )
    carried = state.dump_for_next_run()
    assert len(json.dumps(carried)) < 2_000_000
    assert BacklogState.model_validate(carried) == state


def test_what_is_blocked_is_retried_where_it_failed() -> None:
    _, state = backlog(API, PAGE)
    state.items["api"].phase = state.items["api"].phase.FAILED
    assert change_refusal(state, "retry", "page") == "page is blocked by api: retry api"
    assert change_refusal(state, "retry", "pge") == "there is no item pge (did you mean page?)"


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def answer(*items: dict[str, Any]) -> str:
    return json.dumps({"items": [{"request": "Do it", **item} for item in items]})


def state(**items: Any) -> BacklogState:
    made = {id: BacklogItem(id=id, request="r", **more) for id, more in items.items()}
    return BacklogState(items={id: ItemState(item=item, order=n) for n, (id, item) in enumerate(made.items())})


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([], "items: there is none"),
        (
            [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}],
            "none of these can be the first: a → b → a",
        ),
        ([{"id": "a"}, {"id": "b", "depends_on": ["aa"]}], "there is no item aa (did you mean a?)"),
        ([{"id": "a"}, {"id": "a"}], "items.1.id: a is the id of item 1, too"),
        ([{"id": "a", "depends_on": ["a"]}], "a depends on itself"),
        ([{"id": "a", "touches": ["../x"]}], "items.0.touches: '../x' leaves the repository (item a)"),
        ([{"id": "a", "request": " "}], "items.0.request: is empty"),
        ([{"id": "Big One"}], "'Big One' is no id"),
        ([{"id": f"a{n}"} for n in range(ITEMS_MOST + 1)], "1001 of them, at most 1000 fit"),
    ],
)
def test_what_no_backlog_could_begin_with_is_said_to_the_model_in_the_words_a_file_is_refused_with(
    items: list[dict[str, Any]], says: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        parse_answer(Step.DECOMPOSE, answer(*items))
    assert "Value error" not in str(error.value)


def test_items_are_the_answer_as_they_were_given_and_one_is_enough() -> None:
    outcome, kept = parse_answer(Step.DECOMPOSE, answer({"id": "api", "touches": ["src/**"], "role": "backend"}))
    assert outcome.summary == outcome.data["title"] == "1 item: api"
    assert outcome.data["words"] == "api: Do it"
    assert kept is not None
    assert json.loads(kept)["items"][0]["role"] == "backend"


def test_the_schema_is_one_that_the_api_takes() -> None:
    schema = schema_for(Step.DECOMPOSE)
    assert schema is not None
    assert "maxItems" not in json.dumps(schema)
    part = schema["$defs"]["Part"]
    assert part["additionalProperties"] is False
    assert set(part["required"]) == set(part["properties"]) > {"id", "request", "depends_on", "touches", "check"}


def test_parts_take_an_items_place_and_what_depends_on_it_waits_for_all_of_them() -> None:
    backlog = state(big={"decompose": "ask", "labels": ("night",), "role": "backend"}, docs={"depends_on": ("big",)})
    parts = [BacklogItem(id="api", request="r", role="test"), BacklogItem(id="page", request="r", depends_on=("api",))]
    decompose_item(backlog, "big", parts, NOW)
    assert backlog.items["big"].phase is ItemPhase.DECOMPOSED
    assert backlog.items["docs"].item.depends_on == ("api", "page")
    assert [at.item.role for at in backlog.items.values()][2:] == ["test", "backend"]
    assert all(backlog.items[id].item.labels == ("night",) for id in ("api", "page"))
    assert Dependencies.from_state(backlog).missing == {"docs": ("api", "page"), "api": (), "page": ("api",)}
    assert count_items_to_land(backlog) == 3
    for change in ("skip", "retry", "cancel_item", "prioritise"):
        assert "was decomposed" in change_refusal(backlog, change, "big")
    assert "was decomposed" in change_refusal(backlog, "edit", "big", backlog.items["big"].item)


@given(st.lists(st.sampled_from(["a", "a-2", "b", "b-2", "c" * 40, "c" * 39]), unique=True, min_size=1))
def test_a_part_whose_id_is_taken_gets_one_that_is_not_and_is_meant_by_it(names: list[str]) -> None:
    backlog = state(**{"big": {"decompose": "go"}, "a": {}, "b-2": {}, "c" * 40: {}})
    parts = [BacklogItem(id=id, request=id, depends_on=tuple(names[:n])) for n, id in enumerate(names)]
    decompose_item(backlog, "big", parts, NOW)
    made = {at.item.request: at.item for at in list(backlog.items.values())[4:]}
    assert list(made) == names
    assert len(backlog.items) == 4 + len(names)
    for n, id in enumerate(names):
        assert made[id].depends_on == tuple(made[one].id for one in names[:n])
        BacklogItem.model_validate(made[id].model_dump())
        assert made[id].id == id or id in ("a", "b-2", "c" * 40)


def test_too_many_parts_for_one_backlog_fail_the_item_and_add_none() -> None:
    backlog = state(big={"decompose": "go"})
    decompose_item(backlog, "big", [BacklogItem(id=f"a{n}", request="r") for n in range(ITEMS_MOST)], NOW)
    assert backlog.items["big"].phase is ItemPhase.FAILED
    assert backlog.items["big"].message == "1000 items more: a backlog has at most 1000"
    assert list(backlog.items) == ["big"]


@pytest.mark.parametrize("field", ["check", "touches"])
def test_an_item_that_is_decomposed_lands_nothing_itself(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}: an item that is decomposed lands nothing itself"):
        BacklogItem(id="big", request="r", decompose="ask", **{field: ("make",)})


def test_it_has_a_place_in_a_stack_and_so_have_its_parts() -> None:
    item = {"id": "big", "request": "r", "decompose": "go"}
    assert parse_backlog({"repository": "r", "land": "stack", "items": [item]}).items[0].decompose == "go"
    backlog = state(low={}, big={"decompose": "go", "depends_on": ("low",)}, top={"depends_on": ("big",)})
    parts = [BacklogItem(id=id, request="r", check=("make",)) for id in ("api", "docs")]
    decompose_item(backlog, "big", parts, NOW, stacked=True)
    assert backlog.items["big"].phase is ItemPhase.DECOMPOSED
    on = {id: at.item.depends_on for id, at in backlog.items.items()}
    assert (on["api"], on["docs"], on["top"]) == (("low",), ("low", "api"), ("api", "docs"))
    assert not any(at.item.check for at in backlog.items.values())
