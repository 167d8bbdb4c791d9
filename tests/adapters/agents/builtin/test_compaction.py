"""A conversation made shorter keeps its beginning, what people said, the change and the last failure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from replies import OPENING

from perdure.adapters.agents.builtin.model import parse_window
from perdure.adapters.agents.builtin.opening import COMPACT_TURNS, COMPACTED, compact_transcript, is_window_full
from perdure.adapters.agents.builtin.user_messages import add_user_messages, texts_from_people
from perdure.models.budget.ledger import Usage
from perdure.models.delivery.decisions import UserMessage
from perdure.models.errors import BadInput


def long(turns: int, said: str = "keep the old name") -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [OPENING]
    for n in range(turns):
        call = {"type": "tool_use", "id": f"t{n}", "name": "bash", "input": {"command": f"pytest {n}"}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"exit code {n % 2}\nrun {n}"}
        told += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        if n == 1:
            told = add_user_messages(told, [UserMessage(id="w", text=said)])
    return told


def _texts(message: dict[str, Any]) -> str:
    return json.dumps(message["content"])


def test_the_beginning_stays_and_the_change_the_last_failure_and_words_of_people_are_told() -> None:
    [fresh] = compact_transcript(long(10), "+ def sub")
    assert fresh["role"] == "user"
    assert fresh["content"][: len(OPENING["content"])] == OPENING["content"]
    for words in ("+ def sub", "run 9", "pytest 8", COMPACTED):
        assert words in _texts(fresh)
    assert "run 8" not in _texts(fresh), "it went well"
    assert texts_from_people([fresh]) == ("keep the old name",)


def test_a_summary_stands_in_place_of_the_turns_and_the_last_words_and_of_nothing_else() -> None:
    [fresh] = compact_transcript(long(10), "+ def sub", summary="All of it.")
    for words in ("All of it.", "+ def sub", "run 9", COMPACTED):
        assert words in _texts(fresh)
    assert "pytest 8" not in _texts(fresh)
    assert texts_from_people([fresh]) == ("keep the old name",)
    assert _texts(compact_transcript([fresh, *long(10)[1:]], "")[0]).count("All of it.") == 0, (
        "the next one has it in it"
    )


def test_made_shorter_again_it_has_each_word_once_and_no_more_than_before() -> None:
    [once] = compact_transcript(long(10), "diff 1")
    again = compact_transcript([once, *long(10, said="and the new one")[1:]], "diff 2")
    assert texts_from_people(again) == ("keep the old name", "and the new one")
    assert _texts(again[0]).count(COMPACTED) == 1
    assert "diff 1" not in _texts(again[0])
    assert compact_transcript(long(10), "diff 1") == [once]


def test_a_window_is_full_at_sixty_percent_and_never_twice_in_a_row() -> None:
    enough = Usage(input_tokens=100, cache_read_tokens=400, output_tokens=100)
    assert is_window_full(long(COMPACT_TURNS), enough, 1000)
    assert not is_window_full(long(COMPACT_TURNS), enough, 1001)
    assert not is_window_full(long(COMPACT_TURNS - 1), enough, 1000), "its opening fills it: that cannot be left out"
    assert not is_window_full(compact_transcript(long(50), ""), enough, 1000)


def test_a_window_of_a_variable_is_a_number_of_tokens() -> None:
    assert parse_window(None) is None
    assert parse_window("64000") == 64_000
    for wrong in ("0", "-1", "1e5", "many", "²"):
        with pytest.raises(BadInput):
            parse_window(wrong)
