"""The text of one pull request that several of ours write to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.body import issue_numbers, marker, merge_part, part_start
from perdure.models.limits import FORGE_TEXT_CHARS

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="<\r"), max_size=80)


def proposal(delivery: str, words: str, *, begun: bool = True, issue: int = 0, title: str = "") -> Proposal:
    end = f"\n\nCloses #{issue}.\n\n{marker(delivery)}\n"
    begin = f"{part_start(delivery)}\n" if begun else ""
    return Proposal(
        delivery,
        title or f"of {delivery}",
        f"{begin}{words}{end}",
        "shared",
        "a" * 40,
        "main",
        body_end=end,
        shares_body=True,
    )


@given(st.lists(st.tuples(st.sampled_from("abc"), WORDS), max_size=8), WORDS)
def test_each_has_one_part_as_it_wrote_it_last_and_what_people_wrote_around_them_stays(
    written: list[tuple[str, str]], added: str
) -> None:
    above, below = f"Above: {added}", f"Below: {added}"
    text = merge_part(proposal("b", "b"), "of a", f"{above}\n{proposal('a', 'a').body}{below}").body
    text, title = text.replace(part_start("b"), f"Between: {added}\n{part_start('b')}"), "of a"
    for delivery, words in written:
        made = merge_part(proposal(delivery, words), title, text)
        assert merge_part(proposal(delivery, words), title, made.body) == made, "once more, after a death"
        text, title = made.body, made.title
    assert title == "of a"
    assert text.startswith(above)
    assert text.endswith(below)
    assert f"Between: {added}\n" in text
    last = {"a": "a", "b": "b", **dict(written)}
    assert sorted(last, key=lambda name: text.index(marker(name))) == list(last)
    for name, words in last.items():
        assert (text.count(marker(name)), text.count(part_start(name))) == (1, 1)
        assert f"{part_start(name)}\n{words}".strip() in text


@pytest.mark.parametrize("theirs", [20_000, 40_000, 59_000, 62_000])
def test_a_table_that_has_no_room_is_cut_at_a_line_and_the_closing_words_and_what_others_wrote_stay(
    theirs: int,
) -> None:
    there = proposal("a", "x" * theirs, issue=1).body
    rows = "".join(f"| {n:04} | yes |\n" for n in range(4_000))
    made = merge_part(proposal("b", rows, issue=2), "of a", there).body
    assert len(made) <= FORGE_TEXT_CHARS
    assert made.startswith(there)
    assert issue_numbers(made) == (1, 2)
    mine = made.removeprefix(there)
    assert all(line in rows.splitlines() for line in mine.splitlines() if line.startswith("|"))
    assert ("cut here" in mine) == ("| 0001 " in mine) == (theirs < 60_000)
    more = made
    for name in "cdefghij":
        more = merge_part(proposal(name, rows, issue=ord(name)), "of a", more).body
    assert len(more) <= FORGE_TEXT_CHARS
    assert issue_numbers(more) == (1, 2, *map(ord, "cdefghij"))


def test_a_part_that_does_not_say_where_it_begins_goes_from_the_mark_before_it_to_its_own() -> None:
    there = proposal("a", "old", begun=False).body + proposal("b", "b", begun=False).body
    made = merge_part(proposal("a", "new", title="a, later"), "of a", there)
    assert made.body == proposal("a", "new").body + proposal("b", "b", begun=False).body
    assert made.title == "a, later", "the first part is its own"
    assert merge_part(proposal("b", "new"), "of a", there).title == "of a"


def test_of_ones_own_alone_only_the_part_is_written_anew_or_all_of_it_where_that_has_no_beginning() -> None:
    mine = proposal("a", "new")
    made = merge_part(mine, "by hand", f"Hers.\n\n{proposal('a', 'old').body}")
    assert (made.title, made.body) == ("of a", f"Hers.\n\n{mine.body.strip()}\n")
    assert merge_part(mine, "by hand", proposal("a", "old", begun=False).body) == mine
    assert merge_part(mine, "by hand", "no word of ours") == mine
