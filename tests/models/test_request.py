"""A bad submission is refused in one line that names the field; a proof is about one delivery."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.delivery.request import (
    DeliveryRequest,
    is_valid_proof,
    parse_request,
    request_proof,
    schedule_proof,
)
from perdure.models.errors import InvalidRequest
from perdure.models.ids import DELIVERY_ID, branch_name, delivery_key, find_scheduled_workflow
from perdure.models.limits import REQUEST_BYTES

GOOD = {"repository": "/r", "request": "Add sub"}
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.one_of(st.sampled_from(list(DeliveryRequest.model_fields)), st.text()), JSON, max_size=5)


@given(st.one_of(JSON, FIELDS, FIELDS.map(lambda more: {**GOOD, **more})))
def test_any_json_is_a_request_or_an_invalid_one(raw: Any) -> None:
    try:
        request = parse_request(raw)
    except InvalidRequest as refused:
        words = refused.what
    else:
        words = "accepted"
        again = request.model_dump(mode="json", exclude_defaults=True)
        assert parse_request(again) == request
    assert 0 < len(words) < 1000


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"repository": "/r", "reqest": "x"}, "reqest: unknown field (did you mean request?)"),
        ({**GOOD, "zzzzzz": 1}, "zzzzzz: unknown field (known: repository, request,"),
        ({"repository": "/r"}, "request: required field is missing"),
        ({**GOOD, "request": " \n"}, "request: is empty: say what you want"),
        ({"repository": "/r", "branch": "b"}, "request: required field is missing"),
        ({"repository": "/r", "phases": ["test"]}, "request: required field is missing"),
        ({"repository": "/r", "branch": "b", "phases": []}, "request: required field is missing"),
        ({"repository": "/r", "branch": "b", "phases": ["test", "review"]}, "request: required field is missing"),
        ({"repository": "/r", "branch": "b", "phases": ["review"], "plan": " "}, "request: required field is missing"),
        ({"repository": "/r", "branch": "b", "phases": ["build"], "plan": "x"}, "request: required field is missing"),
        ({"repository": "/r", "branch": "b", "phases": ["plan"], "request": ""}, "request: is empty: say what you"),
        ({**GOOD, "request": "ü" * REQUEST_BYTES}, "request: is 131072 bytes, at most 65536"),
        ({**GOOD, "plan": "x" * (REQUEST_BYTES + 1)}, "plan: is 65537 bytes"),
        ({**GOOD, "budget_usd": -1}, "budget_usd: Input should be greater than 0"),
        ({**GOOD, "budget_usd": float("nan")}, "budget_usd: "),
        ({**GOOD, "spec_version": 2}, "spec_version: "),
        ({**GOOD, "gates": ["plans"]}, "gates.0: "),
        ({**GOOD, "request": None}, "request: is empty: say what you want"),
        ({"repository": "/r", "issue": 0}, "issue: '0' names no issue: write 12, #12 or https://"),
        ({"repository": "/r", "issue": -3}, "issue: '-3' names no issue"),
        ({"repository": "/r", "issue": True}, "issue: is true or false: write 12"),
        ({"repository": "/r", "issue": 1.5}, "issue: is a number: write 12"),
        ({"repository": "/r", "issue": "next"}, "issue: 'next' names no issue"),
        (
            {"repository": "/r", "issue": "https://github.com/me/calc/pull/12"},
            "issue: 'https://github.com/me/calc/pull",
        ),
        (
            {"repository": "git@github.com:you/calc", "issue": "https://github.com/me/calc/issues/12"},
            "issue: https://github.com/me/calc/issues/12 is not an issue of git@github.com:you/calc",
        ),
        ({**GOOD, "phases": ["ship", "it"]}, "phases.1: "),
        ({**GOOD, "phases": "plan"}, "phases: Input should be a list"),
        ({**GOOD, "resume": "yesterday"}, "resume: Input should be an object"),
        ({**GOOD, "budget_usd": "5"}, "budget_usd: is a string: write a number"),
        ({**GOOD, "budget_usd": True}, "budget_usd: is true or false: write a number"),
        ({**GOOD, "tokens": True}, "tokens: is true or false: write a number"),
        ({**GOOD, "fix": "no"}, "fix: is neither true nor false"),
        ({**GOOD, "push": 1}, "push: is neither true nor false"),
        ({**GOOD, "base": "x" * 256}, "base: String should have at most 255 characters"),
        ({**GOOD, "branch": ""}, "branch: String should have at least 1 character"),
        ({**GOOD, "model": ""}, "model: String should have at least 1 character"),
        ({**GOOD, "source": "/" * 2049}, "source: String should have at most 2048 characters"),
        ({**GOOD, "issue": "https://h/me/calc/issues/12?" + "x" * 2048}, "issue: is 2076 characters long"),
        ({**GOOD, "labels": [""]}, "labels.0: String should have at least 1 character"),
        ({"repository": None, "request": "x"}, "repository: Input should be a valid string"),
        ([], "expected one JSON object, got a list"),
        (None, "expected one JSON object, got null"),
    ],
)
def test_the_field_that_is_wrong_is_named(raw: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(raw)
    assert refused.value.what.startswith(words)


@pytest.mark.parametrize("issue", [12, "12", "#12", " #12 ", "https://GitHub.com/Me/Calc/issues/12#issuecomment-3"])
@pytest.mark.parametrize("words", [{}, {"request": ""}, {"request": None}, {"request": "  only the parser\n"}])
def test_an_issue_is_a_request_with_or_without_words(issue: int | str, words: dict[str, str]) -> None:
    sent = parse_request({"repository": "https://github.com/me/calc.git", "issue": issue, **words})
    assert sent.issue_number == 12
    assert sent.caption == ("#12 only the parser" if words.get("request") else "#12")
    assert parse_request(sent.model_dump(mode="json", exclude_defaults=True)) == sent
    assert parse_request(sent.model_dump(mode="json")) == sent


@pytest.mark.parametrize(
    "repository",
    ["https://github.com/me/calc", "ssh://git@ssh.github.com:443/ME/calc.git", "me/calc", "/srv/calc", "../calc"],
)
def test_an_issues_address_fits_every_way_to_name_its_repository(repository: str) -> None:
    sent = parse_request({"repository": repository, "issue": "https://github.com/me/calc/issues/12"})
    assert sent.issue_number == 12


@pytest.mark.parametrize(
    "asked",
    [
        {"phases": ["test"]},
        {"phases": ["ship"]},
        {"phases": ["test", "ship"]},
        {"phases": ["review"], "plan": "Add sub"},
        {"phases": ["test", "review", "ship"], "plan": "Add sub", "request": None},
    ],
)
def test_an_existing_branch_speaks_for_itself_where_nothing_is_made_of_words(asked: dict[str, Any]) -> None:
    sent = parse_request({"repository": "/r", "branch": "b", **asked})
    assert (sent.request, sent.caption) == ("", "")
    assert parse_request(sent.model_dump(mode="json", exclude_defaults=True)) == sent
    assert parse_request(sent.model_dump(mode="json")) == sent


def test_what_was_sent_before_there_were_issues_is_sent_the_same_way() -> None:
    assert parse_request(GOOD).model_dump(mode="json", exclude_defaults=True) == GOOD
    assert parse_request(GOOD).caption == "Add sub"


def test_null_is_left_out_as_programs_that_write_every_field_mean_it() -> None:
    every = {**dict.fromkeys(DeliveryRequest.model_fields), **GOOD}
    assert parse_request(every) == parse_request(GOOD)
    assert parse_request({**every, "request": None, "issue": 12}) == parse_request({"repository": "/r", "issue": 12})


def test_a_field_of_any_length_is_named_in_a_line() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request({**GOOD, "x" * 100_000: 1})
    assert len(refused.value.what) < 500


def test_a_backlogs_delivery_proves_itself_by_its_key_and_by_no_other() -> None:
    request = {"repository": "/srv/git/durations.git", "request": "Add it"}
    made = request_proof(b"k", "night/api", request)
    assert is_valid_proof(made, b"k", delivery_key("night/api"), request)
    assert not is_valid_proof(made, b"k", "night/page", request)
    assert not is_valid_proof(made, b"k", "night-api", request)
    assert not is_valid_proof(made, b"other", "night/api", request)
    assert not is_valid_proof(made, b"k", "night/api", request | {"repository": "/etc"})


RUN = "night-2026-11-23T23:00:00Z"


def test_a_schedules_proof_holds_for_what_it_starts_and_for_nothing_else() -> None:
    request = {"repository": "/srv/git/durations.git", "request": "Add it"}
    made = schedule_proof(b"k", "night", request)
    assert is_valid_proof(made, b"k", RUN, request)
    assert is_valid_proof(made, b"k", "night-2027-01-01T00:00:00Z", request)
    for other in (
        *("night", "night/api", f"{RUN}/api", "nightly-2026-11-23T23:00:00Z", "a-night-2026-11-23T23:00:00Z"),
        *("night-2026-11-23", "night-x-2026-11-23T23:00:00Z", f"{RUN}-2026-11-23T23:00:00Z", delivery_key(RUN)),
        *("night-2026-11-23T23:00:00.5Z", "night-2026-11-23t23:00:00z", f"{RUN}\n", f" {RUN}", f"night-{RUN}"),
    ):
        assert not is_valid_proof(made, b"k", other, request), other
    assert not is_valid_proof(made, b"other", RUN, request)
    assert not is_valid_proof(made, b"k", RUN, request | {"repository": "/etc"})


def test_a_plain_proof_is_not_stretched_to_a_schedule_nor_a_schedules_to_its_name() -> None:
    request = {"repository": "/srv/git/durations.git", "request": "Add it"}
    assert not is_valid_proof(request_proof(b"k", "night", request), b"k", RUN, request)
    assert not is_valid_proof(schedule_proof(b"k", RUN, request), b"k", RUN, request)
    assert is_valid_proof(request_proof(b"k", RUN, request), b"k", RUN, request), (
        "a retry of it proves itself as any other"
    )


@given(st.from_regex(DELIVERY_ID, fullmatch=True), st.sampled_from(("", "/api")))
def test_what_a_schedule_starts_has_branches_and_directories_of_its_own(schedule: str, item: str) -> None:
    runs = [f"{schedule}-2026-11-2{day}T23:00:00Z{item}" for day in range(3)]
    keys = [delivery_key(run) for run in runs]
    assert len({*keys}) == 3
    assert all(DELIVERY_ID.fullmatch(key) for key in keys)
    assert all(re.fullmatch(r"perdure/[a-z0-9-]+", branch_name(key)) for key in keys)


@pytest.mark.parametrize(
    ("name", "run"),
    [("night", RUN), ("night/api", f"{RUN}/api"), ("nigh", ""), ("night-2026", ""), ("night/web", ""), ("", "")],
)
def test_a_schedules_name_means_the_newest_of_its_runs(name: str, run: str) -> None:
    known = ["nightly", f"{RUN}/api", RUN, "night-2026-11-22T23:00:00Z", "night-2026-11-22T23:00:00Z/api"]
    assert find_scheduled_workflow(name, known) == run


def test_half_a_character_is_told_in_words() -> None:
    with pytest.raises(InvalidRequest, match=r"^request: has half a character") as refused:
        parse_request({"repository": "/src/x", "request": "a\udc00b"})
    assert "codec" not in refused.value.what
