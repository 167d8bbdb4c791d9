"""How people name issues and repositories: every usual way is understood, nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.issue import IssueName, is_same_repository, mentioned_issues, parse_repository_address


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
