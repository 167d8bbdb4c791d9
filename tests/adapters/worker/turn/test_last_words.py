"""What those who watch see of a reply while it arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.worker.attempt import current_facts
from perdure.adapters.worker.turn.builtin_agent import StreamTail, last_whole_words


def test_a_stream_that_comes_in_pieces_is_shown_in_whole_words() -> None:
    told: dict[str, object] = {}
    token = current_facts.set(told)
    try:
        shown = StreamTail()
        for piece in ("I will think ov", "er for a while. ", "Then I wr", "ite"):
            shown.add(piece)
    finally:
        current_facts.reset(token)
    assert told["doing"] == "I will think over for a while. Then I write"


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=30), min_size=1, max_size=40))
def test_what_is_shown_is_the_end_of_the_text_and_begins_with_a_word(words: list[str]) -> None:
    shown = last_whole_words("  ".join(words))
    assert 0 < len(shown) <= 80
    assert " ".join(words).endswith(shown)
    assert shown.split()[0] in words
