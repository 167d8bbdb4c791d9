"""Numbers in a reply are read within bounds, or count as 0, whatever a server has written there."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.adapters.agents.message_builder import token_count
from perdure.models.limits import TOKENS_MOST


@pytest.mark.parametrize(
    ("value", "count"), [(12, 12), (10**30, TOKENS_MOST), (0, 0), (-3, 0), (True, 0), ("12", 0), (1.5, 0), (None, 0)]
)
def test_a_number_of_tokens_is_one_that_programs_in_every_language_read(value: Any, count: int) -> None:
    assert token_count(value) == count
