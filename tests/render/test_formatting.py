"""Amounts as a person reads them."""

from __future__ import annotations

import pytest

from perdure.render.formatting import format_tokens, money, pluralise, span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (8.2, "8.2 s"), (9.97, "10 s"), (59.4, "59 s"), (59.6, "1m 00s"), (188, "3m 08s"), (7500, "2h 05m")],
)
def test_time_reads_as_people_say_it(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_amounts_read_as_people_say_them() -> None:
    assert (money(None), money(0), money(0.001), money(1234.5)) == ("cost unknown", "$0.00", "<$0.01", "$1,234.50")
    assert (format_tokens(950), format_tokens(118_200), format_tokens(999_600)) == ("950", "118k", "1.0M")
    assert (pluralise(1, "turn"), pluralise(2, "reply", "replies")) == ("1 turn", "2 replies")
