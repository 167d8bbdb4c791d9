"""A bad submission never hangs and never surprises: it is refused in one line that names the field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.errors import InvalidRequest
from perdure.models.request import REQUEST_BYTES, DeliveryRequest, parse_request

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
        ({**GOOD, "request": "ü" * REQUEST_BYTES}, "request: is 131072 bytes, at most 65536"),
        ({**GOOD, "plan": "x" * (REQUEST_BYTES + 1)}, "plan: is 65537 bytes"),
        ({**GOOD, "budget_usd": -1}, "budget_usd: Input should be greater than 0"),
        ({**GOOD, "budget_usd": float("nan")}, "budget_usd: "),
        ({**GOOD, "spec_version": 2}, "spec_version: "),
        ({**GOOD, "gates": ["plan"]}, "gates: approvals are not built yet"),
        ({**GOOD, "issue": 7}, "issue: taking a request from an issue is not built yet"),
        ({**GOOD, "phases": ["ship", "it"]}, "phases.1: "),
        ([], "expected one JSON object, got list"),
        (None, "expected one JSON object, got NoneType"),
    ],
)
def test_the_field_that_is_wrong_is_named(raw: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(raw)
    assert refused.value.what.startswith(words)


def test_a_field_of_any_length_is_named_in_a_line() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request({**GOOD, "x" * 100_000: 1})
    assert len(refused.value.what) < 500
