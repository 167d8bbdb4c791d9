"""Names: safe as directories, refs, URLs and links; issues as people name them."""

from __future__ import annotations

import re
import string
from datetime import UTC, datetime
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from perdure.models import ids
from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import BacklogState, OpenBacklogResult
from perdure.models.config.host import PageSettings
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.state import DeliveryState
from perdure.models.issue import IssueName, is_same_repository, mentioned_issues, parse_repository_address
from perdure.models.webui.backlog import render_backlog_details as of_backlog
from perdure.models.webui.details import page_link, render_delivery_details
from tests.states import prepared_workspace


@given(st.text(), st.text(), st.text())
def test_an_id_made_from_anything_is_safe_and_its_own_key(repository: str, request: str, entropy: str) -> None:
    made = ids.delivery_id(repository, request, entropy)
    assert ids.DELIVERY_ID.fullmatch(made)
    assert ids.delivery_key(made) == made
    assert made == ids.delivery_id(repository, request, entropy)


@given(st.text())
def test_a_key_of_any_workflow_id_is_one_safe_path_component(workflow_id: str) -> None:
    key = ids.delivery_key(workflow_id)
    assert re.fullmatch(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", key)
    assert len(key) <= 80
    assert ids.delivery_key(key) == key


@given(st.text(max_size=12), st.text(max_size=12))
def test_two_workflow_ids_never_share_a_key(one: str, other: str) -> None:
    assert (ids.delivery_key(one) == ids.delivery_key(other)) == (one == other)


@given(st.lists(st.text(string.printable, max_size=5)), st.lists(st.text(string.printable, max_size=5)))
def test_parts_of_a_digest_do_not_run_into_each_other(one: list[str], other: list[str]) -> None:
    if one and other:
        assert (ids.digest(*one) == ids.digest(*other)) == (one == other)


@pytest.mark.parametrize(
    ("repository", "name"),
    [
        ("https://github.com/me/durations.git", "durations"),
        ("git@host:team/Repo.git/", "repo"),
        ("/srv/my project", "my-project"),
        ("C:\\code\\app", "app"),
        ("/", "work"),
    ],
)
def test_a_repository_is_called_as_its_last_component(repository: str, name: str) -> None:
    assert ids.repository_name(repository) == name


def test_an_issue_has_one_id_however_its_repository_is_addressed() -> None:
    addresses = ("https://github.com/me/Calc.git", "git@github.com:me/Calc", "ssh://git@github.com/me/Calc/", "me/Calc")
    assert {ids.issue_delivery_id(address, 12) for address in addresses} == {"calc-issue-12"}


@given(st.text(), st.integers(1, 10**10 - 1))
def test_the_id_of_any_issue_is_safe_and_its_own_key(repository: str, number: int) -> None:
    made = ids.issue_delivery_id(repository, number)
    assert ids.DELIVERY_ID.fullmatch(made)
    assert ids.delivery_key(made) == made


def test_refs_and_branches_are_named_after_the_delivery() -> None:
    assert ids.branch_name("d") == "perdure/d"
    assert ids.run_ref("d", "r") == "refs/perdure/d/r"
    assert ids.artifact_ref("d", "s") == "refs/artifacts/d/s"
    assert ids.slug("Make parse_duration accept '1h30m', please") == "make-parse-duration-accept"
    assert ids.slug("日本語") == "work"


def test_letters_with_accents_stay_readable() -> None:
    assert ids.slug("Späße & Ünïcode, déjà vu") == "spasse-unicode-deja-vu"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("#12", (12,)),
        ("fix #12, please", (12,)),
        ("(#12) and #13; #12 again.", (12, 13)),
        ("#12: it breaks", (12,)),
        ("see me/calc#12 and calc#13", ()),
        ("a&#39;b, #12ab, #0, #, ##12, colour #00ff00", ()),
        ("docs/page#12 https://x.org/#12", ()),
        ("#12-introduction", ()),
        ("", ()),
    ],
)
def test_only_a_number_behind_a_hash_of_its_own_names_an_issue(text: str, numbers: tuple[int, ...]) -> None:
    assert mentioned_issues(text) == numbers


@given(st.text())
def test_any_text_is_an_issues_name_or_refused_in_words(text: str) -> None:
    words = ""
    try:
        assert 0 < IssueName.parse(text).number < 10**10
    except ValueError as refused:
        words = str(refused)
    assert not words or "names no issue: write 12, #12 or https://" in words
    assert len(words) < 2000


@pytest.mark.parametrize("text", ["１２", "1" * 11, "12 13", "https://github.com/calc/issues/12", "a/b#12", "-12"])
def test_what_only_looks_like_a_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="names no issue"):
        IssueName.parse(text)


@pytest.mark.parametrize(
    ("repository", "known"),
    [
        ("https://github.com/Me/Calc.git/", ("github.com", "me/calc")),
        ("http://127.0.0.1:8123/me/calc", ("127.0.0.1", "me/calc")),
        ("git@github.com:me/calc.git", ("github.com", "me/calc")),
        ("git@github.com:/me/calc.git", ("github.com", "me/calc")),
        ("ssh://git@ssh.github.com:443/me/calc", ("github.com", "me/calc")),
        ("ssh://git@[::1]:22/me/calc", ("[::1]", "me/calc")),
        ("me/calc", ("", "me/calc")),
        ("/srv/me/calc", None),
        ("./me/calc", None),
        ("~/me/calc", None),
        ("file:///srv/calc.git", None),
        ("", None),
    ],
)
def test_an_address_has_a_server_and_a_name_whatever_it_is_reached_by(
    repository: str, known: tuple[str, str] | None
) -> None:
    assert parse_repository_address(repository) == known


@given(st.text(), st.text())
def test_two_names_are_compared_the_same_way_round(one: str, other: str) -> None:
    assert is_same_repository(one, one)
    assert is_same_repository(one, other) == is_same_repository(other, one)


def test_two_owners_two_servers_and_two_directories_are_different_repositories() -> None:
    assert is_same_repository("https://github.com/me/calc", "git@github.com:ME/calc.git")
    assert not is_same_repository("https://github.com/me/calc", "https://github.com/you/calc")
    assert not is_same_repository("https://github.com/me/calc", "https://ghe.example.com/me/calc")
    assert is_same_repository("/srv/calc.git", "/srv/calc.git/")
    assert not is_same_repository("/srv/calc", "/srv/Calc")
    assert not is_same_repository("/srv/calc", "https://github.com/srv/calc")


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
