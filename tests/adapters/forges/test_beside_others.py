"""The text of one pull request that several of ours write to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.body import beside_others, marker
from perdure.models.limits import FORGE_TEXT_CHARS

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="<\r"), max_size=80)


def proposal(delivery: str, words: str) -> Proposal:
    return Proposal(delivery, f"of {delivery}", f"{words}\n\n{marker(delivery)}\n", "shared", "a" * 40, "main")


@given(st.lists(st.tuples(st.sampled_from("abc"), WORDS), max_size=8), WORDS)
def test_each_has_one_part_as_it_wrote_it_last_and_what_people_added_stays(
    written: list[tuple[str, str]], added: str
) -> None:
    text, title = beside_others(proposal("b", "b"), "of a", proposal("a", "a").body).body + added, "of a"
    for one in written:
        made = beside_others(proposal(*one), title, text)
        text, title = made.body, made.title
    assert (title, text.endswith(added)) == ("of a", True)
    last = {"a": "a", "b": "b", **dict(written)}
    assert sorted(last, key=lambda name: text.index(marker(name))) == list(last)
    for name, words in last.items():
        assert text.count(marker(name)) == 1
        assert words.strip() in text


def test_what_there_is_no_room_for_is_left_out_of_ones_own_part() -> None:
    there = proposal("a", "x" * 50_000).body
    made = beside_others(proposal("b", "y" * 50_000), "of a", there).body
    assert len(made) <= FORGE_TEXT_CHARS
    assert made.startswith("x" * 50_000)
    assert made.rstrip().endswith(marker("b"))


def test_of_a_pull_request_that_is_ones_own_alone_all_is_written_anew() -> None:
    mine = proposal("a", "new")
    assert beside_others(mine, "by hand", proposal("a", "old").body) == mine
    assert beside_others(mine, "by hand", "no word of ours") == mine
