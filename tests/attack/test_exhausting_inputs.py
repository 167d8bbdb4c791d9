"""Input that is made to exhaust the worker is refused, in words, before it costs anything."""

from __future__ import annotations

import pytest

from tests.attack import exhausting

pytestmark = pytest.mark.timeout(600)  # the first case waits for the child that reads them all

READ = (
    *("a notes file without end", "a tool output", "a go mod", "a dotted key in a pyproject", "a model answer with"),
    *("a Makefile of a thousand", "a Makefile with", "a tox ini", "a workflow", "a guide", "a noxfile", "a test that"),
)
"""Input that is taken in part, or counts as absent, instead of being refused."""


@pytest.fixture(scope="module")
def seen() -> dict[str, str]:
    """From one child process with a limit on processor time and memory; what it did not live to say is missing."""
    return exhausting.run()


@pytest.mark.parametrize("name", exhausting.CASES)
def test_it_is_refused_within_the_limits(name: str, seen: dict[str, str]) -> None:
    assert name in seen, "the child that read it ran into its limit, or died"
    assert seen[name].startswith("refused: ") or (name.startswith(READ) and seen[name] == "read"), seen[name]
