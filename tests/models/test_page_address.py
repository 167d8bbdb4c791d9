"""The link to the page: only a plain address is one, and whatever an id holds leads to that id."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import BacklogState, OpenBacklogResult
from perdure.models.config.host import PageSettings
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.state import DeliveryState
from perdure.models.webui.backlog import render_backlog_details as of_backlog
from perdure.models.webui.details import page_link, render_delivery_details
from tests.states import prepared_workspace

PAGE = "https://perdure.example.org"


@pytest.mark.parametrize("given_", ["", PAGE, "http://127.0.0.1:8240", "http://[::1]:8240", f"{PAGE}:8443/"])
def test_an_address_of_a_page_is_taken(given_: str) -> None:
    assert PageSettings(address=given_).address == given_.rstrip("/")


@pytest.mark.parametrize(
    "given_",
    [
        "perdure.example.org",
        "javascript:alert(1)",
        "https://a:b@host",
        f"{PAGE}/?token=abc",
        f"{PAGE}/sub",
        "http://h/)x",
    ],
)
def test_one_with_more_than_a_host_is_refused_with_what_to_write(given_: str) -> None:
    with pytest.raises(ValidationError, match="write https://HOST, and nothing behind it"):
        PageSettings(address=given_)


@given(st.text(min_size=1, max_size=40).filter(str.isprintable))
def test_the_link_is_one_link_and_leads_to_that_id(id: str) -> None:
    (line,) = page_link(PAGE, "deliveries", id)
    head, _, rest = line.partition("](")
    assert head == "- [on the page"
    assert rest.endswith(")")
    assert unquote(rest[:-1].removeprefix(f"{PAGE}/deliveries/")) == id
    assert not set(rest[:-1]) & set(" ()<>[]`|\\")


def test_nothing_that_is_no_address_becomes_a_link_and_one_of_a_single_machine_says_so() -> None:
    assert page_link("", "deliveries", "x") == []
    assert page_link("https://h/) [x](javascript:", "deliveries", "x") == []
    assert page_link("javascript:x", "deliveries", "x") == []
    assert page_link("http://127.0.0.1:8240", "deliveries", "x")[0].endswith(" (on its host alone)")


def test_it_stands_in_the_details_of_deliveries_and_backlogs_that_know_a_page() -> None:
    request = DeliveryRequest(repository="/r", request="Add sub")
    for page, there in ((PAGE, True), ("", False)):
        state = DeliveryState(prepared=prepared_workspace(phases=("build",), page=page))
        assert (
            f"[on the page]({PAGE}/deliveries/d-1)" in render_delivery_details(state, request, "d-1", "d-1")
        ) == there
        opened = OpenBacklogResult(base="main", base_sha="b", branch="night", queue="q", page=page)
        night = BacklogRequest.model_validate({"repository": "/r", "items": [{"id": "a", "request": "Add a"}]})
        shown = of_backlog(night, BacklogState(opened=opened), datetime(2026, 1, 2, tzinfo=UTC), "night")
        assert (f"[on the page]({PAGE}/backlogs/night)" in shown) == there
