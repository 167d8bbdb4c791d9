"""A conversation made shorter keeps its beginning, what people said, the change and the last failure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from replies import OPENING

from perdure.adapters.agents.builtin.compaction import COMPACT_TURNS, COMPACTED, compacted, full
from perdure.adapters.agents.builtin.model import window_in
from perdure.adapters.agents.builtin.said import heard, spoken
from perdure.models.decisions import Said
from perdure.models.errors import BadInput
from perdure.models.ledger import Usage


def long(turns: int, said: str = "keep the old name") -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [OPENING]
    for n in range(turns):
        call = {"type": "tool_use", "id": f"t{n}", "name": "bash", "input": {"command": f"pytest {n}"}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"exit code {n % 2}\nrun {n}"}
        told += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        if n == 1:
            told = heard(told, [Said(id="w", text=said)])
    return told


def _texts(message: dict[str, Any]) -> str:
    return json.dumps(message["content"])


def test_the_beginning_stays_and_the_change_the_last_failure_and_words_of_people_are_told() -> None:
    [fresh] = compacted(long(10), "+ def sub")
    assert fresh["role"] == "user"
    assert fresh["content"][: len(OPENING["content"])] == OPENING["content"]
    for words in ("+ def sub", "run 9", "pytest 8", COMPACTED):
        assert words in _texts(fresh)
    assert "run 8" not in _texts(fresh), "it went well"
    assert spoken([fresh]) == ("keep the old name",)


def test_a_summary_stands_in_place_of_the_turns_and_the_last_words_and_of_nothing_else() -> None:
    [fresh] = compacted(long(10), "+ def sub", summary="All of it.")
    for words in ("All of it.", "+ def sub", "run 9", COMPACTED):
        assert words in _texts(fresh)
    assert "pytest 8" not in _texts(fresh)
    assert spoken([fresh]) == ("keep the old name",)
    assert _texts(compacted([fresh, *long(10)[1:]], "")[0]).count("All of it.") == 0, "the next one has it in it"


def test_made_shorter_again_it_has_each_word_once_and_no_more_than_before() -> None:
    [once] = compacted(long(10), "diff 1")
    again = compacted([once, *long(10, said="and the new one")[1:]], "diff 2")
    assert spoken(again) == ("keep the old name", "and the new one")
    assert _texts(again[0]).count(COMPACTED) == 1
    assert "diff 1" not in _texts(again[0])
    assert compacted(long(10), "diff 1") == [once]


def test_a_window_is_full_at_sixty_percent_and_never_twice_in_a_row() -> None:
    enough = Usage(input_tokens=100, cache_read_tokens=400, output_tokens=100)
    assert full(long(COMPACT_TURNS), enough, 1000)
    assert not full(long(COMPACT_TURNS), enough, 1001)
    assert not full(long(COMPACT_TURNS - 1), enough, 1000), "its opening fills it: that cannot be left out"
    assert not full(compacted(long(50), ""), enough, 1000)


def test_a_window_of_a_variable_is_a_number_of_tokens() -> None:
    assert window_in(None) is None
    assert window_in("64000") == 64_000
    for wrong in ("0", "-1", "1e5", "many", "²"):
        with pytest.raises(BadInput):
            window_in(wrong)
