"""Names are safe as directories, refs and URLs, whatever they are made from, and differ where they must."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models import ids


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
